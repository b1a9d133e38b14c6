//! A partition in system memory, where BAR1 has no room for one in VRAM: slower for the GPU, but a partition.
//!
//! It is a file of the aggregator's own, which [`SystemMemory`] has like a VM's memory, at bus addresses that
//! no VM has: a piece of it is held in place when a page table or a channel first names it, and by another
//! thread. Where a VM's own memory is refused unless all of it is there, this memory is the aggregator's, and
//! is made when it is held.
//!
//! It is zeroed by giving its pages back to the kernel, which other threads do as well. A new partition is a
//! new file, and so nothing but zeros.

use std::os::fd::{AsFd, OwnedFd};

use super::device::Device;
use super::error::RmError;
use super::system::{SYSTEM_BITS, SystemMemory};
use crate::{GpuError, Progress};
use gpuvmk_chip::addr::{HostVram, Iova};
use gpuvmk_ordered::OrderedSet;
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};

/// Where system memory in place of an address of VRAM is: above all VMs' bus addresses.
pub fn iova(at: HostVram) -> Iova {
    Iova(at.0.saturating_add(1 << SYSTEM_BITS))
}

/// Zeros in place of `[start, start + size)` of VRAM: their file, and where it is mapped here.
///
/// # Errors
/// The kernel gives no file or no mapping, or there is other memory.
pub fn make(system: &mut SystemMemory, start: HostVram, size: u64) -> Result<(OwnedFd, Mapping), GpuError> {
    let file = create_memory_file(c"gpuvmk-partition", size)?;
    let memory = Mapping::of_file(file.as_fd(), 0, size, Access::ReadWrite)
        .map_err(|source| RmError::Mapping { what: "a partition", source })?;
    let shown: OwnedFd = file.try_clone()?;
    system.map_own(iova(start), size, shown)?;
    Ok((file, memory))
}

/// Ranges whose memory goes back to the kernel.
#[derive(Debug, Default)]
pub struct Returns {
    ordered: OrderedSet<(HostVram, u64)>,
}

impl Returns {
    /// Has a range, which no page table names, be zeros that take no memory. With anything but
    /// [`Progress::Done`], ask for the same range again.
    ///
    /// # Errors
    /// The range is not made of whole pieces, the driver does not let go of its memory, or the kernel does
    /// not take it.
    pub fn advance(
        &mut self,
        device: &mut Device,
        system: &mut SystemMemory,
        start: HostVram,
        size: u64,
    ) -> Result<Progress, GpuError> {
        if system.is_busy(device, iova(start), size)? {
            return Ok(Progress::Waits);
        }
        if self.ordered.remove(&(start, size)) {
            return Ok(Progress::Done);
        }
        system.give_back(iova(start), size)?;
        self.ordered.insert((start, size));
        Ok(Progress::Waits)
    }
}
