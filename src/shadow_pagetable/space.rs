//! One address space of a guest: its tree of tables, followed through every synchronisation.

use super::GuestMemory;
use super::budget::{Budget, WalkRefusal};
use super::error::SyncError;
use super::format::{Leaf, MmuFormat, SubTable, TableKind};
use super::runs::{MapRun, RunCount, RunSink, Runs};
use super::table::{Table, Walk};
use gpuvmk_chip::addr::{GpuVa, PAGE_SIZE};
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// Result of a synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SyncReport {
    /// New and changed mappings.
    pub mapped: RunCount,
    /// Removed mappings.
    pub unmapped: RunCount,
    /// Pages left unmapped because their target is not in the guest's memory.
    pub withheld: u64,
    /// Pages of tables that are not in the guest's memory, and read as empty.
    pub unreadable: u64,
    /// Pages of tables compared.
    pub table_pages: u64,
}

/// A guest's address space. Drop it with [`ShadowSpace::release`], so that the budget is returned.
#[derive(Debug)]
pub struct ShadowSpace<F> {
    format: F,
    root: Table,
    /// Virtual addresses from here on are ignored.
    end: u64,
}

impl<F: MmuFormat> ShadowSpace<F> {
    /// A space whose shadow is empty, with its root table at `root`.
    ///
    /// # Errors
    /// No table is left in the budget.
    pub fn new(format: F, root: PhysicalAddress, budget: &mut Budget) -> Result<Self, WalkRefusal> {
        Self::of_table(format, format.root(), root, u64::MAX, budget)
    }

    /// A space whose shadow is empty, below a table of `kind` that covers virtual addresses from 0 on. Tables
    /// are followed only for addresses below `end`.
    ///
    /// # Errors
    /// No table is left in the budget.
    pub fn of_table(
        format: F,
        kind: TableKind,
        address: PhysicalAddress,
        end: u64,
        budget: &mut Budget,
    ) -> Result<Self, WalkRefusal> {
        let root = Table::new(SubTable { kind, address }, 0, format.shape(kind), budget)?;
        Ok(Self { format, root, end })
    }

    /// Reads the guest's tables and emits what changed since the last time.
    ///
    /// # Errors
    /// The budget is used up, or the sink's error.
    pub fn sync<M: GuestMemory, S: RunSink>(
        &mut self,
        memory: &M,
        budget: &mut Budget,
        sink: &mut S,
    ) -> Result<SyncReport, SyncError<S::Error>> {
        let (format, end) = (self.format, self.end);
        report(format, memory, budget, sink, |walk| self.root.sync(walk, end))
    }

    /// Unmaps every page that touches `[start, start + size)` of system memory; a later synchronisation maps
    /// it again if the guest's tables still say so and the memory is back.
    ///
    /// # Errors
    /// The sink's.
    pub fn evict_system_memory<M: GuestMemory, S: RunSink>(
        &mut self,
        start: u64,
        size: u64,
        memory: &M,
        budget: &mut Budget,
        sink: &mut S,
    ) -> Result<SyncReport, SyncError<S::Error>> {
        let format = self.format;
        report(format, memory, budget, sink, |walk| {
            self.root.evict(walk, &|page| page.is_in_system_memory(start, size))
        })
    }

    /// Calls `visit` for the parts of pages that are mapped to `[start, start + size)` of VRAM, as runs of 4
    /// KiB pages.
    pub fn visit_vram(&self, start: u64, size: u64, visit: &mut dyn FnMut(MapRun)) {
        let end = start.saturating_add(size);
        self.root.visit(self.format, &mut |va, bytes, leaf: Leaf| {
            let PhysicalAddress { aperture, address } = leaf.target;
            let (from, to) = (address.max(start), address.saturating_add(bytes).min(end));
            if aperture != Aperture::Vram || from >= to {
                return;
            }
            visit(MapRun {
                va: GpuVa(va.saturating_add(from - address)),
                pages: u32::try_from((to - from) / PAGE_SIZE).unwrap_or(u32::MAX),
                page_shift: 12,
                target: PhysicalAddress { address: from, ..leaf.target },
                read_only: leaf.read_only,
                kind: leaf.kind,
            });
        });
    }

    /// Unmaps everything.
    ///
    /// # Errors
    /// The sink's.
    pub fn clear<M: GuestMemory, S: RunSink>(
        &mut self,
        memory: &M,
        budget: &mut Budget,
        sink: &mut S,
    ) -> Result<SyncReport, SyncError<S::Error>> {
        let format = self.format;
        report(format, memory, budget, sink, |walk| self.root.evict(walk, &|_| true))
    }

    /// Drops the space and what it used of the budget.
    pub fn release(mut self, budget: &mut Budget) {
        self.root.forget(budget);
    }
}

fn report<F: MmuFormat, M: GuestMemory, S: RunSink>(
    format: F,
    memory: &M,
    budget: &mut Budget,
    sink: &mut S,
    work: impl FnOnce(&mut Walk<'_, '_, F, M, S>) -> Result<(), SyncError<S::Error>>,
) -> Result<SyncReport, SyncError<S::Error>> {
    let runs = Runs::new(sink);
    let buffer = budget.take_place();
    let mut walk = Walk { format, memory, budget, runs, withheld: 0, unreadable: 0, pieces: 0, buffer };
    let worked = work(&mut walk);
    let Walk { budget, runs, withheld, unreadable, pieces, buffer, .. } = walk;
    budget.give_place(buffer);
    worked?;
    let (unmapped, mapped) = runs.finish().map_err(SyncError::Sink)?;
    Ok(SyncReport { mapped, unmapped, withheld, unreadable, table_pages: pieces })
}
