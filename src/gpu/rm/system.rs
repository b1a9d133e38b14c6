//! System memory that the GPU may reach: ranges of bus addresses over tenants' files.
//!
//! Bus addresses are numbers of our own; the NVIDIA driver knows memory objects. A file's memory becomes objects in
//! pieces of [`PIECE`], each when something is first mapped from it, and stays until no range shows it any more.
//! So the many announcements and withdrawals of a machine's firmware cost nothing, no call takes long because a VM
//! is large, and memory is held in place only where the GPU uses it.
//!
//! Not handled: memory that a device may only read (its pages stay faults), and ranges without a file behind them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use super::abi::Handle;
use super::device::Device;
use super::error::RmError;
use crate::addr::{Iova, PAGE_SIZE};
use crate::gpu::space_map::Run;
use crate::gpu::{GpuError, HostTarget};
use crate::pci::mapping::{Access, Mapping};
use crate::pci::{DmaError, DmaMapping};

/// Bytes of a file that become one object: large enough to be few, small enough that first touching them all takes
/// some 20 ms.
pub const PIECE: u64 = 64 << 20;

/// Bits of bus addresses.
pub const SYSTEM_BITS: u8 = 47;

/// First bus address given out.
pub const FIRST_IOVA: u64 = 1 << 32;

type FileId = (u64, u64);

#[derive(Debug)]
struct Range {
    size: u64,
    file: Option<(FileId, u64)>,
    writable: bool,
    /// Bytes that are mapped from it, in all address spaces together.
    mapped: u64,
}

impl Range {
    /// Pieces of its file that it shows a part of.
    fn pieces(&self) -> Option<(FileId, std::ops::RangeInclusive<u64>)> {
        let (file, offset) = self.file?;
        let last = offset.checked_add(self.size)?.checked_sub(1)?;
        Some((file, offset / PIECE..=last / PIECE))
    }
}

#[derive(Debug)]
struct Piece {
    object: Handle,
    /// Bytes, less than [`PIECE`] at the end of a file.
    size: u64,
    /// Keeps the memory mapped as long as it is registered.
    _memory: Mapping,
}

/// Where a bus address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Memory object.
    pub object: Handle,
    /// Offset in it.
    pub offset: u64,
    /// Bytes from there that are one piece.
    pub size: u64,
}

/// All ranges.
#[derive(Debug, Default)]
pub struct SystemMemory {
    ranges: BTreeMap<u64, Range>,
    files: BTreeMap<FileId, OwnedFd>,
    pieces: BTreeMap<(FileId, u64), Piece>,
}

impl SystemMemory {
    /// Announces a range.
    ///
    /// # Errors
    /// See [`DmaError`].
    pub fn map(&mut self, mapping: DmaMapping) -> Result<(), DmaError> {
        let DmaMapping { iova, size, writable, backing } = mapping;
        let invalid = |why| DmaError::Invalid { iova, size, why };
        let end = iova
            .checked_add(size)
            .filter(|end| size > 0 && *end <= 1 << SYSTEM_BITS)
            .ok_or(invalid("it is empty or beyond 47 address bits"))?;
        if !iova.is_multiple_of(PAGE_SIZE) || !size.is_multiple_of(PAGE_SIZE) {
            return Err(invalid("it is not made of whole pages"));
        }
        let before = self.ranges.range(..end).next_back();
        if before.is_some_and(|(start, range)| start.saturating_add(range.size) > iova) {
            return Err(DmaError::Overlap { iova, size });
        }
        let file = match backing {
            None => None,
            Some(backing) => {
                let cannot = |source| DmaError::Backing { iova, size, source };
                let stat = rustix::fs::fstat(&backing.fd).map_err(|error| cannot(error.into()))?;
                let length = u64::try_from(stat.st_size).unwrap_or(0);
                let inside = backing.offset.checked_add(size).is_some_and(|end| end <= length);
                if !inside || !backing.offset.is_multiple_of(PAGE_SIZE) {
                    return Err(invalid(
                        "its file is smaller, or the offset is not a multiple of the page size",
                    ));
                }
                let id = (stat.st_dev, stat.st_ino);
                self.files.entry(id).or_insert(backing.fd);
                Some((id, backing.offset))
            }
        };
        self.ranges.insert(iova, Range { size, file, writable, mapped: 0 });
        Ok(())
    }

    /// The range that a bus address lies in.
    fn range_of(&mut self, iova: Iova) -> Option<&mut Range> {
        let (start, range) = self.ranges.range_mut(..=iova.0).next_back()?;
        (iova.0.saturating_sub(*start) < range.size).then_some(range)
    }

    /// A run was mapped. Each lies in one range, as [`Self::locate`] gives no more.
    pub fn note_mapped(&mut self, run: &Run) {
        if let HostTarget::System { iova, .. } = run.target
            && let Some(range) = self.range_of(iova)
        {
            range.mapped = range.mapped.saturating_add(run.len);
        }
    }

