//! The check of a tenant's mappings. Every target is translated from the tenant's terms to hardware's, page
//! by page where it must be. A target outside the tenant's partition or memory becomes a fault entry, never
//! another tenant's page.
//!
//! Storage kinds are checked in the same way. A compressed kind becomes the uncompressed one of the same
//! layout, because the compression's bookkeeping is shared by all VMs. Pages with a kind that the chip does
//! not have become faults.
//!
//! Runs are split at the borders of guest memory ranges. A run whose *virtual* side is malformed spoils the
//! whole request; a bad *target* costs only its own pages.

use std::collections::VecDeque;

use super::dma_map::DmaMap;
use super::dma_range::DmaRange;
use super::partition::Partition;
use super::protocol::{GuestMapping, GuestRange, GuestTarget};
use gpuvmk_chip::addr::{Gpa, GpuVa, GuestVram, Iova};
use gpuvmk_gpu::{GpuInfo, HostMapping, HostRange, HostTarget};

/// Most runs that one request may turn into (each guest run splits at memory-range borders).
pub const MAX_PIECES: usize = 1 << 16;

/// Why a whole request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A page size that the GPU does not have.
    #[error("Page size 2^{0} is not one of the GPU's")]
    PageSize(u8),
    /// Unaligned, empty, or beyond the address space.
    #[error(
        "Run of {pages} pages of 2^{page_shift} bytes at {va} is empty, unaligned or leaves the address space"
    )]
    Shape {
        /// First virtual address.
        va: GpuVa,
        /// Number of pages.
        pages: u32,
        /// Page size, as log2.
        page_shift: u8,
    },
    /// The request splits into too many pieces.
    #[error("The request splits into more than {MAX_PIECES} runs")]
    TooManyPieces,
}

/// Changes of the host address space that a checked request makes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CheckedUpdate {
    /// Runs to unmap: what the tenant asked for, and pages with bad targets.
    pub unmap: Vec<HostRange>,
    /// Runs to map.
    pub map: Vec<HostMapping>,
    /// Pages with bad targets.
    pub bad_pages: u64,
    /// The first of them, for the message.
    pub first_bad: Option<(GpuVa, GuestTarget)>,
}

/// The limits of one tenant's requests.
#[derive(Clone, Copy, Debug)]
pub struct Checker<'a> {
    /// The physical GPU, with the addresses that it has.
    pub info: &'a GpuInfo,
    /// The tenant's VRAM.
    pub partition: &'a Partition,
    /// The tenant's system memory.
    pub memory: &'a DmaMap,
}

