//! Video memory: one memory object per partition.
//!
//! [`HostVram`] addresses are numbers of our own: address space for partitions, from 0. A partition gets its
//! memory object when its window is first shared, and keeps it until it is renewed: the next owner gets
//! another one. A new object is dirty, whatever the driver did with it, until it was filled with zeros and
//! read back whole. The caller has it scrubbed, in pieces, before a tenant gets it.
//!
//! The object has pages of 2 MiB, so that mappings may have pages of 4 KiB, 64 KiB and 2 MiB. It is not
//! contiguous. CPU mappings of it are uncached: stores are posted in order, loads cost about a microsecond.
//!
//! Where BAR1 has no room for a partition's CPU mapping, the partition is system memory: slower for the GPU,
//! but a partition. (Many machines have 256 MiB of BAR1 for all of a GPU's users together.)
//!
//! A window is a file of `/dev/nvidiaN` that maps this object and nothing else. When the object is freed, the
//! kernel module leaves existing mappings in place, and the file can still be mapped. Both lead to the same
//! addresses of BAR1, where the module shows the next memory that is mapped, of any process. So an object
//! that was shared is freed only when no process of the host has its file any more, in any way
//! ([`OpenFiles`]). Until then its memory is withheld.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use super::abi::Handle;
use super::abi::classes::{MemoryParams, NV01_MEMORY_LOCAL_USER};
use super::abi::flags::{OWNER, alloc, attr, attr2};
use super::client::map_file;
use super::device::Device;
use super::error::RmError;
use super::kernel::OpenFiles;
use crate::scrub::{self, SCRUB_PIECE};
use crate::{GpuError, Renewal, Scrub};
use gpuvmk_chip::addr::HostVram;
use gpuvmk_pci::SharedMemory;
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};

/// Bytes of a partition in system memory that become one object.
const HOST_OBJECT: u64 = 64 << 20;

/// Page size of memory objects, and so the granule of partitions.
pub const GRANULE: u64 = 2 << 20;

/// BAR1 left for the driver's own mappings and those of others.
const BAR1_RESERVE: u64 = 16 << 20;

/// A piece that is being cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub usize);

/// Clears video memory while the owner serves tenants.
pub trait Cleaner: Send {
    /// Begins to write zeros to at most [`SCRUB_PIECE`] bytes; none while it has no room for more.
    ///
    /// # Errors
    /// The driver refuses.
    fn begin(
        &mut self,
        device: &Device,
        object: Handle,
        offset: u64,
        size: u64,
    ) -> Result<Option<Ticket>, GpuError>;

    /// How far that is: [`Scrub::Done`] once zeros were seen there. The ticket is void then, and after an
    /// error.
    ///
    /// # Errors
    /// They are not there, or not in time.
    fn look(&mut self, device: &Device, ticket: Ticket) -> Result<Scrub, GpuError>;

    /// Objects that it needs for that.
    fn objects(&self) -> Vec<Handle>;
}

/// A part of a partition that is being cleared.
#[derive(Clone, Copy, Debug)]
struct ScrubRange {
    /// Where the partition begins.
    first: u64,
    from: u64,
    to: u64,
    ticket: Option<Ticket>,
}

/// Bytes of system memory that are cleared at a time.
const FILL: u64 = 256 << 10;

/// The parameters of an object of video memory.
pub fn vram_params(size: u64, page_attr: u32, alignment: u64) -> MemoryParams {
    MemoryParams {
        owner: OWNER,
        flags: alloc::ANY_BANK | alloc::ALIGN | alloc::NO_MAP,
        attr: page_attr | attr::MAY_SCATTER | attr::UNCACHED,
        attr2: attr2::NO_ZBC
            | attr2::GPU_CACHED
            | if page_attr == attr::PAGE_HUGE { attr2::HUGE_2M } else { 0 },
        size,
        alignment,
        limit: size.saturating_sub(1),
        ..Default::default()
    }
}

/// A partition's memory.
#[derive(Debug)]
pub struct Partition {
    size: u64,
    /// Memory objects, each of `piece` bytes but the last.
    objects: Vec<Handle>,
    piece: u64,
    /// True where it is system memory.
    host: bool,
    /// True until it was cleared once.
    dirty: bool,
    /// None once it is being given up.
    window: Option<Window>,
    /// Under which its file is watched; a file of ordinary memory need not be.
    watched: Option<u64>,
}

/// How a partition is reached by processors: its file, and what of it is mapped here.
#[derive(Debug)]
struct Window {
    file: OwnedFd,
    memory: Mapping,
}

