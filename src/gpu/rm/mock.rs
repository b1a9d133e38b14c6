//! A kernel module of the NVIDIA driver in memory: a tree of objects, mappings, and refusals where the real
//! one refuses.
//!
//! It plays no GPU: what channels would do is not done, so tests clear memory with [`Wiper`].

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "for tests alone, of this room and of others"
)]

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use zerocopy::{FromBytes, IntoBytes};

use super::abi::calls::{CardInfo, EventData, MapDma, UnmapDma};
use super::abi::classes::{self, ChannelParams, GroupParams, MemoryParams, NV01_ROOT_CLIENT, Role};
use super::abi::controls::{
    ArchInfo, ClassList, ControlParams, CopyCaps, CopyUnits, DisableChannels, Engines, FbInfo, GroupPreempt,
    HandleInfo, IdInfo, NameString, WorkSubmitToken,
};
use super::abi::{Handle, RmStatus, flags};
use super::device::Device;
use super::kernel::{CallError, CpuView, Kernel, NewObject, NewPages, Node, OpenFiles};
use super::vram::{Cleaner, Ticket};
use crate::{GpuError, Scrub};
use gpuvmk_chip::Chip;
use gpuvmk_host::clock::ManualClock;

/// An object of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MockObject {
    pub parent: Handle,
    pub class: u32,
    /// Bytes, of memory; first address and end, of reservations.
    pub range: (u64, u64),
}

/// A mapping in a GPU address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MockMapping {
    pub dma: Handle,
    pub memory: Handle,
    pub offset: u64,
    pub length: u64,
    pub flags: u32,
}

/// State that tests read and set.
#[derive(Debug, Default)]
pub struct State {
    pub cards: Vec<CardInfo>,
    /// `NV2080_ENGINE_TYPE` of each engine.
    pub engines: Vec<u32>,
    /// True if the GPUs' nodes may not be opened.
    pub closed: bool,
    pub objects: BTreeMap<Handle, MockObject>,
    /// By address space's reservation and address.
    pub mappings: BTreeMap<(Handle, u64), MockMapping>,
    pub architecture: u32,
    /// Class numbers that the GPU lists.
    pub classes: Vec<u32>,
    pub vram_free: u64,
    pub disabled: Vec<Handle>,
    pub scheduled: Vec<Handle>,
    pub events: VecDeque<EventData>,
    pub maps: usize,
    pub unmaps: usize,
    /// A class whose objects stay although they were freed.
    pub keep_class: Option<u32>,
    /// Answers of the next calls for a class: refused with the status.
    pub refuse_class: Option<(u32, RmStatus)>,
    /// The map call that is refused: this many succeed before it.
    pub refuse_map_after: Option<usize>,
    /// Channels do not leave their engines when they are preempted.
    pub clings: bool,
    /// The file that all nodes are, for tests of its lock.
    pub node: Option<OwnedFd>,
    next_client: u32,
}

impl State {
    /// Objects of a class.
    pub fn handles(&self, class: classes::Class) -> Vec<Handle> {
        let of_class = self.objects.iter().filter(|(_, object)| object.class == class.number);
        of_class.map(|(handle, _)| *handle).collect()
    }

    pub fn count(&self, class: classes::Class) -> usize {
        self.objects.values().filter(|object| object.class == class.number).count()
    }

    /// Where `va` of the reservation's address space leads: memory and offset.
    pub fn translate(&self, va: u64) -> Option<(Handle, u64, u32)> {
        self.mappings.iter().find_map(|((_, start), mapping)| {
            let into = va.checked_sub(*start)?;
            (into < mapping.length).then_some((mapping.memory, mapping.offset + into, mapping.flags))
        })
    }
}

/// A mock of the kernel module.
#[derive(Clone, Debug)]
pub struct Mock {
    state: Arc<Mutex<State>>,
    /// The clock that calls advance.
    clock: Option<Arc<ManualClock>>,
}

fn refuse<T>(status: RmStatus) -> Result<T, CallError> {
    Err(CallError::Status(status))
}

impl Mock {
    /// One H200 with 8 GiB free.
    pub fn new() -> Self {
        let state = State {
            cards: vec![CardInfo { valid: 1, bus: 6, gpu_id: 0x600, device: 0x2335, ..Default::default() }],
            engines: vec![1, 9, 10, 11, 12, 13, 0x22],
            architecture: 0x180,
            classes: classes_of(Chip::GH100),
            vram_free: 8 << 30,
            next_client: 0xc1d0_0001,
            ..Default::default()
        };
        Self { state: Arc::new(Mutex::new(state)), clock: None }
    }

    /// Locks its state.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same module for a caller whose calls take time.
    pub fn timed(&self, clock: &Arc<ManualClock>) -> Self {
        Self { state: Arc::clone(&self.state), clock: Some(Arc::clone(clock)) }
    }

