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
//! Where BAR1 has no room for a partition's CPU mapping, the partition is system memory
//! ([`super::host_partition`]). Many machines have 256 MiB of BAR1 for all of a GPU's users together.
//!
//! A window is a file of `/dev/nvidiaN` that maps this object and nothing else. When the object is freed, the
//! kernel module leaves existing mappings in place, and the file can still be mapped. Both lead to the same
//! addresses of BAR1, where the module shows the next memory that is mapped, of any process. So an object
//! that was shared is freed only when no process of the host has its file any more, in any way
//! ([`OpenFiles`]). Until then its memory is withheld.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use super::abi::Handle;
use super::abi::classes::{MemoryParams, NV01_MEMORY_LOCAL_USER};
use super::abi::flags::{OWNER, alloc, attr, attr2};
use super::clearing::{Cleaner, ScrubRange, clear};
use super::client::map_file;
use super::device::Device;
use super::error::RmError;
use super::host_partition::{self, Returns};
use super::kernel::OpenFiles;
use super::system::{Located, Place, SystemMemory};
use crate::{Budget, GpuError, Progress, Renewal, Scrub};
use gpuvmk_chip::addr::HostVram;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::SharedMemory;
use gpuvmk_pci::mapping::Mapping;

/// Page size of memory objects, and so the granule of partitions.
pub const GRANULE: u64 = 2 << 20;

/// BAR1 left for the driver's own mappings and those of others.
const BAR1_RESERVE: u64 = 16 << 20;

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
    /// Its memory object; none where it is system memory, which has one for each piece that is in use.
    object: Option<Handle>,
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
    fn free(&self, device: &mut Device) -> Result<(), RmError> {
        self.object.map_or(Ok(()), |object| device.client.free(object))
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
}

