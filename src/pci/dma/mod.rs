//! Memory that a function may reach by DMA: the ranges announced to it, and copies in and out of them.
//!
//! The table of ranges is read on every access and changed rarely: readers share a lock, and a change waits
//! until the accesses under way are done. So when `unmap` returns, nothing reaches the memory any more.
//! A file that is announced in many pieces (guest RAM around its holes) is mapped once. What nobody reaches any more is unmapped and
//! closed by the [`reaper`], where there is one: freeing a guest's RAM takes seconds.
//!
//! An access may cross from one range into an adjacent one. It faults at the first byte that is not mapped,
//! not reachable, or read-only; what lies before has been copied by then, as hardware does it.

mod files;
#[cfg(test)]
mod tests;

use super::mapping::{Mapping, MemoryError};
use super::{DmaError, DmaMapping};
use crate::addr::PAGE_SIZE;
use crate::reaper;
use files::FileTable;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Ranges that one function takes: the number that QEMU's client allows a server to ask for.
pub const MAX_MAPPINGS: usize = 65535;

/// Why an address could not be accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Nothing is mapped there.
    NotMapped,
    /// The range was announced without memory behind it.
    Unreachable,
    /// A write to a range that the device may only read.
    ReadOnly,
}

/// An access that failed, at its first bad byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("DMA at {address:#x} faults: {kind:?}")]
pub struct DmaFault {
    /// Bus address.
    pub address: u64,
    /// Why.
    pub kind: FaultKind,
}

/// One announced range, as others may list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaRange {
    /// First bus address.
    pub iova: u64,
    /// Bytes.
    pub size: u64,
    /// True when the device may write.
    pub writable: bool,
    /// True when there is memory behind it.
    pub reachable: bool,
}

/// One range; its first address is its key.
#[derive(Debug)]
struct Entry {
    /// Last bus address (a range may end at 2^64).
    last: u64,
    writable: bool,
    /// Memory, and the offset in it of the first byte.
    memory: Option<(Arc<Mapping>, u64)>,
}

#[derive(Debug)]
struct Table {
    entries: BTreeMap<u64, Entry>,
    files: FileTable,
}

/// What a piece of an access is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    FromMemory,
    ToMemory,
}

/// The memory that a function reaches by DMA. Every method may be called from any thread.
#[derive(Debug)]
pub struct DmaSpace {
    table: RwLock<Table>,
}

impl Default for DmaSpace {
    fn default() -> Self {
        Self::new()
    }
}

impl DmaSpace {
    /// Nothing reachable.
    pub fn new() -> Self {
        Self::with_file_limit(files::MAX_FILES)
    }

    /// Nothing reachable, and at most `files` different files (or pieces of files that cannot be mapped
    /// whole) at a time.
    pub fn with_file_limit(files: usize) -> Self {
        let table = Table { entries: BTreeMap::new(), files: FileTable::new(files) };
        Self { table: RwLock::new(table) }
    }

