//! One channel of the NVIDIA driver: its channel group, which gives it a time slice and makes it preemptible
//! and is its own or shared with channels before it, the channel, its error notifier, and its work token.
//!
//! Ring and USERD are wherever the caller says: a guest's channel has the guest's own, and the GPU fetches
//! them itself. Nothing here ever reads them.

use super::abi::Handle;
use super::abi::classes::{ChannelParams, Class, CopyParams, MemoryParams, NV01_MEMORY_SYSTEM, Role};
use super::abi::controls::WorkSubmitToken;
use super::abi::flags::{OWNER, alloc, attr};
use super::channel_group::ChannelGroup;
use super::device::Device;
use super::error::RmError;
use super::kernel::Node;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_pci::mapping::Mapping;

/// `NVOS32_TYPE_NOTIFIER`.
const TYPE_NOTIFIER: u32 = 13;

/// Where `NvNotification` has its error number, and its status.
const NOTIFICATION_INFO32: u64 = 8;
const NOTIFICATION_STATUS: u64 = 14;

/// The parameters of a channel.
#[derive(Clone, Copy, Debug)]
pub struct NewChannel {
    /// Its class.
    pub class: Class,
    /// Handle of the address space.
    pub space: Handle,
    /// `NV2080_ENGINE_TYPE` of the runlist.
    pub engine: u32,
    /// Virtual address of its ring.
    pub gpfifo: u64,
    /// Number of entries.
    pub entries: u32,
    /// Memory with its USERD.
    pub userd: Handle,
    /// Offset of USERD in that memory, in bytes.
    pub userd_offset: u64,
}

/// The engine that a class is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// On the graphics engine.
    Graphics(Class),
    /// On a copy engine.
    Copy(Class),
}

/// The classes of `classes` that tenants may have: by number, nothing else is ever passed on.
pub fn allowed(classes: &[Class], class: u32) -> Option<Allowed> {
    let class = *classes.iter().find(|known| known.number == class)?;
    match class.role {
        Role::Copy => Some(Allowed::Copy(class)),
        Role::ThreeD | Role::Compute | Role::TwoD | Role::InlineToMemory => Some(Allowed::Graphics(class)),
        _ => None,
    }
}

/// A channel of the NVIDIA driver, with its group.
#[derive(Debug)]
pub struct RmChannel {
    group: ChannelGroup,
    channel: Handle,
    notifier: Handle,
    notifications: Mapping,
    /// Known once it is scheduled: before, the driver has no runlist for it.
    token: Option<u32>,
}

impl RmChannel {
    /// A new channel, on no runlist, with a group of its own.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new(device: &mut Device, new: &NewChannel) -> Result<Self, RmError> {
        let group = ChannelGroup::new(device, new.space, new.engine)?;
        let mut made = match Self::in_group(device, new, &group) {
            Ok(channel) => channel,
            Err(error) => {
                group.leave(device)?;
                return Err(error);
            }
        };
        drop(group);
        if let Err(error) = made.group.set_timeslice(device) {
            made.destroy(device)?;
            return Err(error);
        }
        Ok(made)
    }

    /// The same in the group of this one, whose graphics context they share then. Both have the same address
    /// space and engine.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn new_beside(&self, device: &mut Device, new: &NewChannel) -> Result<Self, RmError> {
        Self::in_group(device, new, &self.group)
    }

    fn in_group(device: &mut Device, new: &NewChannel, group: &ChannelGroup) -> Result<Self, RmError> {
        let mut params = MemoryParams {
            owner: OWNER,
            kind: TYPE_NOTIFIER,
            flags: alloc::NO_MAP,
            attr: attr::SYSTEM | attr::CONTIGUOUS | attr::PAGE_4K | attr::CACHED,
            size: PAGE_SIZE,
            limit: PAGE_SIZE - 1,
            ..Default::default()
        };
        let notifier = device.client.alloc(device.device, NV01_MEMORY_SYSTEM, &mut params)?;
        let made = Self::with_notifier(device, new, group, notifier);
        if made.is_err() {
            device.client.free(notifier)?;
        }
        made
    }

    fn with_notifier(
        device: &mut Device,
        new: &NewChannel,
        group: &ChannelGroup,
        notifier: Handle,
    ) -> Result<Self, RmError> {
        let notifications = device.client.cpu_mapping(
            Node::Control,
            device.device,
            notifier,
            PAGE_SIZE,
            "a channel's error notifier",
        )?;
        // One entry for each subdevice; there is one.
        let none = Handle::NONE;
        let mut params = ChannelParams {
            error: notifier,
            gpfifo: new.gpfifo,
            entries: new.entries,
            userd: [new.userd, none, none, none, none, none, none, none],
            userd_offset: [new.userd_offset, 0, 0, 0, 0, 0, 0, 0],
            engine: new.engine,
            ..Default::default()
        };
        let channel = device.client.alloc(group.handle(), new.class, &mut params)?;
        Ok(Self { group: group.clone(), channel, notifier, notifications, token: None })
    }

    /// Takes it away.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn destroy(&mut self, device: &mut Device) -> Result<(), RmError> {
        device.client.free(self.channel)?;
        self.group.leave(device)?;
        device.client.free(self.notifier)
    }

    /// The driver's handle.
    pub fn handle(&self) -> Handle {
        self.channel
    }

    /// Group, channel and notifier.
    pub fn objects(&self) -> [Handle; 3] {
        [self.group.handle(), self.channel, self.notifier]
    }

    /// Its group.
    pub fn group(&self) -> &ChannelGroup {
        &self.group
    }

    /// The token to write to the doorbell; `None` before the channel was scheduled.
    pub fn token(&self) -> Option<u32> {
        self.token
    }

    /// Makes an object of a copy class for an engine.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn copy_object(&self, device: &mut Device, class: Class, engine: u32) -> Result<Handle, RmError> {
        device.client.alloc(self.channel, class, &mut CopyParams { version: 1, engine })
    }

    /// Makes an object of a graphics class.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn graphics_object(&self, device: &mut Device, class: Class) -> Result<Handle, RmError> {
        device.client.alloc_plain(self.channel, class)
    }

    /// Puts its group on its runlist: all channels of it are enabled then.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn schedule(&mut self, device: &Device) -> Result<(), RmError> {
        self.group.schedule(device)?;
        let mut token = WorkSubmitToken::default();
        device.client.control(self.channel, &mut token)?;
        self.token = Some(token.token);
        Ok(())
    }

    /// The error that stopped it, if one did: a number of `ROBUST_CHANNEL_*`.
    pub fn error(&self) -> Option<u32> {
        let mut status = [0; 2];
        self.notifications.read(NOTIFICATION_STATUS, &mut status).ok()?;
        // The driver writes the status last.
        if u16::from_le_bytes(status) == 0 {
            return None;
        }
        self.notifications.read_u32(NOTIFICATION_INFO32).ok()
    }
}