/// Where an address of a partition leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VramPlace {
    /// Handle of the memory object.
    pub object: Handle,
    /// Offset in it.
    pub offset: u64,
    /// Bytes from there that are in it.
    pub size: u64,
    /// True where it is system memory.
    pub host: bool,
}

impl Partition {
    fn place(&self, at: u64) -> Option<VramPlace> {
        let index = usize::try_from(at.checked_div(self.piece)?).ok()?;
        let offset = at.checked_rem(self.piece)?;
        let size = self.piece.saturating_sub(offset).min(self.size.saturating_sub(at));
        Some(VramPlace { object: *self.objects.get(index)?, offset, size, host: self.host })
    }

    fn free(&self, device: &mut Device) -> Result<(), RmError> {
        self.objects.iter().try_for_each(|object| device.client.free(*object))
    }

    /// Goes on with clearing a part of it: what is left, if anything, and why that waits.
    fn clear(
        &self,
        device: &Device,
        cleaner: &mut dyn Cleaner,
        range: &mut ScrubRange,
    ) -> Result<Scrub, GpuError> {
        let size = range.to.saturating_sub(range.from);
        let object = self.objects.first().copied();
        let (done, seen) = match (range.ticket, object) {
            _ if size == 0 => return Ok(Scrub::Done),
            (_, Some(_)) if self.host => {
                let size = size.min(FILL);
                let filled = self.window()?.memory.fill(range.from, size, 0);
                filled.map_err(|error| GpuError::Invalid(error.to_string()))?;
                (size, Scrub::More)
            }
            (Some(ticket), _) => (size.min(SCRUB_PIECE), cleaner.look(device, ticket)?),
            (None, Some(object)) => {
                range.ticket = cleaner.begin(device, object, range.from, size.min(SCRUB_PIECE))?;
                return Ok(Scrub::Pending);
            }
            (None, None) => return Ok(Scrub::Done),
        };
        if !self.host {
            match seen {
                Scrub::Pending | Scrub::More => return Ok(seen),
                Scrub::Done | Scrub::Untouched => range.ticket = None,
            }
        }
        range.from = range.from.saturating_add(done);
        Ok(if range.from >= range.to { Scrub::Done } else { Scrub::More })
    }

    /// Reads a word of it.
    pub fn read_u32(&self, offset: u64) -> Option<u32> {
        self.window.as_ref()?.memory.read_u32(offset).ok()
    }

    fn window(&self) -> Result<&Window, GpuError> {
        let gone = || GpuError::Invalid("the partition's memory is being given up".to_owned());
        self.window.as_ref().ok_or_else(gone)
    }

    fn shared(&self) -> Result<SharedMemory, GpuError> {
        Ok(SharedMemory { fd: self.window()?.file.try_clone()?, offset: 0, size: self.size })
    }

    /// Frees its objects if no other process has its file; closes our own descriptor.
    fn release(&mut self, device: &mut Device, open: &dyn OpenFiles) -> Result<Renewal, GpuError> {
        self.window = None;
        if let Some(key) = self.watched
            && open.is_open(key)?
        {
            return Ok(Renewal::Held);
        }
        self.free(device)?;
        Ok(Renewal::Done)
    }

    /// Frees the objects of `[from, to)` of system memory, and gives its pages back: a file that another
    /// process keeps has no memory then, and a little at a time is done here.
    fn release_host(&self, device: &mut Device, from: u64, to: u64) -> Result<(), GpuError> {
        let (first, end) = (from.checked_div(self.piece), to.div_ceil(self.piece.max(1)));
        for index in first.unwrap_or(0)..end {
            let object = usize::try_from(index).ok().and_then(|index| self.objects.get(index));
            object.map_or(Ok(()), |object| device.client.free(*object))?;
        }
        scrub::give_back(&[self.shared()?], from, to)
    }
}

/// All of them, by start.
pub struct Vram {
    size: u64,
    partitions: BTreeMap<u64, Partition>,
    /// The ranges that are being cleared, by start and size.
    scrubs: BTreeMap<(u64, u64), VecDeque<ScrubRange>>,
    open: Box<dyn OpenFiles>,
    next_key: u64,
}

impl std::fmt::Debug for Vram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Vram").field("partitions", &self.partitions).finish_non_exhaustive()
    }
}

impl Vram {
    /// Room for partitions of `size` bytes together, whose files are watched by `open`.
    pub fn new(size: u64, open: Box<dyn OpenFiles>) -> Self {
        Self { size, partitions: BTreeMap::new(), scrubs: BTreeMap::new(), open, next_key: 0 }
    }

    /// The partition that holds `[start, start + size)`, and where in it that begins.
    pub fn locate(&self, start: HostVram, size: u64) -> Option<(&Partition, u64)> {
        let (first, partition) = self.partitions.range(..=start.0).next_back()?;
        let offset = start.0.checked_sub(*first)?;
        let end = offset.checked_add(size)?;
        (end <= partition.size).then_some((partition, offset))
    }

