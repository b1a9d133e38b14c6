//! One address space of a guest: its tree of tables, followed through every synchronisation.

use super::GuestMemory;
use super::budget::{Budget, WalkRefusal};
use super::format::{MmuFormat, SubTable};
use super::runs::{RunCount, RunSink, Runs};
use super::table::{Table, Walk};
use crate::chip::PhysicalAddress;

/// Why a synchronisation ended early. The space is then out of step with its shadow and may only be dropped.
#[derive(Debug, thiserror::Error)]
pub enum SyncError<E> {
    /// The tables ask for more than a VM may have.
    #[error("The walk of the guest's GPU page tables was given up")]
    Walk(#[from] WalkRefusal),
    /// The receiver of the changes failed.
    #[error("The shadow could not be changed")]
    Sink(#[source] E),
}

/// What a synchronisation found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SyncReport {
    /// What was mapped anew or differently.
    pub mapped: RunCount,
    /// What was unmapped.
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
}

impl<F: MmuFormat> ShadowSpace<F> {
    /// A space whose shadow is empty, with its root table at `root`.
    ///
    /// # Errors
    /// No table is left in the budget.
    pub fn new(format: F, root: PhysicalAddress, budget: &mut Budget) -> Result<Self, WalkRefusal> {
        let place = SubTable { kind: format.root(), address: root };
        let root = Table::new(place, 0, format.shape(place.kind), budget)?;
        Ok(Self { format, root })
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
        let format = self.format;
        report(format, memory, budget, sink, |walk| self.root.sync(walk))
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