impl Checker<'_> {
    /// Checks and translates an update.
    ///
    /// # Errors
    /// A run's virtual side is malformed, or the request grows beyond bounds; nothing may be applied then.
    pub fn update(&self, unmap: &[GuestRange], map: &[GuestMapping]) -> Result<CheckedUpdate, RunError> {
        self.check_shapes(unmap, map)?;
        let mut out = CheckedUpdate::default();
        // Most runs become one each.
        out.unmap.reserve(unmap.len());
        out.map.reserve(map.len());
        for run in unmap {
            out.unmap.push(HostRange { va: run.va, pages: run.pages, page_shift: run.page_shift });
        }
        let mut ranges = Ranges::of(self.memory, map.len());
        for run in map {
            let done = self.run(run, &mut ranges, MAX_PIECES.saturating_add(1), &mut out);
            if done < run.pages || out.len() > MAX_PIECES {
                return Err(RunError::TooManyPieces);
            }
        }
        Ok(out)
    }

    /// That the virtual sides of all runs are well-formed.
    ///
    /// # Errors
    /// One is not.
    pub fn check_shapes(&self, unmap: &[GuestRange], map: &[GuestMapping]) -> Result<(), RunError> {
        let shapes = Shapes::of(self.info);
        unmap.iter().try_for_each(|run| shapes.check(run.va, run.pages, run.page_shift))?;
        map.iter().try_for_each(|run| shapes.check(run.va, run.pages, run.page_shift))
    }

    /// Checks and translates runs from the front of `map`, whose shapes were checked before: about
    /// `most_runs` of them and `most_pages` pages. Translated runs are removed from `map`.
    pub fn some(&self, map: &mut VecDeque<GuestMapping>, most_runs: usize, most_pages: u32) -> CheckedUpdate {
        let mut out = CheckedUpdate::default();
        let mut ranges = Ranges::of(self.memory, map.len().min(most_runs));
        let mut left = most_pages.max(1);
        while left > 0
            && out.len() < most_runs
            && let Some(run) = map.front_mut()
        {
            let some = GuestMapping { pages: run.pages.min(left), ..*run };
            let done = self.run(&some, &mut ranges, most_runs, &mut out);
            left = left.saturating_sub(done);
            let bytes = u64::from(done) << run.page_shift;
            run.va = GpuVa(run.va.0.saturating_add(bytes));
            run.pages = run.pages.saturating_sub(done);
            run.target = run.target.ahead(bytes);
            if run.pages == 0 {
                map.pop_front();
            }
        }
        out
    }

    /// One run, until there are `most` in `out`; how many of its pages were translated.
    fn run(&self, run: &GuestMapping, ranges: &mut Ranges<'_>, most: usize, out: &mut CheckedUpdate) -> u32 {
        let Some(kind) = self.info.chip.kinds.plain(run.kind) else {
            // A driver may have doorbells in an address space. They are none here: engines find nothing.
            if self.info.chip.kinds.is_registers(run.kind) {
                out.unmap.push(HostRange { va: run.va, pages: run.pages, page_shift: run.page_shift });
            } else {
                out.bad(run, 0, run.pages);
            }
            return run.pages;
        };
        let run = &GuestMapping { kind, ..*run };
        match run.target {
            GuestTarget::Vram(offset) => {
                self.vram_run(run, offset, out);
                run.pages
            }
            GuestTarget::System { address, coherent } => {
                self.system_run(run, address, coherent, ranges, most, out)
            }
        }
    }

    /// VRAM is one piece: the pages up to the partition's end are good, those after it are not.
    fn vram_run(&self, run: &GuestMapping, offset: GuestVram, out: &mut CheckedUpdate) {
        let page = 1_u64 << run.page_shift;
        let good = if offset.is_aligned(page) {
            let fitting = self.partition.room_after(offset) >> run.page_shift;
            u32::try_from(fitting.min(u64::from(run.pages))).unwrap_or(run.pages)
        } else {
            0
        };
        let bytes = u64::from(good).saturating_mul(page);
        match self.partition.translate(offset, bytes) {
            Some(host) if good > 0 => {
                out.map.push(HostMapping {
                    va: run.va,
                    pages: good,
                    page_shift: run.page_shift,
                    target: HostTarget::Vram(host),
                    read_only: run.read_only,
                    kind: run.kind,
                });
                out.bad(run, good, run.pages.saturating_sub(good));
            }
            _ => out.bad(run, 0, run.pages),
        }
    }

    /// System memory is one piece per memory range that it touches; a page that no single range holds is bad.
    fn system_run(
        &self,
        run: &GuestMapping,
        address: Gpa,
        coherent: bool,
        ranges: &mut Ranges<'_>,
        most: usize,
        out: &mut CheckedUpdate,
    ) -> u32 {
        let page = 1_u64 << run.page_shift;
        if !address.is_aligned(page) {
            out.bad(run, 0, run.pages);
            return run.pages;
        }
        let mut done: u32 = 0;
        while done < run.pages && out.len() < most {
            let left = run.pages.saturating_sub(done);
            let Some(gpa) = address.checked_add(u64::from(done).saturating_mul(page)) else {
                out.bad(run, done, left);
                return run.pages;
            };
            let (count, piece) = match ranges.translate(gpa) {
                Some((iova, room, writable)) if room >= page => {
                    let count = u32::try_from((room >> run.page_shift).min(u64::from(left))).unwrap_or(left);
                    (count, Some((iova, writable)))
                }
                Some(_) => (1, None),
                None => {
                    // Over a gap: all pages up to the one that holds the next range's first byte.
                    let gap = self
                        .memory
                        .next_range_after(gpa)
                        .map_or(u64::MAX, |next| next.0.saturating_sub(gpa.0));
                    let pages = (gap >> run.page_shift).clamp(1, u64::from(left));
                    (u32::try_from(pages).unwrap_or(left), None)
                }
            };
            match piece {
                None => out.bad(run, done, count),
                Some((iova, writable)) => out.map.push(HostMapping {
                    va: GpuVa(run.va.0.saturating_add(u64::from(done).saturating_mul(page))),
                    pages: count,
                    page_shift: run.page_shift,
                    target: HostTarget::System { iova, coherent },
                    read_only: run.read_only || !writable,
                    kind: run.kind,
                }),
            }
            done = done.saturating_add(count);
        }
        done
    }
}

