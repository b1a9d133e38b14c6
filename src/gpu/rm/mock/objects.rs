//! The tree of objects: which class may be below which, and what their parameters must say.

use super::super::abi::classes::{self, ChannelParams, GroupParams, MemoryParams, NV01_ROOT_CLIENT, Role};
use super::super::abi::{Handle, RmStatus};
use super::super::kernel::{CallError, NewObject};
use super::state::{MockObject, State, params, refuse};

/// Classes that a parent may have.
fn fits(parent: u32, class: u32) -> bool {
    let device = classes::NV01_DEVICE_0.number;
    let subdevice = classes::NV20_SUBDEVICE_0.number;
    let group = classes::KEPLER_CHANNEL_GROUP_A.number;
    let role = |class: u32| classes::by_number(class).map(|class| class.role);
    match class {
        0x80 => parent == NV01_ROOT_CLIENT.number,
        0x2080 | 0x3e | 0x40 | 0x71 | 0x50a0 | 0x90f1 | 0xa06c => parent == device,
        0x79 => parent == subdevice,
        _ => match role(class) {
            Some(Role::Usermode) => parent == subdevice,
            Some(Role::Channel) => parent == group,
            _ => role(parent) == Some(Role::Channel),
        },
    }
}

impl State {
    /// Makes an object.
    pub(super) fn alloc(&mut self, new: NewObject, bytes: &mut [u8]) -> Result<Handle, CallError> {
        if let Some((class, status)) = self.refuse_class
            && class == new.class.number
        {
            return refuse(status);
        }
        if new.class == NV01_ROOT_CLIENT {
            let root = Handle(self.next_client);
            self.next_client += 1;
            let object = MockObject { parent: Handle::NONE, class: new.class.number, range: (0, 0) };
            self.objects.insert(root, object);
            return Ok(root);
        }
        let Some(parent) = self.objects.get(&new.parent) else {
            return refuse(RmStatus::ERR_INVALID_OBJECT_PARENT);
        };
        if !fits(parent.class, new.class.number) {
            return refuse(RmStatus::ERR_INVALID_CLASS);
        }
        if self.objects.contains_key(&new.object) {
            return refuse(RmStatus::ERR_INSERT_DUPLICATE_NAME);
        }
        let mut range = (0, 0);
        match new.class.number {
            0x3e | 0x40 | 0x50a0 => {
                let memory: MemoryParams = params(bytes)?;
                if memory.owner == 0 {
                    return refuse(RmStatus::ERR_INVALID_OWNER);
                }
                if memory.size == 0 || memory.limit != memory.size - 1 {
                    return refuse(RmStatus::ERR_INVALID_ARGUMENT);
                }
                range = (memory.offset, memory.offset + memory.size);
                if new.class.number == 0x40 {
                    if memory.size > self.vram_free {
                        return refuse(RmStatus::ERR_NO_MEMORY);
                    }
                    self.vram_free -= memory.size;
                }
            }
            0xa06c => {
                let group: GroupParams = params(bytes)?;
                if !self.objects.contains_key(&group.space) {
                    return refuse(RmStatus::ERR_INVALID_OBJECT_HANDLE);
                }
            }
            0xc86f => {
                let channel: ChannelParams = params(bytes)?;
                if channel.space != Handle::NONE {
                    return refuse(RmStatus::ERR_INVALID_ARGUMENT);
                }
                let [userd, ..] = channel.userd;
                let [offset, ..] = channel.userd_offset;
                let inside = self.objects.get(&userd).is_some_and(|object| offset + 512 <= object.range.1);
                if !inside || !channel.entries.is_power_of_two() {
                    return refuse(RmStatus::ERR_INVALID_ARGUMENT);
                }
            }
            _ => {}
        }
        self.objects.insert(new.object, MockObject { parent: new.parent, class: new.class.number, range });
        Ok(new.object)
    }

    /// Frees an object, with those below it and its mappings.
    pub(super) fn free(&mut self, object: Handle) -> Result<(), CallError> {
        if let Some(known) = self.objects.get(&object)
            && self.keep_class == Some(known.class)
        {
            return Ok(());
        }
        let Some(gone) = self.objects.remove(&object) else { return refuse(RmStatus::ERR_OBJECT_NOT_FOUND) };
        if gone.class == classes::NV01_MEMORY_LOCAL_USER.number {
            self.vram_free += gone.range.1 - gone.range.0;
        }
        self.mappings.retain(|(dma, _), mapping| *dma != object && mapping.memory != object);
        let children: Vec<Handle> =
            self.objects.iter().filter(|(_, o)| o.parent == object).map(|(handle, _)| *handle).collect();
        children.into_iter().try_for_each(|child| self.free(child))
    }
}