    fn take(&self, time: u64) {
        if let Some(clock) = &self.clock {
            clock.advance(time);
        }
    }

    pub fn kernel(&self) -> Arc<dyn Kernel> {
        Arc::new(self.clone())
    }
}

/// Clears nothing, and remembers what it should have.
#[derive(Debug, Default)]
pub struct Wiper {
    pub wiped: Arc<Mutex<Vec<(Handle, u64, u64)>>>,
}

impl Cleaner for Wiper {
    fn begin(
        &mut self,
        _device: &Device,
        object: Handle,
        offset: u64,
        size: u64,
    ) -> Result<Option<Ticket>, GpuError> {
        self.wiped.lock().unwrap_or_else(PoisonError::into_inner).push((object, offset, size));
        Ok(Some(Ticket(0)))
    }

    fn look(&mut self, _device: &Device, _ticket: Ticket) -> Result<Scrub, GpuError> {
        Ok(Scrub::Done)
    }

    fn objects(&self) -> Vec<Handle> {
        Vec::new()
    }
}

/// Duration of calls in nanoseconds, as measured (docs/rm.md); in this order where several calls were
/// measured as one.
mod takes {
    pub const MAP: u64 = 58_000;
    pub const UNMAP: u64 = 17_000;
    pub const CONTROL: u64 = 10_000;
    pub const DISABLE: u64 = 330_000;
    pub const ENABLE: u64 = 230_000;
    pub const PREEMPT: u64 = 210_000;

    /// An object of a class made: 2.1 ms for a channel with its group and notifier.
    pub const fn alloc(class: u32) -> u64 {
        match class {
            0xc86f => 1_500_000,
            0xa06c => 400_000,
            _ => 100_000,
        }
    }

    /// The same freed: 1.3 ms.
    pub const fn free(class: u32) -> u64 {
        match class {
            0xc86f => 900_000,
            0xa06c => 300_000,
            _ => 100_000,
        }
    }
}

/// What a GPU of the chip lists, and an older class.
pub fn classes_of(chip: Chip) -> Vec<u32> {
    let own = chip.classes.for_tenants().into_iter().chain(chip.classes.usermode);
    own.map(|class| class.number).chain([0xc36f]).collect()
}

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

fn params<T: FromBytes>(bytes: &[u8]) -> Result<T, CallError> {
    T::read_from_bytes(bytes).map_err(|_| CallError::Status(RmStatus::ERR_INVALID_PARAM_STRUCT))
}

fn answer<T: IntoBytes + zerocopy::Immutable>(value: &T, bytes: &mut [u8]) {
    bytes.copy_from_slice(value.as_bytes());
}

