//! Coalesces page-by-page changes into runs and hands them on in bounded batches.
//!
//! Runs of one page size grow while virtual and target addresses advance together and the flags are the same. A
//! page is named at most once in a synchronisation, so the order of batches does not matter.

use super::format::Leaf;
use crate::addr::GpuVa;
use crate::chip::PhysicalAddress;

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
    /// Stores fault.
    pub read_only: bool,
    /// Storage kind.
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

/// Page sizes of one format at most (Hopper has 4 KiB, 64 KiB, 2 MiB, 512 MiB).
const PAGE_SIZES: usize = 4;

/// The run builder.
#[derive(Debug)]
pub struct Runs<'a, S> {
    sink: &'a mut S,
    open_map: Vec<MapRun>,
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

    /// Adds a page that is mapped from now on, replacing what was there.
    ///
    /// # Errors
    /// The sink's.
    pub fn map(&mut self, va: u64, page_shift: u8, leaf: Leaf) -> Result<(), S::Error> {
        let page = MapRun {
            va: GpuVa(va),
            pages: 1,
            page_shift,
            target: leaf.target,
            read_only: leaf.read_only,
            kind: leaf.kind,
        };
        let slot = self.open_map.iter_mut().find(|run| run.page_shift == page_shift);
        match slot {
            Some(run) if continues(run, &page) => {
                run.pages += 1;
                Ok(())
            }
            Some(run) => {
                let done = std::mem::replace(run, page);
                self.push_map(done)
            }
            None => {
                self.open_map.push(page);
                Ok(())
            }
        }
    }

    /// Adds a page that is not mapped any more.
    ///
    /// # Errors
    /// The sink's.
    pub fn unmap(&mut self, va: u64, page_shift: u8) -> Result<(), S::Error> {
        let page = UnmapRun { va: GpuVa(va), pages: 1, page_shift };
        let slot = self.open_unmap.iter_mut().find(|run| run.page_shift == page_shift);
        match slot {
            Some(run) if run.pages < u32::MAX && end(run.va, run.pages, page_shift) == Some(va) => {
                run.pages += 1;
                Ok(())
            }
            Some(run) => {
                let done = std::mem::replace(run, page);
                self.push_unmap(done)
            }
            None => {
                self.open_unmap.push(page);
                Ok(())
            }
        }
    }

    /// Emits everything that is left and says how much there was: unmapped, mapped.
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

    fn push_map(&mut self, run: MapRun) -> Result<(), S::Error> {
        self.mapped.add(run.pages);
        self.map.push(run);
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
        self.sink.batch(std::mem::take(&mut self.unmap), std::mem::take(&mut self.map))
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

fn continues(run: &MapRun, page: &MapRun) -> bool {
    run.pages < u32::MAX
        && run.read_only == page.read_only
        && run.kind == page.kind
        && end(run.va, run.pages, run.page_shift) == Some(page.va.0)
        && run.target.aperture == page.target.aperture
        && run.target.address.checked_add(u64::from(run.pages) << run.page_shift) == Some(page.target.address)
}