    /// A run, or a part of one, was unmapped.
    pub fn note_unmapped(&mut self, run: &Run) {
        if let HostTarget::System { iova, .. } = run.target
            && let Some(range) = self.range_of(iova)
        {
            range.mapped = range.mapped.saturating_sub(run.len);
        }
    }

    /// Whether anything is mapped from the ranges that begin here.
    pub fn is_mapped(&self, iova: Iova, size: u64) -> bool {
        let end = iova.0.saturating_add(size);
        self.ranges.range(iova.0..end.max(iova.0)).any(|(_, range)| range.mapped > 0)
    }

    /// Withdraws whole ranges, and frees what nobody shows any more. Nothing of it may be mapped.
    ///
    /// # Errors
    /// No such range, or the driver refuses.
    pub fn unmap(&mut self, device: &mut Device, iova: Iova, size: u64) -> Result<(), GpuError> {
        let not_mapped = DmaError::NotMapped { iova: iova.0, size };
        let end = iova.checked_add(size).ok_or(DmaError::NotMapped { iova: iova.0, size })?.0;
        let inside: Vec<(u64, u64)> =
            self.ranges.range(iova.0..end).map(|(start, range)| (*start, range.size)).collect();
        let covered = inside.iter().fold(0_u64, |sum, (_, size)| sum.saturating_add(*size));
        let whole = inside.iter().all(|(start, size)| start.saturating_add(*size) <= end);
        if !whole || covered != size {
            return Err(not_mapped.into());
        }
        for (start, _) in inside {
            self.ranges.remove(&start);
        }
        self.free_unseen(device)
    }

    fn free_unseen(&mut self, device: &mut Device) -> Result<(), GpuError> {
        let seen = |key: &(FileId, u64)| {
            self.ranges
                .values()
                .filter_map(Range::pieces)
                .any(|(file, pieces)| file == key.0 && pieces.contains(&key.1))
        };
        let unseen: Vec<(FileId, u64)> = self.pieces.keys().filter(|key| !seen(key)).copied().collect();
        for key in unseen {
            if let Some(piece) = self.pieces.get(&key) {
                device.client.free(piece.object)?;
            }
            self.pieces.remove(&key);
        }
        let ranges = &self.ranges;
        self.files
            .retain(|id, _| ranges.values().any(|range| range.file.is_some_and(|(file, _)| file == *id)));
        Ok(())
    }

    /// Where a bus address leads, at most `limit` bytes on; registers the piece when it is the first to be asked
    /// for.
    ///
    /// # Errors
    /// Nothing is there, a device may only read it, or the driver refuses.
    pub fn locate(&mut self, device: &mut Device, iova: Iova, limit: u64) -> Result<Place, GpuError> {
        let nothing = || GpuError::Invalid(format!("nothing can be mapped from bus address {iova}"));
        let (start, range) = self.ranges.range(..=iova.0).next_back().ok_or_else(nothing)?;
        let into = iova.0.saturating_sub(*start);
        let left = range.size.checked_sub(into).filter(|left| *left > 0).ok_or_else(nothing)?;
        if !range.writable {
            return Err(GpuError::Invalid(format!(
                "memory at bus address {iova} may only be read by devices"
            )));
        }
        let (file, base) = range.file.ok_or_else(nothing)?;
        let at = base.saturating_add(into);
        let index = at / PIECE;
        let offset = at % PIECE;
        if !self.pieces.contains_key(&(file, index)) {
            let fd = self.files.get(&file).ok_or_else(nothing)?;
            let piece = register(device, fd, index)?;
            self.pieces.insert((file, index), piece);
        }
        let piece = self.pieces.get(&(file, index)).ok_or_else(nothing)?;
        let size = piece.size.checked_sub(offset).filter(|size| *size > 0).ok_or_else(nothing)?;
        Ok(Place { object: piece.object, offset, size: size.min(left).min(limit) })
    }

    /// Pieces that are registered.
    #[cfg(test)]
    pub fn registered(&self) -> usize {
        self.pieces.len()
    }
}

fn register(device: &mut Device, fd: &OwnedFd, index: u64) -> Result<Piece, GpuError> {
    let cannot = |source: std::io::Error| GpuError::Io(source);
    let stat = rustix::fs::fstat(fd).map_err(|error| cannot(error.into()))?;
    let start = index.saturating_mul(PIECE);
    let length = u64::try_from(stat.st_size).unwrap_or(0) / PAGE_SIZE * PAGE_SIZE;
    let size = length.saturating_sub(start).min(PIECE);
    let memory = Mapping::of_file(fd.as_fd(), start, size, Access::ReadWrite)
        .map_err(|source| RmError::Mapping { what: "a piece of a VM's memory", source })?;
    let file = device.file().try_clone_to_owned()?;
    let object = device.client.alloc_pages(file.as_fd(), device.device, &memory, 0, size)?;
    Ok(Piece { object, size, _memory: memory })
}