impl State {
    fn alloc(&mut self, new: NewObject, bytes: &mut [u8]) -> Result<Handle, CallError> {
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

    fn free(&mut self, object: Handle) -> Result<(), CallError> {
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

    fn map(&mut self, call: MapDma) -> Result<(), CallError> {
        if self.refuse_map_after == Some(0) {
            self.refuse_map_after = None;
            return refuse(RmStatus::ERR_NO_MEMORY);
        }
        self.refuse_map_after = self.refuse_map_after.map(|left| left - 1);
        let (Some(dma), Some(memory)) = (self.objects.get(&call.dma), self.objects.get(&call.memory)) else {
            return refuse(RmStatus::ERR_OBJECT_NOT_FOUND);
        };
        if call.flags & flags::map::FIXED == 0 || call.va < dma.range.0 || call.va + call.length > dma.range.1
        {
            return refuse(RmStatus::ERR_INVALID_OFFSET);
        }
        if call.offset + call.length > memory.range.1 - memory.range.0 {
            return refuse(RmStatus::ERR_INVALID_BASE);
        }
        let page = match call.flags & 0xf00 {
            flags::map::PAGE_2M => 2 << 20,
            flags::map::PAGE_64K => 64 << 10,
            _ => 4096,
        };
        if !(call.va | call.offset | call.length).is_multiple_of(page) {
            return refuse(RmStatus::ERR_INVALID_OFFSET);
        }
        // They do not overlap, so the last one that begins before the end is the only one that may be in the
        // way.
        let before = self.mappings.range((call.dma, 0)..(call.dma, call.va + call.length)).next_back();
        let overlaps = before.is_some_and(|((_, start), mapping)| call.va < *start + mapping.length);
        if overlaps {
            return refuse(RmStatus::ERR_IN_USE);
        }
        self.maps += 1;
        let MapDma { dma, memory, offset, length, flags, va, .. } = call;
        self.mappings.insert((dma, va), MockMapping { dma, memory, offset, length, flags });
        Ok(())
    }

    /// By range, as the real one: mappings are cut, never inside a page.
    fn unmap(&mut self, call: UnmapDma) -> Result<(), CallError> {
        self.unmaps += 1;
        let end = call.va + call.size;
        let before = self.mappings.range((call.dma, 0)..(call.dma, call.va)).next_back();
        let within = self.mappings.range((call.dma, call.va)..(call.dma, end));
        let hit: Vec<(u64, MockMapping)> = before
            .into_iter()
            .chain(within)
            .filter(|((_, start), m)| call.va < *start + m.length)
            .map(|((_, start), m)| (*start, *m))
            .collect();
        for (start, mapping) in hit {
            let page = match mapping.flags & 0xf00 {
                flags::map::PAGE_2M => 2 << 20,
                flags::map::PAGE_64K => 64 << 10,
                _ => 4096,
            };
            let (from, to) = (start.max(call.va), (start + mapping.length).min(end));
            if from % page != 0 || to % page != 0 {
                return refuse(RmStatus::ERR_INVALID_ARGUMENT);
            }
            self.mappings.remove(&(call.dma, start));
            if start < from {
                self.mappings.insert((call.dma, start), MockMapping { length: from - start, ..mapping });
            }
            let stop = start + mapping.length;
            if to < stop {
                let offset = mapping.offset + (to - start);
                let rest = MockMapping { offset, length: stop - to, ..mapping };
                self.mappings.insert((call.dma, to), rest);
            }
        }
        Ok(())
    }

    fn control(&mut self, object: Handle, command: u32, bytes: &mut [u8]) -> Result<(), CallError> {
        if !self.objects.contains_key(&object) {
            return refuse(RmStatus::ERR_OBJECT_NOT_FOUND);
        }
        match command {
            IdInfo::COMMAND => Ok(()),
            GroupPreempt::COMMAND if self.clings && bytes.first() == Some(&1) => {
                refuse(RmStatus::ERR_TIMEOUT)
            }
            NameString::COMMAND => {
                let mut name = NameString::default();
                name.name[..11].copy_from_slice(b"NVIDIA H200");
                answer(&name, bytes);
                Ok(())
            }
            ArchInfo::COMMAND => {
                answer(&ArchInfo { architecture: self.architecture, ..Default::default() }, bytes);
                Ok(())
            }
            ClassList::COMMAND => {
                let mut list =
                    ClassList { count: u32::try_from(self.classes.len()).unwrap(), ..Default::default() };
                list.list[..self.classes.len()].copy_from_slice(&self.classes);
                answer(&list, bytes);
                Ok(())
            }
            FbInfo::COMMAND => {
                let mut info: FbInfo = params(bytes)?;
                let free = u32::try_from(self.vram_free >> 10).unwrap();
                info.list.iter_mut().for_each(|question| question.data = free);
                answer(&info, bytes);
                Ok(())
            }
            Engines::COMMAND => {
                let count = self.engines.len();
                let mut engines = Engines { count: u32::try_from(count).unwrap(), ..Default::default() };
                engines.list[..count].copy_from_slice(&self.engines);
                answer(&engines, bytes);
                Ok(())
            }
            CopyCaps::COMMAND => {
                let mut caps: CopyCaps = params(bytes)?;
                caps.caps = [u8::from(caps.engine <= 10), 0];
                answer(&caps, bytes);
                Ok(())
            }
            CopyUnits::COMMAND => {
                let mut units: CopyUnits = params(bytes)?;
                units.mask = if units.engine == 13 { 0x3f0 } else { 1 };
                answer(&units, bytes);
                Ok(())
            }
            HandleInfo::COMMAND => {
                let info: HandleInfo = params(bytes)?;
                if self.objects.contains_key(&info.object) {
                    Ok(())
                } else {
                    refuse(RmStatus::ERR_OBJECT_NOT_FOUND)
                }
            }
            super::abi::controls::GroupSchedule::COMMAND => {
                self.scheduled.push(object);
                Ok(())
            }
            WorkSubmitToken::COMMAND => {
                let group = self.objects.get(&object).map(|o| o.parent);
                if !group.is_some_and(|group| self.scheduled.contains(&group)) {
                    return refuse(RmStatus::ERR_INVALID_STATE);
                }
                answer(&WorkSubmitToken { token: object.0 & 0xffff }, bytes);
                Ok(())
            }
            DisableChannels::COMMAND => {
                let call: DisableChannels = params(bytes)?;
                let count = usize::try_from(call.count).unwrap();
                for channel in call.channels.into_iter().take(count) {
                    if !self.objects.contains_key(&channel) {
                        return refuse(RmStatus::ERR_INVALID_OBJECT_HANDLE);
                    }
                    self.disabled.retain(|disabled| *disabled != channel);
                    if call.disable != 0 {
                        self.disabled.push(channel);
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Files of this process: memory files, which an epoll set does not take, by what `/proc` tells of
/// descriptors and mappings.
#[derive(Debug, Default)]
struct MockFiles(BTreeMap<u64, u64>);

impl OpenFiles for MockFiles {
    fn watch(&mut self, file: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        self.0.insert(key, rustix::fs::fstat(file).map_err(io::Error::from)?.st_ino);
        Ok(())
    }

    fn is_open(&self, key: u64) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;
        let Some(inode) = self.0.get(&key) else { return Ok(false) };
        let mut mapped = std::fs::read_to_string("/proc/self/maps")?;
        mapped.retain(|c| c != '\0');
        let is_mapped = mapped.lines().any(|line| {
            line.contains("memfd:mock-node") && line.split_whitespace().nth(4) == Some(&inode.to_string())
        });
        let is_node = |entry: &std::fs::DirEntry| {
            std::fs::metadata(entry.path()).is_ok_and(|facts| facts.ino() == *inode && facts.is_file())
        };
        Ok(is_mapped
            || std::fs::read_dir("/proc/self/fd")?.filter_map(Result::ok).any(|entry| is_node(&entry)))
    }
}

impl Kernel for Mock {
    fn open(&self, node: Node) -> io::Result<OwnedFd> {
        if self.state().closed && node != Node::Control {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // A node is one file that is opened each time anew; what is mapped here must not be.
        if let Some(node) = &self.state().node {
            return Ok(std::fs::File::open(format!("/proc/self/fd/{}", node.as_raw_fd()))?.into());
        }
        Ok(rustix::fs::memfd_create("mock-node", rustix::fs::MemfdFlags::CLOEXEC)?)
    }

    fn open_files(&self) -> io::Result<Box<dyn OpenFiles>> {
        Ok(Box::new(MockFiles::default()))
    }

    fn cards(&self) -> Result<Vec<CardInfo>, CallError> {
        Ok(self.state().cards.clone())
    }

    fn register(&self, _device: BorrowedFd<'_>) -> Result<(), CallError> {
        Ok(())
    }

    fn alloc(&self, new: NewObject, params: &mut [u8]) -> Result<Handle, CallError> {
        self.take(takes::alloc(new.class.number));
        self.state().alloc(new, params)
    }

    fn alloc_pages(&self, _device: BorrowedFd<'_>, new: NewPages<'_>) -> Result<(), CallError> {
        let object = MockObject { parent: new.device, class: 0x71, range: (0, new.size) };
        self.state().objects.insert(new.object, object);
        Ok(())
    }

    fn free(&self, _client: Handle, _parent: Handle, object: Handle) -> Result<(), CallError> {
        let class = self.state().objects.get(&object).map_or(0, |object| object.class);
        self.take(takes::free(class));
        self.state().free(object)
    }

    fn control(
        &self,
        _client: Handle,
        object: Handle,
        command: u32,
        params: &mut [u8],
    ) -> Result<(), CallError> {
        self.take(match command {
            DisableChannels::COMMAND if params.first() == Some(&0) => takes::ENABLE,
            DisableChannels::COMMAND => takes::DISABLE,
            GroupPreempt::COMMAND => takes::PREEMPT,
            _ => takes::CONTROL,
        });
        let answer = self.state().control(object, command, params);
        if command == GroupPreempt::COMMAND && answer.is_err() {
            let patience =
                params.get(4..8).and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)));
            self.take(u64::from(patience.unwrap_or(0)) * 1000);
        }
        answer
    }

    fn map_cpu(&self, view: CpuView, file: BorrowedFd<'_>) -> Result<(), CallError> {
        if !self.state().objects.contains_key(&view.memory) {
            return refuse(RmStatus::ERR_OBJECT_NOT_FOUND);
        }
        Ok(rustix::fs::ftruncate(file, view.size).map_err(io::Error::from)?)
    }

    fn map_dma(&self, call: MapDma) -> Result<(), CallError> {
        self.take(takes::MAP);
        self.state().map(call)
    }

    fn unmap_dma(&self, call: UnmapDma) -> Result<(), CallError> {
        self.take(takes::UNMAP);
        self.state().unmap(call)
    }

    fn event_file(&self, _client: Handle) -> Result<OwnedFd, CallError> {
        Ok(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).map_err(io::Error::from)?)
    }

    fn next_event(&self, _file: BorrowedFd<'_>) -> Result<Option<(EventData, bool)>, CallError> {
        let mut state = self.state();
        let event = state.events.pop_front();
        let more = !state.events.is_empty();
        Ok(event.map(|event| (event, more)))
    }
}