/// All of them, by start.
pub struct Vram {
    size: u64,
    partitions: OrderedMap<u64, Partition>,
    /// The ranges that are being cleared, by start and size.
    scrubs: OrderedMap<(u64, u64), VecDeque<ScrubRange>>,
    /// System memory on its way back to the kernel.
    returns: Returns,
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
        let (partitions, scrubs, returns) = (OrderedMap::new(), OrderedMap::new(), Returns::default());
        Self { size, partitions, scrubs, returns, open, next_key: 0 }
    }

    /// The partition that holds `[start, start + size)`, and where in it that begins.
    pub fn locate(&self, start: HostVram, size: u64) -> Option<(&Partition, u64)> {
        let (first, partition) = self.partitions.range(..=start.0).next_back()?;
        let offset = start.0.checked_sub(*first)?;
        let end = offset.checked_add(size)?;
        (end <= partition.size).then_some((partition, offset))
    }

    /// Memory objects of all partitions in VRAM.
    pub fn objects(&self) -> impl Iterator<Item = Handle> + '_ {
        self.partitions.values().filter_map(|partition| partition.object)
    }

    /// Where `start` leads, at most `limit` bytes on. None while system memory there is being made an object.
    ///
    /// # Errors
    /// It is in no partition, or its memory cannot be held in place.
    pub fn place(
        &self,
        device: &mut Device,
        system: &mut SystemMemory,
        start: HostVram,
        limit: u64,
    ) -> Result<Option<VramPlace>, GpuError> {
        let found = self.locate(start, 1);
        let (partition, offset) =
            found.ok_or_else(|| GpuError::Invalid(format!("VRAM at {start} belongs to no partition")))?;
        let limit = limit.min(partition.size.saturating_sub(offset));
        Ok(match partition.object {
            Some(object) => Some(VramPlace { object, offset, size: limit, host: false }),
            None => match system.locate(device, host_partition::iova(start), limit)? {
                Located::At(Place { object, offset, size }) => {
                    Some(VramPlace { object, offset, size, host: true })
                }
                Located::Waits => None,
            },
        })
    }

    /// Where `start` leads in a partition in VRAM, at most `limit` bytes on.
    pub fn video_place(&self, start: HostVram, limit: u64) -> Option<VramPlace> {
        let (partition, offset) = self.locate(start, 1)?;
        let size = limit.min(partition.size.saturating_sub(offset));
        Some(VramPlace { object: partition.object?, offset, size, host: false })
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
        system: &mut SystemMemory,
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
            if used || self.release(device, system, at)? != Renewal::Done {
                return Err(GpuError::Invalid(format!(
                    "{size:#x} bytes at {start} overlap the partition at {at:#x}, which is in use"
                )));
            }
        }
        let mut partition = make(device, system, start, size)?;
        if partition.object.is_some() {
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
    fn release(
        &mut self,
        device: &mut Device,
        system: &mut SystemMemory,
        start: u64,
    ) -> Result<Renewal, GpuError> {
        let Some(partition) = self.partitions.get_mut(&start) else { return Ok(Renewal::Done) };
        if partition.object.is_none() {
            let (at, size) = (host_partition::iova(HostVram(start)), partition.size);
            // Mostly all of it went back piece by piece, and little is left to be done.
            if system.advance_unmap(device, at, size, &mut Budget::unlimited())? != Progress::Done {
                return Ok(Renewal::Waits);
            }
        }
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
        system: &mut SystemMemory,
        start: HostVram,
        size: u64,
        in_use: impl Fn(HostVram, u64) -> bool,
    ) -> Result<Renewal, GpuError> {
        let end = self.check(start, size)?;
        let there: Vec<(u64, u64, bool)> =
            self.overlapping(start.0, end).map(|(at, p)| (at, p.size, p.object.is_none())).collect();
        for (at, length, host) in there {
            if in_use(HostVram(at), length) {
                return Err(GpuError::Invalid(format!("the partition at {at:#x} is still in use")));
            }
            let last = at.saturating_add(length);
            if host {
                // A file that another process keeps has no memory then.
                let (from, to) = (start.0.max(at), end.min(last));
                let size = to.saturating_sub(from);
                if self.returns.advance(device, system, HostVram(from), size)? != Progress::Done {
                    return Ok(Renewal::Waits);
                }
                if to < last {
                    continue;
                }
            }
            match self.release(device, system, at)? {
                Renewal::Done => {}
                renewal => return Ok(renewal),
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
        device: &mut Device,
        system: &mut SystemMemory,
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
        let seen = self.scrub_some(device, system, cleaner, key);
        if !matches!(seen, Ok(Scrub::Pending | Scrub::More)) {
            self.scrubs.remove(&key);
        }
        seen
    }

    fn scrub_some(
        &mut self,
        device: &mut Device,
        system: &mut SystemMemory,
        cleaner: &mut dyn Cleaner,
        key: (u64, u64),
    ) -> Result<Scrub, GpuError> {
        let Some(ranges) = self.scrubs.get_mut(&key) else { return Ok(Scrub::Done) };
        let Some(range) = ranges.front_mut() else { return Ok(Scrub::Done) };
        // One that is gone meanwhile has nothing to clear.
        let seen = match self.partitions.get(&range.first).map(|partition| partition.object) {
            Some(Some(object)) => clear(device, cleaner, object, range)?,
            Some(None) => {
                let at = HostVram(range.first.saturating_add(range.from));
                let size = range.to.saturating_sub(range.from);
                match self.returns.advance(device, system, at, size)? {
                    Progress::Done => Scrub::Done,
                    Progress::More | Progress::Waits => Scrub::Pending,
                }
            }
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

fn make(
    device: &mut Device,
    system: &mut SystemMemory,
    start: HostVram,
    size: u64,
) -> Result<Partition, GpuError> {
    let room = device.bar1_free()?;
    if room < size.saturating_add(BAR1_RESERVE) {
        log::warn!(
            "BAR1 has {} MiB free: a partition of {} MiB is put into system memory instead of VRAM, which is slower for \
             the GPU. A larger BAR1 (resizable BAR in the machine's firmware) avoids this",
            room >> 20,
            size >> 20
        );
        let (file, memory) = host_partition::make(system, start, size)?;
        let window = Some(Window { file, memory });
        return Ok(Partition { size, object: None, dirty: false, window, watched: None });
    }
    let mut params = vram_params(size, attr::PAGE_HUGE, GRANULE);
    let object = device.client.alloc(device.device, NV01_MEMORY_LOCAL_USER, &mut params)?;
    match map(device, object, size) {
        Ok(window) => {
            Ok(Partition { size, object: Some(object), dirty: true, window: Some(window), watched: None })
        }
        Err(error) => {
            device.client.free(object)?;
            Err(error.into())
        }
    }
}

fn map(device: &Device, object: Handle, size: u64) -> Result<Window, RmError> {
    let file = device.client.cpu_file(device.node, device.device, object, 0, size)?;
    let memory = map_file(&file, size, "a partition")?;
    Ok(Window { file, memory })
}