    fn shared(&self) -> RwLockReadGuard<'_, Table> {
        // A panic elsewhere leaves the table consistent: every change is complete before anything can fail.
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a range reachable.
    ///
    /// # Errors
    /// The range is empty, unaligned, wraps or overlaps; there are too many; the file is smaller than claimed
    /// or cannot be mapped. Nothing changed then.
    pub fn map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        let DmaMapping { iova, size, writable, backing } = mapping;
        let last = last_address(iova, size)?;
        let mut table = self.exclusive();
        if table.entries.len() >= MAX_MAPPINGS {
            return Err(DmaError::TooMany(MAX_MAPPINGS));
        }
        if table.entries.range(..=last).next_back().is_some_and(|(_, entry)| entry.last >= iova) {
            return Err(DmaError::Overlap { iova, size });
        }
        let memory = match backing {
            None => None,
            Some(backing) => {
                let refuse = |error| DmaError::Backing { iova, size, source: std::io::Error::other(error) };
                let memory = table.files.map(&backing, size, writable).map_err(refuse);
                reaper::give_up(backing);
                Some(memory?)
            }
        };
        table.entries.insert(iova, Entry { last, writable, memory });
        Ok(())
    }

    /// Takes one or several whole ranges away. When it returns, no access reaches them any more.
    ///
    /// # Errors
    /// A range would be split, or none lies there; nothing changed then.
    pub fn unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        let last = last_address(iova, size)?;
        let split = DmaError::Invalid { iova, size, why: "it would split a mapping" };
        let mut table = self.exclusive();
        let before = table.entries.range(..iova).next_back();
        if before.is_some_and(|(_, entry)| entry.last >= iova) {
            return Err(split);
        }
        let inside: Vec<u64> = table.entries.range(iova..=last).map(|(&first, _)| first).collect();
        let Some(highest) = inside.last() else { return Err(DmaError::NotMapped { iova, size }) };
        if table.entries.get(highest).is_some_and(|entry| entry.last > last) {
            return Err(split);
        }
        let gone: Vec<Option<Entry>> = inside.iter().map(|first| table.entries.remove(first)).collect();
        reaper::give_up(gone);
        table.files.forget_unused();
        Ok(())
    }

    /// Takes every range away.
    pub fn unmap_all(&self) {
        let mut table = self.exclusive();
        reaper::give_up(std::mem::take(&mut table.entries));
        table.files.forget_unused();
    }

    /// The ranges, by address.
    pub fn ranges(&self) -> Vec<DmaRange> {
        let range = |(&iova, entry): (&u64, &Entry)| DmaRange {
            iova,
            size: (entry.last - iova).saturating_add(1),
            writable: entry.writable,
            reachable: entry.memory.is_some(),
        };
        self.shared().entries.iter().map(range).collect()
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.shared().entries.len()
    }

    /// True when nothing is reachable.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when every byte of `[address, address + size)` can be read.
    pub fn contains(&self, address: u64, size: u64) -> bool {
        self.shared().pieces(address, size, Direction::FromMemory, |_, _, _| Ok(())).is_ok()
    }

    /// Copies out of memory.
    ///
    /// # Errors
    /// The first byte that cannot be read.
    pub fn read(&self, address: u64, data: &mut [u8]) -> Result<(), DmaFault> {
        let mut rest = data;
        self.shared().pieces(address, rest.len() as u64, Direction::FromMemory, |memory, offset, size| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(to_index(size));
            rest = later;
            memory.read(offset, now)
        })
    }

    /// Copies into memory.
    ///
    /// # Errors
    /// The first byte that cannot be written; what lies before has been.
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), DmaFault> {
        let mut rest = data;
        self.shared().pieces(address, rest.len() as u64, Direction::ToMemory, |memory, offset, size| {
            let (now, later) = rest.split_at(to_index(size));
            rest = later;
            memory.write(offset, now)
        })
    }

    /// Reads a little-endian 32-bit value.
    ///
    /// # Errors
    /// The first byte that cannot be read.
    pub fn read_u32(&self, address: u64) -> Result<u32, DmaFault> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Writes a little-endian 32-bit value.
    ///
    /// # Errors
    /// The first byte that cannot be written.
    pub fn write_u32(&self, address: u64, value: u32) -> Result<(), DmaFault> {
        self.write(address, &value.to_le_bytes())
    }

    /// Reads a little-endian 64-bit value.
    ///
    /// # Errors
    /// The first byte that cannot be read.
    pub fn read_u64(&self, address: u64) -> Result<u64, DmaFault> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes a little-endian 64-bit value.
    ///
    /// # Errors
    /// The first byte that cannot be written.
    pub fn write_u64(&self, address: u64, value: u64) -> Result<(), DmaFault> {
        self.write(address, &value.to_le_bytes())
    }

    /// Sets `size` bytes to `byte`.
    ///
    /// # Errors
    /// The first byte that cannot be written; what lies before has been.
    pub fn fill(&self, address: u64, size: u64, byte: u8) -> Result<(), DmaFault> {
        self.shared().pieces(address, size, Direction::ToMemory, |memory, offset, size| {
            memory.fill(offset, size, byte)
        })
    }

    /// Copies `size` bytes from memory into `target`, without a buffer between.
    ///
    /// # Errors
    /// The first byte that cannot be read, or, as a fault at `address`, a target range that `target` does not
    /// have.
    pub fn copy_to_mapping(
        &self,
        address: u64,
        target: &Mapping,
        target_offset: u64,
        size: u64,
    ) -> Result<(), DmaFault> {
        let mut done = 0u64;
        self.shared().pieces(address, size, Direction::FromMemory, |memory, offset, size| {
            memory.copy_to(offset, target, target_offset.saturating_add(done), size)?;
            done += size;
            Ok(())
        })
    }

    /// Copies `size` bytes from `source` into memory, without a buffer between.
    ///
    /// # Errors
    /// The first byte that cannot be written, or, as a fault at `address`, a source range that `source` does
    /// not have.
    pub fn copy_from_mapping(
        &self,
        address: u64,
        source: &Mapping,
        source_offset: u64,
        size: u64,
    ) -> Result<(), DmaFault> {
        let mut done = 0u64;
        self.shared().pieces(address, size, Direction::ToMemory, |memory, offset, size| {
            source.copy_to(source_offset.saturating_add(done), memory, offset, size)?;
            done += size;
            Ok(())
        })
    }

    /// Copies `size` bytes from one place of memory to another. Ranges that overlap across a border between
    /// mappings are copied piece by piece from the front.
    ///
    /// # Errors
    /// The first byte that cannot be read or written.
    pub fn copy(&self, from: u64, to: u64, size: u64) -> Result<(), DmaFault> {
        let table = self.shared();
        let mut fault = Ok(());
        let mut done = 0u64;
        let walked = table.pieces(from, size, Direction::FromMemory, |memory, offset, size| {
            let mut copied = 0u64;
            let target = to.wrapping_add(done);
            fault = table.pieces(target, size, Direction::ToMemory, |target, target_offset, size| {
                memory.copy_to(offset.saturating_add(copied), target, target_offset, size)?;
                copied += size;
                Ok(())
            });
            done += size;
            // A fault of the target ends the walk over the source too.
            fault.map_err(|fault| MemoryError::ReadOnly { offset: fault.address })
        });
        fault.and(walked)
    }
}

