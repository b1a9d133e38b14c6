//! An address space as its driver keeps it in host memory: runs of virtual addresses, ordered, with where
//! each points.
//!
//! A run is what one mapping made of it: consecutive virtual addresses over consecutive target addresses,
//! with one page size and one set of attributes. Mapping over what is there replaces it; a hole cuts runs in
//! two. A page that is cut leaves 4 KiB pages. Every run costs a fixed amount of the tenant's budget, so that
//! neither many mappings nor many holes take more host memory than the tenant was given.
//!
//! Not handled: two mappings of different page size at one address (the small one would win on hardware); the
//! last one counts.

mod by_target;
mod heap_pins;
mod run;

use self::by_target::ByTarget;
use self::heap_pins::HeapPins;
pub use self::run::Run;
use super::{GpuError, HostMapping, HostRange, HostTarget, Revocation, SpaceUsage};
use gpuvmk_chip::addr::{GpuVa, HostVram, Iova, PAGE_SIZE};
use gpuvmk_ordered::OrderedMap;

/// Host memory that a run is taken to cost: key, value, and the tree's own share.
pub const RUN_BYTES: u64 = 128;

/// log2 of the smallest page.
const SMALLEST: u8 = 12;

/// Limits of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceShape {
    /// Virtual addresses are below 2 to this, at most 63.
    pub va_bits: u8,
    /// Bus addresses are below 2 to this, at most 63.
    pub system_bits: u8,
    /// Page sizes, as log2.
    pub page_shifts: &'static [u8],
    /// True when runs that continue each other become one. False where every run stands for a mapping that
    /// exists elsewhere too, and is undone as a whole.
    pub join: bool,
}

/// The runs of one address space.
#[derive(Clone, Debug)]
pub struct SpaceMap {
    shape: SpaceShape,
    /// By first virtual address; they do not overlap.
    runs: OrderedMap<u64, Run>,
    /// Those that point at system memory, by where.
    by_target: ByTarget,
    pins: HeapPins,
    pages: u64,
}

impl SpaceMap {
    /// An address space without mappings.
    pub fn new(shape: SpaceShape) -> Self {
        Self {
            shape,
            runs: OrderedMap::new(),
            by_target: ByTarget::default(),
            pins: HeapPins::default(),
            pages: 0,
        }
    }

    /// Its pages, and the host memory that they cost.
    pub fn usage(&self) -> SpaceUsage {
        SpaceUsage { table_bytes: self.bytes(), pages: self.pages }
    }

    fn bytes(&self) -> u64 {
        RUN_BYTES.saturating_mul(self.runs.len() as u64)
    }

    /// The run that `va` lies in.
    pub fn find(&self, va: u64) -> Option<&Run> {
        let (_, run) = self.runs.range(..=va).next_back()?;
        (va < run.end()).then_some(run)
    }