    /// Memory objects of all partitions.
    pub fn objects(&self) -> impl Iterator<Item = Handle> + '_ {
        self.partitions.values().flat_map(|partition| partition.objects.iter().copied())
    }

    /// Where `start` leads, at most `limit` bytes on.
    pub fn place(&self, start: HostVram, limit: u64) -> Option<VramPlace> {
        let (partition, offset) = self.locate(start, 1)?;
        let place = partition.place(offset)?;
        Some(VramPlace { size: place.size.min(limit), ..place })
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Partition)> {
        self.partitions
            .range(..end)
            .filter(move |(first, partition)| first.saturating_add(partition.size) > start)
            .map(|(first, partition)| (*first, partition))
    }

    fn check(&self, start: HostVram, size: u64) -> Result<u64, GpuError> {
        let end = start.checked_add(size).filter(|end| size > 0 && end.0 <= self.size);
        end.map(|end| end.0)
            .ok_or_else(|| GpuError::Invalid(format!("{size:#x} bytes at {start} are not tenant memory")))
    }

    /// A window on a partition. Allocates its memory if it has none. `in_use` tells whether an address space
    /// still maps an object.
    ///
    /// # Errors
    /// The range is none, or the driver has no memory.
    pub fn share(
        &mut self,
        device: &mut Device,
        start: HostVram,
        size: u64,
        in_use: impl Fn(HostVram, u64) -> bool,
    ) -> Result<SharedMemory, GpuError> {
        let end = self.check(start, size)?;
        if !start.is_aligned(GRANULE) || !size.is_multiple_of(GRANULE) {
            return Err(GpuError::Invalid(format!(
                "a partition of {size:#x} bytes at {start} is not made of {GRANULE:#x} byte pieces"
            )));
        }
        let known = self.partitions.get(&start.0).filter(|partition| partition.size == size);
        if let Some(partition) = known {
            return partition.shared();
        }
        let old: Vec<(u64, u64)> = self.overlapping(start.0, end).map(|(at, p)| (at, p.size)).collect();
        for (at, length) in old {
            let used = in_use(HostVram(at), length);
            if used || self.release(device, at)? == Renewal::Held {
                return Err(GpuError::Invalid(format!(
                    "{size:#x} bytes at {start} overlap the partition at {at:#x}, which is in use"
                )));
            }
        }
        let mut partition = make(device, size)?;
        if !partition.host {
            let key = self.next_key;
            self.next_key = self.next_key.saturating_add(1);
            let watched =
                partition.window().and_then(|window| Ok(self.open.watch(window.file.as_fd(), key)?));
            if let Err(error) = watched {
                // Without the check it could never be freed again.
                partition.window = None;
                partition.free(device)?;
                return Err(error);
            }
            partition.watched = Some(key);
        }
        let shared = partition.shared();
        self.partitions.insert(start.0, partition);
        shared
    }

    /// Frees the partition at `start` if no process has its file.
    fn release(&mut self, device: &mut Device, start: u64) -> Result<Renewal, GpuError> {
        let Some(partition) = self.partitions.get_mut(&start) else { return Ok(Renewal::Done) };
        let renewal = partition.release(device, self.open.as_ref())?;
        if renewal == Renewal::Done {
            self.partitions.remove(&start);
        }
        Ok(renewal)
    }

    /// Continues to free partitions of a range, as [`crate::GpuDriver::renew_vram`]. `in_use` tells whether
    /// an address space still maps an object.
    ///
    /// # Errors
    /// The range is not tenant memory or is in use, or the driver does not free it.
    pub fn renew(
        &mut self,
        device: &mut Device,
        start: HostVram,
        size: u64,
        in_use: impl Fn(HostVram, u64) -> bool,
    ) -> Result<Renewal, GpuError> {
        let end = self.check(start, size)?;
        let there: Vec<(u64, u64, bool)> =
            self.overlapping(start.0, end).map(|(at, p)| (at, p.size, p.host)).collect();
        for (at, length, host) in there {
            if in_use(HostVram(at), length) {
                return Err(GpuError::Invalid(format!("the partition at {at:#x} is still in use")));
            }
            let to = end.saturating_sub(at).min(length);
            if host && let Some(partition) = self.partitions.get(&at) {
                partition.release_host(device, start.0.saturating_sub(at), to)?;
                if to < length {
                    continue;
                }
            }
            if self.release(device, at)? == Renewal::Held {
                return Ok(Renewal::Held);
            }
        }
        Ok(Renewal::Done)
    }

    /// Continues to fill a range with zeros, where it has memory. Call again until it is done.
    ///
    /// # Errors
    /// The range is not tenant memory, or hardware failed.
    pub fn advance_scrub(
        &mut self,
        device: &Device,
        cleaner: &mut dyn Cleaner,
        start: HostVram,
        size: u64,
    ) -> Result<Scrub, GpuError> {
        let end = self.check(start, size)?;
        let key = (start.0, size);
        if !self.scrubs.contains_key(&key) {
            let ranges = self.overlapping(start.0, end).map(|(first, partition)| ScrubRange {
                first,
                from: start.0.max(first).saturating_sub(first),
                to: end.min(first.saturating_add(partition.size)).saturating_sub(first),
                ticket: None,
            });
            let ranges = ranges.collect();
            self.scrubs.insert(key, ranges);
        }
        let seen = self.scrub_some(device, cleaner, key);
        if !matches!(seen, Ok(Scrub::Pending | Scrub::More)) {
            self.scrubs.remove(&key);
        }
        seen
    }

    fn scrub_some(
        &mut self,
        device: &Device,
        cleaner: &mut dyn Cleaner,
        key: (u64, u64),
    ) -> Result<Scrub, GpuError> {
        let Some(ranges) = self.scrubs.get_mut(&key) else { return Ok(Scrub::Done) };
        let Some(range) = ranges.front_mut() else { return Ok(Scrub::Done) };
        // One that is gone meanwhile has nothing to clear.
        let seen = match self.partitions.get(&range.first) {
            Some(partition) => partition.clear(device, cleaner, range)?,
            None => Scrub::Done,
        };
        if !matches!(seen, Scrub::Done | Scrub::Untouched) {
            return Ok(seen);
        }
        // A partition is cleared from its start to its end.
        if let Some(partition) = self.partitions.get_mut(&range.first)
            && range.to == partition.size
        {
            partition.dirty = false;
        }
        ranges.pop_front();
        Ok(if ranges.is_empty() { Scrub::Done } else { Scrub::More })
    }

    /// True when a part of the range was never cleared.
    pub fn is_dirty(&self, start: HostVram, size: u64) -> bool {
        self.overlapping(start.0, start.0.saturating_add(size)).any(|(_, partition)| partition.dirty)
    }
}

