//! Video memory: one memory object per partition, zero before anybody sees it.
//!
//! [`HostVram`] addresses are numbers of our own: address space for partitions, from 0. A partition gets its memory
//! object when its window is first shared, and keeps it: the same range shared again is the same object. The
//! object is filled with zeros and read back whole before that, whatever the driver did with it.
//!
//! The object has pages of 2 MiB, so that mappings may have pages of 4 KiB, 64 KiB and 2 MiB. It is not
//! contiguous. CPU mappings of it are uncached: stores are posted in order, loads cost about a microsecond.
//!
//! A window is a file of `/dev/nvidiaN` that maps this object and nothing else. The kernel module does not take a
//! process's mapping away when the object is freed, and BAR1 addresses are used again; so an object that was
//! shared is freed only when its range is shared in another shape, and whoever had it must be gone by then.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use super::abi::Handle;
use super::abi::classes::{MemoryParams, NV01_MEMORY_LOCAL_USER};
use super::abi::flags::{OWNER, alloc, attr, attr2};
use super::client::map_file;
use super::device::Device;
use super::error::RmError;
use crate::addr::HostVram;
use crate::gpu::GpuError;
use crate::pci::SharedMemory;
use crate::pci::mapping::Mapping;

/// Page size of memory objects, and so the granule of partitions.
pub const GRANULE: u64 = 2 << 20;

/// What clears video memory.
pub trait Cleaner: Send {
    /// Writes zeros, and looks that they are there.
    ///
    /// # Errors
    /// They are not.
    fn zero(&mut self, device: &Device, object: Handle, offset: u64, size: u64) -> Result<(), GpuError>;

    /// Objects that it needs for that.
    fn objects(&self) -> Vec<Handle>;
}

/// What an object of video memory takes.
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
    /// The memory object.
    pub object: Handle,
    file: OwnedFd,
    window: Mapping,
}

impl Partition {
    /// Reads a word of it.
    pub fn read_u32(&self, offset: u64) -> Option<u32> {
        self.window.read_u32(offset).ok()
    }
}

/// All of them, by start.
#[derive(Debug)]
pub struct Vram {
    size: u64,
    partitions: BTreeMap<u64, Partition>,
}

impl Vram {
    /// Room for partitions of `size` bytes together.
    pub fn new(size: u64) -> Self {
        Self { size, partitions: BTreeMap::new() }
    }

    /// The partition that holds `[start, start + size)`, and where in it that begins.
    pub fn locate(&self, start: HostVram, size: u64) -> Option<(&Partition, u64)> {
        let (first, partition) = self.partitions.range(..=start.0).next_back()?;
        let offset = start.0.checked_sub(*first)?;
        let end = offset.checked_add(size)?;
        (end <= partition.size).then_some((partition, offset))
    }

    /// How far from `start` on, at most `limit` bytes, the partition goes that `start` lies in.
    pub fn reach(&self, start: HostVram, limit: u64) -> u64 {
        self.locate(start, 1)
            .map_or(0, |(partition, offset)| partition.size.saturating_sub(offset).min(limit))
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

    /// A window on a partition; makes its memory when it has none. `in_use` tells whether somebody still maps
    /// into an object.
    ///
    /// # Errors
    /// The range is none, the driver has no memory, or memory is not zero.
    pub fn share(
        &mut self,
        device: &mut Device,
        cleaner: &mut dyn Cleaner,
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
            return Ok(SharedMemory { fd: partition.file.try_clone()?, offset: 0, size });
        }
        let old: Vec<(u64, u64)> = self.overlapping(start.0, end).map(|(at, p)| (at, p.size)).collect();
        for (at, size) in &old {
            if in_use(HostVram(*at), *size) {
                return Err(GpuError::Invalid(format!(
                    "{size:#x} bytes at {start} overlap the partition at {at:#x}, which is in use"
                )));
            }
        }
        for (at, _) in old {
            if let Some(partition) = self.partitions.remove(&at) {
                device.client.free(partition.object)?;
            }
        }
        let partition = make(device, size)?;
        let fd = partition.file.try_clone()?;
        if let Err(error) = cleaner.zero(device, partition.object, 0, size) {
            device.client.free(partition.object)?;
            return Err(error);
        }
        self.partitions.insert(start.0, partition);
        Ok(SharedMemory { fd, offset: 0, size })
    }

    /// Fills a range with zeros, as far as it has memory.
    ///
    /// # Errors
    /// The range is not tenant memory, or hardware failed.
    pub fn scrub(
        &self,
        device: &Device,
        cleaner: &mut dyn Cleaner,
        start: HostVram,
        size: u64,
    ) -> Result<(), GpuError> {
        let end = self.check(start, size)?;
        for (first, partition) in self.overlapping(start.0, end) {
            let from = start.0.max(first).saturating_sub(first);
            let to = end.min(first.saturating_add(partition.size)).saturating_sub(first);
            cleaner.zero(device, partition.object, from, to.saturating_sub(from))?;
        }
        Ok(())
    }
}

fn make(device: &mut Device, size: u64) -> Result<Partition, GpuError> {
    let mut params = vram_params(size, attr::PAGE_HUGE, GRANULE);
    let object = device.client.alloc(device.device, NV01_MEMORY_LOCAL_USER, &mut params)?;
    let mapped = map(device, object, size);
    match mapped {
        Ok((file, window)) => Ok(Partition { size, object, file, window }),
        Err(error) => {
            device.client.free(object)?;
            Err(error.into())
        }
    }
}

fn map(device: &Device, object: Handle, size: u64) -> Result<(OwnedFd, Mapping), RmError> {
    let file = device.client.cpu_file(device.node, device.device, object, 0, size)?;
    let window = map_file(&file, size, "a partition")?;
    Ok((file, window))
}