impl Table {
    /// Calls `each` with memory, offset and size for every piece of `[address, address + size)`, in order.
    fn pieces(
        &self,
        address: u64,
        size: u64,
        direction: Direction,
        mut each: impl FnMut(&Mapping, u64, u64) -> Result<(), MemoryError>,
    ) -> Result<(), DmaFault> {
        let mut at = address;
        let mut left = size;
        while left > 0 {
            let fault = |kind| DmaFault { address: at, kind };
            let (&first, entry) = self
                .entries
                .range(..=at)
                .next_back()
                .filter(|(_, entry)| entry.last >= at)
                .ok_or(fault(FaultKind::NotMapped))?;
            if direction == Direction::ToMemory && !entry.writable {
                return Err(fault(FaultKind::ReadOnly));
            }
            let (memory, base) = entry.memory.as_ref().ok_or(fault(FaultKind::Unreachable))?;
            let size = left.min((entry.last - at).saturating_add(1));
            let offset = base.checked_add(at - first).ok_or(fault(FaultKind::Unreachable))?;
            each(memory, offset, size).map_err(|_| fault(FaultKind::Unreachable))?;
            left -= size;
            at = match at.checked_add(size) {
                Some(next) => next,
                None if left == 0 => break,
                // The address space ends here.
                None => return Err(DmaFault { address: u64::MAX, kind: FaultKind::NotMapped }),
            };
        }
        Ok(())
    }
}

/// CAST: pieces of a slice are no longer than the slice.
fn to_index(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// Last address of a range, which must be made of whole pages and may end at 2^64.
fn last_address(iova: u64, size: u64) -> Result<u64, DmaError> {
    let invalid = |why| DmaError::Invalid { iova, size, why };
    if size == 0 || !size.is_multiple_of(PAGE_SIZE) || !iova.is_multiple_of(PAGE_SIZE) {
        return Err(invalid("address and size must be multiples of 4096, and the size not 0"));
    }
    iova.checked_add(size - 1).ok_or(invalid("it wraps"))
}