fn make(device: &mut Device, size: u64) -> Result<Partition, GpuError> {
    let room = device.bar1_free()?;
    if room < size.saturating_add(BAR1_RESERVE) {
        log::warn!(
            "BAR1 has {} MiB free: a partition of {} MiB is put into system memory instead of VRAM, which is slower for \
             the GPU. A larger BAR1 (resizable BAR in the machine's firmware) avoids this",
            room >> 20,
            size >> 20
        );
        return make_host(device, size);
    }
    let mut params = vram_params(size, attr::PAGE_HUGE, GRANULE);
    let object = device.client.alloc(device.device, NV01_MEMORY_LOCAL_USER, &mut params)?;
    match map(device, object, size) {
        Ok(window) => Ok(Partition {
            size,
            objects: vec![object],
            piece: size,
            host: false,
            dirty: true,
            window: Some(window),
            watched: None,
        }),
        Err(error) => {
            device.client.free(object)?;
            Err(error.into())
        }
    }
}

/// A partition in system memory: the GPU reaches it over the bus.
fn make_host(device: &mut Device, size: u64) -> Result<Partition, GpuError> {
    let file = create_memory_file(c"gpuvmk-partition", size)?;
    let memory = Mapping::of_file(file.as_fd(), 0, size, Access::ReadWrite)
        .map_err(|source| RmError::Mapping { what: "a partition", source })?;
    let node = device.file().try_clone_to_owned()?;
    let (objects, window) = (Vec::new(), Some(Window { file, memory }));
    let mut partition =
        Partition { size, objects, piece: HOST_OBJECT, host: true, dirty: true, window, watched: None };
    let mut at = 0;
    while at < size {
        let length = size.saturating_sub(at).min(HOST_OBJECT);
        let memory = &partition.window()?.memory;
        let made = device.client.alloc_pages(node.as_fd(), device.device, memory, at, length);
        match made {
            Ok(object) => partition.objects.push(object),
            Err(error) => {
                partition.free(device)?;
                return Err(error.into());
            }
        }
        at = at.saturating_add(length);
    }
    Ok(partition)
}

fn map(device: &Device, object: Handle, size: u64) -> Result<Window, RmError> {
    let file = device.client.cpu_file(device.node, device.device, object, 0, size)?;
    let memory = map_file(&file, size, "a partition")?;
    Ok(Window { file, memory })
}
