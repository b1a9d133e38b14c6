//! Tenants' VRAM on a card that cannot share its VRAM with processes: it is kept in the host's memory, and
//! engines reach it as system memory, through the IOMMU.
//!
//! So guests' page tables, instance blocks, rings and USERD are read and written at the speed of memory: not
//! one access of the card's. What it costs: engines reach tenants' VRAM over the bus, and what they reach is
//! locked in the host's memory.
//!
//! The driver's own page tables and instance blocks, which it writes often, are kept like that too
//! ([`super::memory`]).
//!
//! Each partition is a file, made when it is shared. The card is told of a granule when a page table, or a
//! channel's USERD, first names it, and reaches it no more before it is zeroed ([`super::reach`]). A bus
//! address is 4 GiB plus the address in VRAM, so that runs of pages stay runs.

mod memory;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::memory::iova;
pub(super) use self::memory::{GRANULE, HostBacked};
use super::reach::{Memory, PIECE, Reach};
use crate::budget::monotonic;
use crate::{Budget, GpuError, HostMapping, HostTarget, Progress};
use gpuvmk_chip::addr::{HostVram, Iova};
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::{DmaBacking, DmaMapping, SharedMemory};

// What goes back to the kernel as a whole is what the card is told of as a whole.
const _: () = assert!(GRANULE == PIECE);

/// Tenants' VRAM in the host's memory: one file for each partition, by its first byte in VRAM.
pub(super) struct HostBackedVram {
    /// What the card reaches of it, and of guests' memory.
    pub(super) reach: Reach,
    /// Tenants' part of VRAM.
    start: u64,
    end: u64,
    host_backed: OrderedMap<u64, HostBacked>,
}

/// How long to look for what a former partition left that the card does not reach.
const LEFT_OVER: Duration = Duration::from_micros(100);

/// A part of a partition: the partition's first byte in VRAM, and the range in it.
type Part = (u64, u64, u64);

impl HostBackedVram {
    /// For tenants' VRAM `[start, end)`, whole granules.
    pub(super) fn new(reach: Reach, start: u64, end: u64) -> Self {
        Self { reach, start, end, host_backed: OrderedMap::new() }
    }

    /// The first bus address behind them all, a multiple of 4 GiB.
    pub(super) fn first_iova_behind(&self) -> Iova {
        Iova(iova(self.end).0.next_multiple_of(1 << 32))
    }

    /// True if an address is tenants', and not the host's own VRAM, which is the card's.
    pub(super) fn hold(&self, at: HostVram) -> bool {
        (self.start..self.end).contains(&at.0)
    }

