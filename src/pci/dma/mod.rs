//! Memory that a function may reach by DMA: the ranges announced to it, and copies in and out of them.
//!
//! The table of ranges is read at every access and changed rarely. Its lock is held while a range is looked
//! up or changed, never while memory is accessed: an access may have to wait for a page, and must not hold up
//! other VMs meanwhile. So an access keeps a reference to the range that it found. To remove a range is to
//! take it out of the table first, and then to wait until its references are gone, or to check for that later
//! ([`MemoryOwner`]).
//!
//! A file that is announced in many pieces (guest RAM around its holes) is mapped once, and adjacent ranges
//! of one file are joined. Unused mappings are unmapped and closed by the [`reaper`], where there is one:
//! freeing a guest's RAM takes seconds.

mod access;
mod backing;
mod files;
mod owner;
mod table;
#[cfg(test)]
mod tests;

use super::{DmaError, DmaMapping};
pub use backing::DmaBacking;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_host::reaper;
use owner::Range;
pub use owner::{MAX_FILES, MemoryOwner};
use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use table::MAX_MAPPINGS;
use table::{Table, cut, insert, retire};

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
    /// Bus address of the access.
    pub address: u64,
    /// Why the access faulted.
    pub kind: FaultKind,
}

/// One announced range, as others may list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaRange {
    /// First bus address.
    pub iova: u64,
    /// Size in bytes.
    pub size: u64,
    /// True when the device may write.
    pub writable: bool,
    /// True when there is memory behind it.
    pub reachable: bool,
}

/// The direction of an access.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    FromMemory,
    ToMemory,
}

/// The memory that a function reaches by DMA. Every method may be called from any thread.
#[derive(Debug)]
pub struct DmaSpace {
    table: RwLock<Table>,
    /// The owner of mappings that name none.
    own: MemoryOwner,
    /// Blocks of addresses that [`DmaSpace::populate`] has looked at.
    populated: Mutex<BTreeSet<u64>>,
}

/// Bytes that are populated together, and that a physical GPU holds in place together.
pub const BLOCK: u64 = 2 << 20;

impl Default for DmaSpace {
    fn default() -> Self {
        Self::new()
    }
}

impl DmaSpace {
    /// A space in which no address is reachable.
    pub fn new() -> Self {
        Self::with_owner(MemoryOwner::new(MAX_MAPPINGS))
    }

    /// Nothing reachable; memory is `own`'s where its owner is not named.
    pub fn with_owner(own: MemoryOwner) -> Self {
        Self { table: RwLock::new(Table::new()), own, populated: Mutex::default() }
    }

    /// Whose memory it is where its owner is not named.
    pub fn owner(&self) -> &MemoryOwner {
        &self.own
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
    /// The range is empty, unaligned, wraps or overlaps; there are too many; the file is smaller than
    /// claimed, no memory, or not open for what is claimed, or cannot be mapped. Nothing changed then.
    pub fn map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        let DmaMapping { iova, size, writable, backing, owner } = mapping;
        let last = last_address(iova, size)?;
        let owner = owner.unwrap_or_else(|| self.own.clone());
        let memory = match backing {
            None => None,
            Some(backing) => {
                let refuse = |error| DmaError::Backing { iova, size, source: io::Error::other(error) };
                let memory = owner.memory(&backing, size, writable).map_err(refuse);
                reaper::give_up(backing);
                Some(memory?)
            }
        };
        let range = Range { first: iova, last, writable, memory, owner: owner.clone() };
        let replaced = insert(&mut self.exclusive(), range)?;
        owner.retire(replaced);
        Ok(())
    }

    /// Removes `[iova, iova + size)`: whole ranges and parts of ranges. Unmapped addresses are no error.
    /// After the return no new access reaches the memory. Accesses under way have ended too, unless the owner
    /// defers ([`MemoryOwner::is_settled`] tells).
    ///
    /// # Errors
    /// The range is empty, unaligned or wraps; nothing changed then.
    pub fn unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        let last = last_address(iova, size)?;
        let gone = cut(&mut self.exclusive(), iova, last);
        self.known_blocks().retain(|block| !(iova / BLOCK..=last / BLOCK).contains(block));
        retire(gone);
        Ok(())
    }

    /// Takes every range away.
    pub fn unmap_all(&self) {
        let all = std::mem::take(&mut *self.exclusive());
        self.forget_populated();
        let gone: Vec<_> = all.into_values().collect();
        for range in &gone {
            range.owner.note_ranges(1, 0);
        }
        retire(gone);
    }

    fn known_blocks(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.populated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allocates the memory of `[address, address + size)` now, charged to this process. Otherwise the
    /// process that first touches a page is charged for it. A block of 2 MiB is done once, and with it what
    /// its file has in the same blocks: a physical GPU's driver holds these in place as a whole.
    ///
    /// # Errors
    /// There is no memory.
    pub fn populate(&self, address: u64, size: u64) -> io::Result<()> {
        let end = address.saturating_add(size);
        let mut at = address;
        while at < end {
            let block = at / BLOCK;
            let block_end = block.saturating_add(1).saturating_mul(BLOCK);
            if self.known_blocks().contains(&block) {
                at = block_end;
                continue;
            }
            let Some(range) = self.find(at) else {
                at = (at / PAGE_SIZE).saturating_add(1).saturating_mul(PAGE_SIZE);
                continue;
            };
            let (first, last) = (range.first.max(block * BLOCK), range.last.min(block_end.saturating_sub(1)));
            let size = (last - first).saturating_add(1);
            if let Some((memory, offset)) = &range.memory {
                let from = offset.saturating_add(first - range.first);
                let to = from.saturating_add(size).next_multiple_of(BLOCK).min(memory.size());
                let from = from / BLOCK * BLOCK;
                memory.populate(from, to.saturating_sub(from))?;
            }
            if size == BLOCK {
                self.known_blocks().insert(block);
            }
            at = last.saturating_add(1);
        }
        Ok(())
    }

    /// Has [`DmaSpace::populate`] look at everything again: a machine gives pages of its guest's memory back
    /// to its host at times.
    pub fn forget_populated(&self) {
        self.known_blocks().clear();
    }

    /// The ranges, by address.
    pub fn ranges(&self) -> Vec<DmaRange> {
        let range = |range: &Arc<Range>| DmaRange {
            iova: range.first,
            size: range.size(),
            writable: range.writable,
            reachable: range.memory.is_some(),
        };
        self.shared().values().map(range).collect()
    }

    /// Number of ranges.
    pub fn len(&self) -> usize {
        self.shared().len()
    }

    /// True when nothing is reachable.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True when every byte of `[address, address + size)` can be read.
    pub fn contains(&self, address: u64, size: u64) -> bool {
        self.pieces(address, size, Direction::FromMemory, |_, _, _| Ok(())).is_ok()
    }
}

/// Last address of a range, which must be made of whole pages and may end at 2^64.
fn last_address(iova: u64, size: u64) -> Result<u64, DmaError> {
    let invalid = |why| DmaError::Invalid { iova, size, why };
    if size == 0 || !size.is_multiple_of(PAGE_SIZE) || !iova.is_multiple_of(PAGE_SIZE) {
        return Err(invalid("address and size must be multiples of 4096, and the size not 0"));
    }
    iova.checked_add(size - 1).ok_or(invalid("it wraps"))
}