    /// All runs, in ascending order.
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs.values()
    }

    /// The runs that have a byte in `[start, end)`, whole, in ascending order.
    pub fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = &Run> {
        let reaching_in = self.find(start).map_or(start, |run| run.va.0);
        let last = end.max(reaching_in);
        self.runs.range(reaching_in..last).map(|(_, run)| run)
    }

    /// The pages that point at system memory in `[iova, iova + size)`. Pages count whole: one byte of a page
    /// in the range is enough.
    pub fn pointing_at(&self, iova: Iova, size: u64) -> impl Iterator<Item = Run> {
        let end = iova.0.saturating_add(size);
        self.by_target
            .near(iova.0, end, None)
            .filter_map(move |(_, _, va)| self.runs.get(&va)?.pages_at(iova.0, end))
    }

    /// How many of the first runs in `[start, end)` follow each other without a gap, at most `most`.
    pub fn in_a_row(&self, start: u64, end: u64, most: usize) -> usize {
        let mut next = None;
        let row = self
            .overlapping(start, end)
            .take(most)
            .take_while(|run| next.replace(run.end()).is_none_or(|end| end == run.va.0));
        row.count()
    }

    /// As much of a mapping, from its start on, as lies over at most `most` runs; in smaller pages where its
    /// first page alone lies over more.
    pub fn front(&self, mapping: &HostMapping, most: usize) -> HostMapping {
        let end = mapping.va.0.saturating_add(u64::from(mapping.pages) << mapping.page_shift);
        let Some(next) = self.overlapping(mapping.va.0, end).nth(most.max(1)) else { return *mapping };
        let room = next.va.0.saturating_sub(mapping.va.0);
        let fitting = self
            .shape
            .page_shifts
            .iter()
            .copied()
            .filter(|shift| *shift <= mapping.page_shift && room >> *shift > 0)
            .max();
        let page_shift = fitting.unwrap_or(SMALLEST);
        let pages = u32::try_from(room >> page_shift).unwrap_or(u32::MAX).max(1);
        HostMapping { pages, page_shift, ..*mapping }
    }

    /// Maps a run of pages over whatever is there. Returns what was there.
    ///
    /// # Errors
    /// The run is not one that the space can have, or the space would cost more than `budget` bytes; nothing
    /// changed then.
    pub fn insert(&mut self, mapping: &HostMapping, budget: u64) -> Result<Vec<Run>, GpuError> {
        let run = self.check(mapping)?;
        // Its own run, and those that cutting at either end can leave.
        let after = self.bytes().saturating_add(RUN_BYTES.saturating_mul(4));
        if after > budget {
            return Err(GpuError::Exhausted { what: "page-table memory for this tenant", limit: budget });
        }
        let replaced = self.remove(run.va.0, run.end(), budget);
        self.put(run);
        Ok(replaced)
    }

    /// Unmaps a run of pages. Returns what was mapped there; where the holes would cost more than `budget`
    /// bytes, the runs around them go as well and are returned.
    ///
    /// # Errors
    /// The range is not one that the space can have.
    pub fn unmap(&mut self, range: &HostRange, budget: u64) -> Result<Vec<Run>, GpuError> {
        let end = self.check_range(range.va, range.pages, range.page_shift)?;
        Ok(self.remove(range.va.0, end, budget))
    }

    /// The same for at most `most` runs: with fewer, nothing of the range is mapped any more.
    ///
    /// # Errors
    /// As the method without a limit.
    pub fn unmap_some(&mut self, range: &HostRange, budget: u64, most: usize) -> Result<Vec<Run>, GpuError> {
        let end = self.check_range(range.va, range.pages, range.page_shift)?;
        Ok(self.remove_some(range.va.0, end, budget, most))
    }

    /// Unmaps every page that points at system memory in `[iova, iova + size)`; as [`Self::unmap`] for each.
    pub fn revoke_system(&mut self, iova: Iova, size: u64, budget: u64) -> Vec<Run> {
        let mut revocation = Revocation::new(iova, size);
        let mut removed = Vec::new();
        while !self.revoke_some(&mut revocation, budget, usize::MAX, &mut removed) {}
        removed
    }

    /// The same for what a look at `most` runs finds; adds what was there to `removed`. True when that was
    /// all.
    pub fn revoke_some(
        &mut self,
        revocation: &mut Revocation,
        budget: u64,
        most: usize,
        removed: &mut Vec<Run>,
    ) -> bool {
        let (first, end) = (revocation.iova.0, revocation.iova.0.saturating_add(revocation.size));
        let mut hit = Vec::new();
        let mut looked = 0_usize;
        let mut done = true;
        for key in self.by_target.near(first, end, revocation.cursor) {
            if looked >= most {
                done = false;
                break;
            }
            looked = looked.saturating_add(1);
            revocation.cursor = Some(key);
            hit.extend(self.runs.get(&key.2).and_then(|run| run.pages_at(first, end)));
        }
        for run in hit {
            let gone = self.remove(run.va.0, run.end(), budget);
            let pages = gone.iter().fold(0_u64, |sum, run| sum.saturating_add(run.pages()));
            revocation.pages = revocation.pages.saturating_add(pages);
            removed.extend(gone);
        }
        done
    }

    /// Unmaps everything, and returns it.
    pub fn clear(&mut self) -> Vec<Run> {
        self.clear_some(usize::MAX)
    }

    /// Unmaps the first `most` runs, and returns them: with fewer, nothing is mapped any more.
    pub fn clear_some(&mut self, most: usize) -> Vec<Run> {
        let mut gone = Vec::new();
        while gone.len() < most
            && let Some((_, run)) = self.runs.pop_first()
        {
            self.by_target.remove(&run);
            self.pages = self.pages.saturating_sub(run.pages());
            gone.push(run);
        }
        self.pins.follow(self.runs.len());
        gone
    }

    fn check_range(&self, va: GpuVa, pages: u32, page_shift: u8) -> Result<u64, GpuError> {
        let invalid = || {
            GpuError::Invalid(format!(
                "{pages} pages of 2^{page_shift} bytes at {va} are no valid run; page sizes are {:?}, addresses \
                 below 2^{}",
                self.shape.page_shifts, self.shape.va_bits
            ))
        };
        if !self.shape.page_shifts.contains(&page_shift) || pages == 0 || !va.is_aligned(1 << page_shift) {
            return Err(invalid());
        }
        let end = va.checked_add(u64::from(pages) << page_shift).ok_or_else(invalid)?;
        if end.0 > 1 << self.shape.va_bits { Err(invalid()) } else { Ok(end.0) }
    }

    fn check(&self, mapping: &HostMapping) -> Result<Run, GpuError> {
        let HostMapping { va, pages, page_shift, target, read_only, kind } = *mapping;
        let end = self.check_range(va, pages, page_shift)?;
        let len = end.saturating_sub(va.0);
        let (first, limit) = match target {
            HostTarget::Vram(HostVram(address)) => (address, u64::MAX),
            HostTarget::System { iova: Iova(address), .. } => (address, 1 << self.shape.system_bits),
        };
        let reachable = first.checked_add(len).is_some_and(|end| end <= limit);
        if !reachable || !first.is_multiple_of(PAGE_SIZE) {
            return Err(GpuError::Invalid(format!("{len:#x} bytes at {va} cannot point at {target:?}")));
        }
        Ok(Run { va, len, target, read_only, kind, page_shift })
    }

    fn remove(&mut self, start: u64, end: u64, budget: u64) -> Vec<Run> {
        self.remove_some(start, end, budget, usize::MAX)
    }

    fn remove_some(&mut self, start: u64, end: u64, budget: u64, most: usize) -> Vec<Run> {
        let hit: Vec<Run> = self.overlapping(start, end).take(most).copied().collect();
        let mut removed = Vec::with_capacity(hit.len());
        for run in hit {
            self.take(run.va.0);
            let mut rests = Vec::new();
            for rest in [run.clip(0, start), run.clip(end, u64::MAX)].into_iter().flatten() {
                rests.extend(whole_pages(rest, &run));
            }
            let after = self.bytes().saturating_add(RUN_BYTES.saturating_mul(rests.len() as u64));
            if rests.len() > 1 && after > budget {
                removed.push(run);
                continue;
            }
            removed.extend(run.clip(start, end));
            for rest in rests {
                self.add(rest);
            }
        }
        removed
    }

    /// Adds a run where nothing is, joined with its neighbours where that is wanted.
    fn put(&mut self, run: Run) {
        let mut run = run;
        if self.shape.join {
            let before = self.runs.range(..run.va.0).next_back().map(|(_, before)| *before);
            if let Some(before) = before
                && before.continues_with(&run)
            {
                self.take(before.va.0);
                run = Run { len: before.len.saturating_add(run.len), ..before };
            }
            if let Some(after) = self.runs.get(&run.end()).copied()
                && run.continues_with(&after)
            {
                self.take(after.va.0);
                run.len = run.len.saturating_add(after.len);
            }
        }
        self.add(run);
    }

    fn add(&mut self, run: Run) {
        self.pages = self.pages.saturating_add(run.pages());
        self.by_target.insert(&run);
        self.runs.insert(run.va.0, run);
        self.pins.follow(self.runs.len());
    }

    fn take(&mut self, va: u64) {
        if let Some(run) = self.runs.remove(&va) {
            self.by_target.remove(&run);
            self.pages = self.pages.saturating_sub(run.pages());
            self.pins.follow(self.runs.len());
        }
    }
}

/// The rest of a run that was cut: whole pages as they were, and smallest pages for a page that was cut.
fn whole_pages(rest: Run, run: &Run) -> impl Iterator<Item = Run> {
    let page = 1u64 << run.page_shift;
    // Runs start and end at multiples of their page size.
    let first = rest.va.0.checked_next_multiple_of(page).unwrap_or(rest.end()).min(rest.end());
    let last = (rest.end() / page).saturating_mul(page).max(first);
    let small = |from, to| rest.clip(from, to).map(|part| Run { page_shift: SMALLEST, ..part });
    let parts = [small(rest.va.0, first), rest.clip(first, last), small(last, rest.end())];
    parts.into_iter().flatten()
}

#[cfg(test)]
mod tests;