    /// Fresh memory for a partition. The memory that was at its place before is dropped.
    ///
    /// # Errors
    /// It is no partition, or the card still reaches what was there before: it was not dropped
    /// ([`Self::advance_drop`]). That is begun then, and goes on without the caller; ask again later.
    pub(super) fn share(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError> {
        let end = start.0.checked_add(size).filter(|end| *end <= self.end && self.hold(start));
        let whole = start.is_aligned(GRANULE) && size.is_multiple_of(GRANULE) && size > 0;
        let Some(end) = end.filter(|_| whole) else {
            return Err(GpuError::Invalid(format!("{size:#x} bytes at {start} are no partition")));
        };
        // Of whom had it before, all is gone already but for what nobody asked for: there is nothing to wait
        // for, and nothing is waited for.
        let mut budget = Budget::new(&monotonic(), LEFT_OVER);
        for (old, ..) in self.parts(start.0, end) {
            let size = self.host_backed.get(&old).map_or(0, HostBacked::size);
            if self.reach.advance_withdraw(iova(old), size, &mut budget)? != Progress::Done {
                let old = HostVram(old);
                return Err(GpuError::Invalid(format!(
                    "the memory at {old} is still being taken from the card"
                )));
            }
            self.host_backed.remove(&old);
        }
        let memory = HostBacked::new(start.0, size)?;
        let backing = Some(DmaBacking { fd: memory.shared()?.fd, offset: 0 });
        let all = DmaMapping { iova: iova(start.0).0, size, writable: true, backing, owner: None };
        self.reach.announce(all, Memory::Host)?;
        let shared = memory.shared()?;
        self.host_backed.insert(start.0, memory);
        Ok(vec![shared])
    }

    /// Drops the memory of partitions that end in a range, for as long as the budget lasts. The card no
    /// longer reaches it then, and the next partition there gets fresh memory.
    pub(super) fn advance_drop(
        &mut self,
        start: HostVram,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let end = start.0.saturating_add(size);
        for (first, _, to) in self.parts(start.0, end) {
            let size = self.host_backed.get(&first).map_or(0, HostBacked::size);
            if to == size {
                match self.reach.advance_withdraw(iova(first), size, budget)? {
                    Progress::Done => self.host_backed.remove(&first),
                    progress => return Ok(progress),
                };
            }
        }
        Ok(Progress::Done)
    }

    /// Fills a range with zeros. Whole granules are taken from the card, for as long as the budget lasts, and
    /// given back to the host's kernel.
    pub(super) fn advance_scrub(
        &mut self,
        start: HostVram,
        size: u64,
        budget: &mut Budget,
    ) -> Result<Progress, GpuError> {
        let end = start.0.saturating_add(size);
        for (first, from, to) in self.parts(start.0, end) {
            let Some(memory) = self.host_backed.get_mut(&first) else { continue };
            // Before: what the card knows is locked, and would stay as it is behind a hole.
            if let Some((inner, outer)) = memory::granules(from, to) {
                let at = iova(first.saturating_add(inner));
                match self.reach.advance_release(at, outer.saturating_sub(inner), budget)? {
                    Progress::Done => {}
                    progress => return Ok(progress),
                }
            }
            memory.zero(from, to)?;
        }
        Ok(Progress::Done)
    }

    /// The mapping with a target that engines reach. None while the card is being told of a part of it.
    pub(super) fn resolve(&mut self, mapping: &HostMapping) -> Result<Option<HostMapping>, GpuError> {
        let size = u64::from(mapping.pages) << mapping.page_shift.min(30);
        let (iova, coherent) = match mapping.target {
            HostTarget::System { iova, coherent } => (iova, coherent),
            HostTarget::Vram(at) if self.hold(at) => (self.place(at, size)?, true),
            HostTarget::Vram(_) => return Ok(Some(*mapping)),
        };
        let held = self.reach.hold(iova, size)?;
        Ok(held.then_some(HostMapping { target: HostTarget::System { iova, coherent }, ..*mapping }))
    }

    /// Where the card reaches a range; none while it is being told of it.
    pub(super) fn reach(&mut self, at: HostVram, size: u64) -> Result<Option<Iova>, GpuError> {
        let iova = self.place(at, size)?;
        Ok(self.reach.hold(iova, size)?.then_some(iova))
    }

    /// Where the card finds a range, once it was told of it.
    fn place(&self, at: HostVram, size: u64) -> Result<Iova, GpuError> {
        let parts = self.parts(at.0, at.0.saturating_add(size));
        let covered: u64 = parts.iter().map(|(_, from, to)| to.saturating_sub(*from)).sum();
        if covered != size || size == 0 {
            return Err(GpuError::Invalid(format!("{size:#x} bytes at {at} are no tenant's memory")));
        }
        Ok(iova(at.0))
    }

    /// Reads what a tenant or an engine wrote.
    pub(super) fn read_u32(&self, at: HostVram) -> Result<u32, GpuError> {
        let lost = || GpuError::Invalid(format!("{at} is no tenant's memory"));
        let (first, backed) = self.host_backed.range(..=at.0).next_back().ok_or_else(lost)?;
        backed.memory().read_u32(at.0.saturating_sub(*first)).map_err(|_| lost())
    }

    /// The parts of partitions in `[start, end)` of VRAM.
    fn parts(&self, start: u64, end: u64) -> Vec<Part> {
        let before = self.host_backed.range(..start).next_back();
        let within = self.host_backed.range(start..end.max(start));
        let parts = before.into_iter().chain(within).map(|(first, memory)| {
            let from = start.saturating_sub(*first);
            let to = end.saturating_sub(*first).min(memory.size());
            (*first, from, to)
        });
        parts.filter(|(_, from, to)| from < to).collect()
    }
}
