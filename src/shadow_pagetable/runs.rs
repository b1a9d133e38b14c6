//! Coalesces changes of pages into runs and hands them on in bounded batches.
//!
//! Runs of one page size grow while virtual and target addresses advance together and the flags are the same.
//! A page is named at most once in a synchronisation, so the order of batches does not matter.

use super::packed::Packed;
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::addr::GpuVa;

/// Most runs of a batch, of both directions together.
pub const MAX_BATCH: usize = 1024;

/// Equal pages that the guest's tables map anew or differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRun {
    /// First virtual address; a multiple of the page size.
    pub va: GpuVa,
    /// Number of pages; virtual and target addresses advance together.
    pub pages: u32,
    /// log2 of the page size.
    pub page_shift: u8,
    /// First byte that it points at, in the guest's own memory.
    pub target: PhysicalAddress,
    /// True when stores fault.
    pub read_only: bool,
    /// Storage kind, as in a page-table entry.
    pub kind: u8,
}

/// Pages that the guest's tables no longer map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnmapRun {
    /// First virtual address; a multiple of the page size.
    pub va: GpuVa,
    /// Number of pages.
    pub pages: u32,
    /// log2 of the page size.
    pub page_shift: u8,
}

/// Takes batches of runs.
pub trait RunSink {
    /// Why a batch was not taken.
    type Error;

    /// Takes a batch: what to unmap and what to map, at least one run and at most [`MAX_BATCH`] together.
    ///
    /// # Errors
    /// The receiver's; the synchronisation ends with it.
    fn batch(&mut self, unmap: Vec<UnmapRun>, map: Vec<MapRun>) -> Result<(), Self::Error>;
}

/// Page sizes of one format at most (4 KiB, 64 KiB, 2 MiB, 512 MiB).
const PAGE_SIZES: usize = 4;

/// The run builder.
#[derive(Debug)]
pub struct Runs<'a, S> {
    sink: &'a mut S,
    open_map: Vec<OpenRun>,
    open_unmap: Vec<UnmapRun>,
    map: Vec<MapRun>,
    unmap: Vec<UnmapRun>,
    mapped: RunCount,
    unmapped: RunCount,
}

/// Runs and pages of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RunCount {
    /// Runs emitted.
    pub runs: u64,
    /// Pages in them.
    pub pages: u64,
}

impl<'a, S: RunSink> Runs<'a, S> {
    /// A builder that emits to `sink`.
    pub fn new(sink: &'a mut S) -> Self {
        Self {
            sink,
            open_map: Vec::with_capacity(PAGE_SIZES),
            open_unmap: Vec::with_capacity(PAGE_SIZES),
            map: Vec::new(),
            unmap: Vec::new(),
            mapped: RunCount::default(),
            unmapped: RunCount::default(),
        }
    }

    /// Adds pages that are mapped from now on, replacing what was there: `page` and those that follow it in
    /// memory.
    #[inline]
    pub(super) fn map(&mut self, va: u64, page_shift: u8, page: Packed, pages: u32) -> Result<(), S::Error> {
        let more = OpenRun { va, page, pages, page_shift: page_shift.into() };
        match self.open_map.iter_mut().find(|run| run.page_shift == more.page_shift) {
            Some(run) if run.goes_on_with(&more) => {
                run.pages = run.pages.saturating_add(pages);
                Ok(())
            }
            Some(run) => {
                let done = std::mem::replace(run, more);
                self.push_map(done)
            }
            None => {
                self.open_map.push(more);
                Ok(())
            }
        }
    }

    /// Adds pages that are not mapped any more.
    #[inline]
    pub(super) fn unmap(&mut self, va: u64, page_shift: u8, pages: u32) -> Result<(), S::Error> {
        let more = UnmapRun { va: GpuVa(va), pages, page_shift };
        let slot = self.open_unmap.iter_mut().find(|run| run.page_shift == page_shift);
        match slot {
            Some(run) if fits(run.pages, pages) && end(run.va, run.pages, page_shift) == Some(va) => {
                run.pages = run.pages.saturating_add(pages);
                Ok(())
            }
            Some(run) => {
                let done = std::mem::replace(run, more);
                self.push_unmap(done)
            }
            None => {
                self.open_unmap.push(more);
                Ok(())
            }
        }
    }

    /// Emits all remaining runs and returns the totals: unmapped, mapped.
    ///
    /// # Errors
    /// The sink's.
    pub fn finish(mut self) -> Result<(RunCount, RunCount), S::Error> {
        for run in std::mem::take(&mut self.open_unmap) {
            self.push_unmap(run)?;
        }
        for run in std::mem::take(&mut self.open_map) {
            self.push_map(run)?;
        }
        self.send()?;
        Ok((self.unmapped, self.mapped))
    }

    fn push_map(&mut self, run: OpenRun) -> Result<(), S::Error> {
        self.mapped.add(run.pages);
        self.map.extend(run.closed());
        self.send_full()
    }

    fn push_unmap(&mut self, run: UnmapRun) -> Result<(), S::Error> {
        self.unmapped.add(run.pages);
        self.unmap.push(run);
        self.send_full()
    }

    fn send_full(&mut self) -> Result<(), S::Error> {
        if self.map.len() + self.unmap.len() < MAX_BATCH { Ok(()) } else { self.send() }
    }

    fn send(&mut self) -> Result<(), S::Error> {
        if self.map.is_empty() && self.unmap.is_empty() {
            return Ok(());
        }
        // After a full batch, most likely comes another one.
        let room = |runs| if runs >= MAX_BATCH { MAX_BATCH } else { 0 };
        let unmap = Vec::with_capacity(room(self.unmap.len()));
        let map = Vec::with_capacity(room(self.map.len()));
        self.sink.batch(std::mem::replace(&mut self.unmap, unmap), std::mem::replace(&mut self.map, map))
    }
}

impl RunCount {
    fn add(&mut self, pages: u32) {
        self.runs = self.runs.saturating_add(1);
        self.pages = self.pages.saturating_add(u64::from(pages));
    }
}

/// First address after `pages` pages.
fn end(va: GpuVa, pages: u32, page_shift: u8) -> Option<u64> {
    va.0.checked_add(u64::from(pages) << page_shift)
}

/// A run may have no more pages than can be counted.
const fn fits(pages: u32, more: u32) -> bool {
    pages.checked_add(more).is_some()
}

/// A run to map that may still grow.
#[derive(Clone, Copy, Debug)]
struct OpenRun {
    va: u64,
    page: Packed,
    pages: u32,
    page_shift: u32,
}

impl OpenRun {
    #[inline]
    fn goes_on_with(&self, more: &Self) -> bool {
        let bytes = u64::from(self.pages) << self.page_shift;
        fits(self.pages, more.pages)
            && self.page.is_like(more.page)
            && self.va.checked_add(bytes) == Some(more.va)
            && self.page.address().checked_add(bytes) == Some(more.page.address())
    }

    #[inline]
    fn closed(self) -> Option<MapRun> {
        let leaf = self.page.leaf()?;
        // CAST: it was one.
        #[expect(clippy::cast_possible_truncation, reason = "it was made of 8 bits")]
        let page_shift = self.page_shift as u8;
        let (target, read_only, kind) = (leaf.target, leaf.read_only, leaf.kind);
        Some(MapRun { va: GpuVa(self.va), pages: self.pages, page_shift, target, read_only, kind })
    }
}
