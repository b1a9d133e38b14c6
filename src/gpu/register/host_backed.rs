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
//! Each partition is a file, made when it is shared. A granule is mapped for the card's DMA when a page
//! table, or a channel's USERD, first names it, and unmapped when it is zeroed. A bus address is 4 GiB plus
//! the address in VRAM, so that runs of pages stay runs.

mod memory;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::memory::iova;
pub(super) use self::memory::{GRANULE, HostBacked};
use crate::{GpuError, HostMapping, HostTarget};
use gpuvmk_chip::addr::{HostVram, Iova};
use gpuvmk_pci::{PciFunction, SharedMemory};

/// Tenants' VRAM in the host's memory: one file for each partition, by its first byte in VRAM.
pub(super) struct HostBackedVram {
    function: Arc<dyn PciFunction>,
    /// Tenants' part of VRAM.
    start: u64,
    end: u64,
    host_backed: BTreeMap<u64, HostBacked>,
}

/// A part of a partition: the partition's first byte in VRAM, and the range in it.
type Part = (u64, u64, u64);

impl HostBackedVram {
    /// For tenants' VRAM `[start, end)`, whole granules.
    pub(super) fn new(function: Arc<dyn PciFunction>, start: u64, end: u64) -> Self {
        Self { function, start, end, host_backed: BTreeMap::new() }
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
    pub(super) fn share(&mut self, start: HostVram, size: u64) -> Result<Vec<SharedMemory>, GpuError> {
        let end = start.0.checked_add(size).filter(|end| *end <= self.end && self.hold(start));
        let whole = start.is_aligned(GRANULE) && size.is_multiple_of(GRANULE) && size > 0;
        let Some(end) = end.filter(|_| whole) else {
            return Err(GpuError::Invalid(format!("{size:#x} bytes at {start} are no partition")));
        };
        for (old, ..) in self.parts(start.0, end) {
            if let Some(memory) = self.host_backed.get_mut(&old) {
                memory.forget(self.function.as_ref(), 0, u64::MAX)?;
            }
            self.host_backed.remove(&old);
        }
        let memory = HostBacked::new(start.0, size)?;
        let shared = memory.shared()?;
        self.host_backed.insert(start.0, memory);
        Ok(vec![shared])
    }

    /// Drops the memory of partitions that end in a range. The card no longer reaches it, and the next
    /// partition there gets fresh memory.
    pub(super) fn release(&mut self, start: HostVram, size: u64) -> Result<(), GpuError> {
        let end = start.0.saturating_add(size);
        for (first, _, to) in self.parts(start.0, end) {
            if let Some(memory) = self.host_backed.get_mut(&first)
                && to == memory.size()
            {
                memory.forget(self.function.as_ref(), 0, u64::MAX)?;
                self.host_backed.remove(&first);
            }
        }
        Ok(())
    }

    /// Fills a range with zeros, and gives its pages back to the host's kernel where no engine needs them at
    /// their place.
    pub(super) fn scrub(&mut self, start: HostVram, size: u64) -> Result<(), GpuError> {
        let end = start.0.saturating_add(size);
        for (first, from, to) in self.parts(start.0, end) {
            if let Some(memory) = self.host_backed.get_mut(&first) {
                memory.zero(self.function.as_ref(), from, to)?;
            }
        }
        Ok(())
    }

    /// The mapping with a target that engines reach. The memory that it names is mapped for the card's DMA.
    pub(super) fn resolve(&mut self, mapping: &HostMapping) -> Result<HostMapping, GpuError> {
        let HostTarget::Vram(at) = mapping.target else { return Ok(*mapping) };
        if !self.hold(at) {
            return Ok(*mapping);
        }
        let size = u64::from(mapping.pages) << mapping.page_shift.min(30);
        let iova = self.reach(at, size)?;
        Ok(HostMapping { target: HostTarget::System { iova, coherent: true }, ..*mapping })
    }

    /// Lets the card reach a range; returns where.
    pub(super) fn reach(&mut self, at: HostVram, size: u64) -> Result<Iova, GpuError> {
        let end = at.0.saturating_add(size);
        let parts = self.parts(at.0, end);
        let covered: u64 = parts.iter().map(|(_, from, to)| to.saturating_sub(*from)).sum();
        if covered != size || size == 0 {
            return Err(GpuError::Invalid(format!("{size:#x} bytes at {at} are no tenant's memory")));
        }
        for (first, from, to) in parts {
            if let Some(memory) = self.host_backed.get_mut(&first) {
                memory.map_for_dma(self.function.as_ref(), from, to)?;
            }
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