/// A tenant's memory, for many pages after each other.
struct Ranges<'a> {
    memory: &'a DmaMap,
    /// All ranges in a row, where there are more runs to look up than ranges: a search in a row is a few
    /// steps.
    row: Vec<&'a DmaRange>,
    /// The range that held the last page holds the next one, mostly.
    last: Option<&'a DmaRange>,
}

impl<'a> Ranges<'a> {
    fn of(memory: &'a DmaMap, runs: usize) -> Self {
        let row = if runs > memory.len() { memory.ranges().collect() } else { Vec::new() };
        Self { memory, row, last: None }
    }

    /// As [`DmaMap::translate`].
    #[inline]
    fn translate(&mut self, gpa: Gpa) -> Option<(Iova, u64, bool)> {
        if let Some(there) = self.last.and_then(|range| range.translate(gpa)) {
            return Some(there);
        }
        let range = if self.row.is_empty() {
            self.memory.range_before(gpa)
        } else {
            let after = self.row.partition_point(|range| range.gpa <= gpa);
            after.checked_sub(1).and_then(|index| self.row.get(index).copied())
        };
        self.last = range;
        range.and_then(|range| range.translate(gpa))
    }
}

/// The rules for virtual sides of runs.
#[derive(Clone, Copy)]
struct Shapes {
    /// The sum of the page sizes that there are.
    page_sizes: u64,
    /// One past the last virtual address.
    limit: u64,
}

impl Shapes {
    fn of(info: &GpuInfo) -> Self {
        let size = |shift: &u8| 1_u64.checked_shl(u32::from(*shift)).unwrap_or(0);
        Self {
            page_sizes: info.page_shifts.iter().map(size).fold(0, |sizes, size| sizes | size),
            limit: 1_u64.checked_shl(u32::from(info.va_bits)).unwrap_or(u64::MAX),
        }
    }

    fn check(self, va: GpuVa, pages: u32, page_shift: u8) -> Result<(), RunError> {
        let page = 1_u64.checked_shl(u32::from(page_shift)).filter(|page| self.page_sizes & page != 0);
        let page = page.ok_or(RunError::PageSize(page_shift))?;
        let bad = RunError::Shape { va, pages, page_shift };
        let bytes = u64::from(pages).checked_mul(page).ok_or(bad)?;
        let end = va.0.checked_add(bytes).ok_or(bad)?;
        if pages == 0 || end > self.limit || !va.is_aligned(page) { Err(bad) } else { Ok(()) }
    }
}

impl CheckedUpdate {
    /// Runs, of both kinds.
    fn len(&self) -> usize {
        self.unmap.len().saturating_add(self.map.len())
    }

    /// Turns `count` pages of `run`, from page `first` on, into faults.
    fn bad(&mut self, run: &GuestMapping, first: u32, count: u32) {
        if count == 0 {
            return;
        }
        let offset = u64::from(first) << run.page_shift;
        let va = GpuVa(run.va.0.saturating_add(offset));
        self.bad_pages = self.bad_pages.saturating_add(u64::from(count));
        if self.first_bad.is_none() {
            self.first_bad = Some((va, run.target.ahead(offset)));
        }
        self.unmap.push(HostRange { va, pages: count, page_shift: run.page_shift });
    }
}

#[cfg(test)]
mod exhaustive;
#[cfg(test)]
mod tests;
