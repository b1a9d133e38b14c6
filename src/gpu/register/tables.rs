//! A page table or directory of ours: entries in RAM, and the same where hardware walks them.

use std::ops::Range;

use super::memory::HostMemory;
use crate::GpuError;
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::gf100::mmu::ENTRY_SIZE;

/// A table that hardware walks.
pub(super) struct Table {
    address: u64,
    physical: PhysicalAddress,
    entries: Box<[u64]>,
    valid: u64,
    /// The next entry to clear.
    clears_from: u64,
}

impl Table {
    /// An empty table of `entries` entries.
    pub(super) fn new(memory: &mut HostMemory, entries: u64) -> Result<Self, GpuError> {
        let address = memory.take(bytes(entries), PAGE_SIZE)?;
        let count = usize::try_from(entries).unwrap_or(0);
        let physical = memory.physical(address);
        Ok(Self { address, physical, entries: vec![0; count].into_boxed_slice(), valid: 0, clears_from: 0 })
    }

    /// Where hardware finds it.
    pub(super) fn physical(&self) -> PhysicalAddress {
        self.physical
    }

    /// Memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        bytes(self.entries.len() as u64)
    }

    /// Entries that are not 0.
    pub(super) fn valid(&self) -> u64 {
        self.valid
    }

    /// How many there are.
    pub(super) fn len(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Some of the entries with their index, those that are 0 left out.
    pub(super) fn entries_in(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(self.entries.len());
        let some = self.entries.get(place(range.start)..place(range.end)).unwrap_or_default();
        some.iter().zip(range.start..).filter(|(raw, _)| **raw != 0).map(|(raw, index)| (index, *raw))
    }

    /// Changes `[first, first + values)` to `value` of each index.
    pub(super) fn set_run(
        &mut self,
        memory: &HostMemory,
        first: u64,
        count: u64,
        value: impl Fn(u64) -> u64,
    ) -> Result<(), GpuError> {
        let start = usize::try_from(first).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(count).unwrap_or(usize::MAX));
        let Some(run) = self.entries.get_mut(start..end) else {
            return Err(GpuError::Invalid(format!("Entries {first}+{count} leave their table")));
        };
        let mut bytes = Vec::with_capacity(run.len().saturating_mul(8));
        for (entry, index) in run.iter_mut().zip(0..) {
            let new = value(index);
            self.valid =
                self.valid.saturating_add(u64::from(new != 0)).saturating_sub(u64::from(*entry != 0));
            *entry = new;
            bytes.extend_from_slice(&new.to_le_bytes());
        }
        memory.write(self.address.saturating_add(first.saturating_mul(ENTRY_SIZE)), &bytes)
    }

    /// Changes so many entries to 0, those that come after those of the last call; all of the table, one call
    /// after the other.
    pub(super) fn clear_some(&mut self, memory: &HostMemory, most: u64) -> Result<(), GpuError> {
        let all = self.len();
        let first = if self.clears_from < all { self.clears_from } else { 0 };
        let count = most.min(all.saturating_sub(first));
        self.clears_from = first.saturating_add(count);
        self.set_run(memory, first, count, |_| 0)
    }

    /// Gives the memory back.
    pub(super) fn release(self, memory: &mut HostMemory) {
        memory.give_back(self.address, self.bytes());
    }
}

fn bytes(entries: u64) -> u64 {
    entries.saturating_mul(ENTRY_SIZE).next_multiple_of(PAGE_SIZE)
}
