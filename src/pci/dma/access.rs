//! Copies in and out of announced memory.
//!
//! An access may cross from one range into an adjacent one. It faults at the first byte that is not mapped,
//! not reachable, or read-only; what lies before has been copied by then, as hardware does it.

use std::sync::Arc;

use super::owner::Range;
use super::{Direction, DmaFault, DmaSpace, FaultKind};
use crate::mapping::{Mapping, MemoryError};

impl DmaSpace {
    /// Copies out of memory.
    ///
    /// # Errors
    /// The first byte that cannot be read.
    pub fn read(&self, address: u64, data: &mut [u8]) -> Result<(), DmaFault> {
        let mut rest = data;
        self.pieces(address, rest.len() as u64, Direction::FromMemory, |memory, offset, size| {
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
        self.pieces(address, rest.len() as u64, Direction::ToMemory, |memory, offset, size| {
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

    /// Replaces a little-endian word in one step ([`Mapping::update_u32`]). Returns the word before.
    ///
    /// # Errors
    /// It cannot be written, or lies at no multiple of its size.
    pub fn update_u32(
        &self,
        address: u64,
        mut change: impl FnMut(u32) -> Option<u32>,
    ) -> Result<u32, DmaFault> {
        let mut before = 0;
        self.pieces(address, size_of::<u32>() as u64, Direction::ToMemory, |memory, offset, _| {
            before = memory.update_u32(offset, &mut change)?;
            Ok(())
        })?;
        Ok(before)
    }

    /// The same for a double word.
    ///
    /// # Errors
    /// As [`DmaSpace::update_u32`].
    pub fn update_u64(
        &self,
        address: u64,
        mut change: impl FnMut(u64) -> Option<u64>,
    ) -> Result<u64, DmaFault> {
        let mut before = 0;
        self.pieces(address, size_of::<u64>() as u64, Direction::ToMemory, |memory, offset, _| {
            before = memory.update_u64(offset, &mut change)?;
            Ok(())
        })?;
        Ok(before)
    }

    /// Sets `size` bytes to `byte`.
    ///
    /// # Errors
    /// The first byte that cannot be written; what lies before has been.
    pub fn fill(&self, address: u64, size: u64, byte: u8) -> Result<(), DmaFault> {
        self.pieces(address, size, Direction::ToMemory, |memory, offset, size| {
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
        self.pieces(address, size, Direction::FromMemory, |memory, offset, size| {
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
        self.pieces(address, size, Direction::ToMemory, |memory, offset, size| {
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
        let mut fault = Ok(());
        let mut done = 0u64;
        let walked = self.pieces(from, size, Direction::FromMemory, |memory, offset, size| {
            let mut copied = 0u64;
            let target = to.wrapping_add(done);
            fault = self.pieces(target, size, Direction::ToMemory, |target, target_offset, size| {
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

    /// The range that holds an address.
    pub(super) fn find(&self, at: u64) -> Option<Arc<Range>> {
        let table = self.shared();
        let (_, range) = table.range(..=at).next_back()?;
        (range.last >= at).then(|| Arc::clone(range))
    }

    /// Calls `each` with memory, offset and size for every piece of `[address, address + size)`, in order.
    pub(super) fn pieces(
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
            let range = self.find(at).ok_or(fault(FaultKind::NotMapped))?;
            if direction == Direction::ToMemory && !range.writable {
                return Err(fault(FaultKind::ReadOnly));
            }
            let (memory, base) = range.memory.as_ref().ok_or(fault(FaultKind::Unreachable))?;
            let size = left.min((range.last - at).saturating_add(1));
            let offset = base.checked_add(at - range.first).ok_or(fault(FaultKind::Unreachable))?;
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
