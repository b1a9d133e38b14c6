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
//!
//! An access may cross from one range into an adjacent one. It faults at the first byte that is not mapped,
//! not reachable, or read-only; what lies before has been copied by then, as hardware does it.

mod backing;
mod files;
mod owner;
#[cfg(test)]
mod tests;

use super::mapping::{Mapping, MemoryError};
use super::{DmaError, DmaMapping};
pub use backing::DmaBacking;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_host::reaper;
use owner::Range;
pub use owner::{MAX_FILES, MemoryOwner};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Limit of ranges of one owner: the number that QEMU's client allows a server to ask for.
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

/// Ranges by their first address.
type Table = BTreeMap<u64, Arc<Range>>;

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
    fn find(&self, at: u64) -> Option<Arc<Range>> {
        let table = self.shared();
        let (_, range) = table.range(..=at).next_back()?;
        (range.last >= at).then(|| Arc::clone(range))
    }

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

/// Puts a range into a table, as one with those that it continues. Returns what took another shape.
fn insert(table: &mut Table, range: Range) -> Result<Vec<Arc<Range>>, DmaError> {
    let before = table.range(..=range.last).next_back().map(|(_, before)| Arc::clone(before));
    if before.as_ref().is_some_and(|before| before.last >= range.first) {
        return Err(DmaError::Overlap { iova: range.first, size: range.size() });
    }
    let after = range.last.checked_add(1).and_then(|next| table.get(&next)).map(Arc::clone);
    let mut replaced = Vec::new();
    let mut whole = range;
    if let Some(before) = before
        && let Some(joined) = before.joined(&whole)
    {
        whole = joined;
        replaced.push(before);
    }
    if let Some(after) = after
        && let Some(joined) = whole.joined(&after)
    {
        whole = joined;
        replaced.push(after);
    }
    let owner = whole.owner.clone();
    if replaced.is_empty() && owner.ranges() >= owner.most_ranges() {
        return Err(DmaError::TooMany(owner.most_ranges()));
    }
    for range in &replaced {
        table.remove(&range.first);
    }
    owner.note_ranges(replaced.len(), 1);
    table.insert(whole.first, Arc::new(whole));
    Ok(replaced)
}

/// Takes addresses out of a table. Returns the removed ranges.
fn cut(table: &mut Table, first: u64, last: u64) -> Vec<Arc<Range>> {
    let below = table.range(..first).next_back().filter(|(_, range)| range.last >= first);
    let inside = below.into_iter().chain(table.range(first..=last));
    let gone: Vec<_> = inside.map(|(_, range)| Arc::clone(range)).collect();
    for range in &gone {
        table.remove(&range.first);
        let left = (range.first < first).then(|| range.part(range.first, first - 1));
        let right = (range.last > last).then(|| range.part(last + 1, range.last));
        let parts: Vec<_> = left.into_iter().chain(right).collect();
        // A client that keeps splitting ranges must come to a limit.
        let room = range.owner.ranges() < MAX_MAPPINGS;
        range.owner.note_ranges(1, if room { parts.len() } else { 0 });
        if room {
            table.extend(parts.into_iter().map(|part| (part.first, Arc::new(part))));
        }
    }
    gone
}

/// Hands ranges to their owners.
fn retire(gone: Vec<Arc<Range>>) {
    let mut gone = gone.into_iter().peekable();
    while let Some(range) = gone.next() {
        let owner = range.owner.clone();
        let mut one_owners = vec![range];
        while let Some(range) = gone.next_if(|range| range.owner.is(&owner)) {
            one_owners.push(range);
        }
        owner.retire(one_owners);
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
