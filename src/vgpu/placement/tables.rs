//! Follows BAR3's mappings through the guest's own tables: the changes since the last look.

use std::convert::Infallible;

use gpuvmk_backend::WindowTables;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_shadow_pagetable::{
    Budget, GuestMemory, MapRun, MmuFormat, RunSink, ShadowSpace, SyncError, UnmapRun, WalkRefusal,
};

/// A run of BAR3, in bytes, and the memory that it shows from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowRun {
    pub offset: u64,
    pub size: u64,
    pub target: PhysicalAddress,
}

/// Changes of a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Offset and size of what shows nothing any more.
    pub hidden: Vec<(u64, u64)>,
    pub shown: Vec<WindowRun>,
}

impl Changes {
    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty() && self.shown.is_empty()
    }
}

/// The tables as they were followed last.
#[derive(Debug)]
pub struct Tables<F> {
    format: F,
    /// Bytes of BAR3 that matter.
    size: u64,
    known: Option<(WindowTables, ShadowSpace<F>)>,
    budget: Budget,
}

impl<F: MmuFormat + PartialEq> Tables<F> {
    /// Of a BAR3 that shows nothing.
    pub fn new(format: F, size: u64) -> Self {
        Self { format, size, known: None, budget: Budget::new(format.limits()) }
    }

    /// The changes of BAR3's mappings if it uses `tables` now, in a format.
    ///
    /// # Errors
    /// The tables ask for more than a guest may have. Nothing is known of them then.
    pub fn follow(
        &mut self,
        tables: Option<WindowTables>,
        format: F,
        memory: &impl GuestMemory,
    ) -> Result<Changes, WalkRefusal> {
        let mut changes = Changes::default();
        let same = |(known, _): &(WindowTables, ShadowSpace<F>)| Some(*known) == tables;
        if self.format != format || !self.known.as_ref().is_some_and(same) {
            if self.known.is_some() {
                changes.hidden.push((0, self.size));
            }
            *self = Self::new(format, self.size);
            let Some(tables) = tables else { return Ok(changes) };
            let kind = if tables.is_root { format.root() } else { format.below_root() };
            let end = tables.end.min(self.size);
            let space = ShadowSpace::of_table(format, kind, tables.table, end, &mut self.budget)?;
            self.known = Some((tables, space));
        }
        let Some((_, space)) = &mut self.known else { return Ok(changes) };
        let mut sink = Sink { changes, size: self.size };
        match space.sync(memory, &mut self.budget, &mut sink) {
            Ok(_) => Ok(sink.changes),
            Err(SyncError::Walk(refusal)) => {
                *self = Self::new(self.format, self.size);
                Err(refusal)
            }
            Err(SyncError::Sink(never)) => match never {},
        }
    }
}

/// Collects what lies in the part of BAR3 that matters.
struct Sink {
    changes: Changes,
    size: u64,
}

impl RunSink for Sink {
    type Error = Infallible;

    fn batch(&mut self, unmap: Vec<UnmapRun>, map: Vec<MapRun>) -> Result<(), Infallible> {
        let clipped = |va: u64, pages: u32, shift: u8| {
            let end = va.saturating_add(u64::from(pages) << shift).min(self.size);
            (va < end).then(|| (va, (end - va) / PAGE_SIZE * PAGE_SIZE))
        };
        let hidden = unmap.iter().filter_map(|run| clipped(run.va.0, run.pages, run.page_shift));
        self.changes.hidden.extend(hidden);
        let shown = map.iter().filter_map(|run| {
            let (offset, size) = clipped(run.va.0, run.pages, run.page_shift)?;
            Some(WindowRun { offset, size, target: run.target })
        });
        self.changes.shown.extend(shown);
        Ok(())
    }
}

/// The part of a shown run that is VRAM.
pub fn vram_of(shown: &WindowRun) -> Option<u64> {
    (shown.target.aperture == Aperture::Vram).then_some(shown.target.address)
}
