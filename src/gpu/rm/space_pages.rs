//! Ranges and sizes of pages in address spaces.

use crate::space_map::Run;

/// Page sizes, as log2.
pub const PAGE_SHIFTS: &[u8] = &[12, 16, 21];

/// A length in the smallest pages; no part of a mapping is longer than that holds.
pub(super) fn small_pages(len: u64) -> u32 {
    u32::try_from(len >> 12).unwrap_or(u32::MAX)
}

/// Runs as ranges of whole pages, those that touch as one. Ranges stay inside a window, as runs do.
pub(super) fn page_ranges(runs: &[Run]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = runs
        .iter()
        .map(|run| {
            let page = 1_u64 << run.page_shift;
            let end = run.end().checked_next_multiple_of(page).unwrap_or(run.end());
            (run.va.0 / page * page, end)
        })
        .collect();
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// The largest page size, at most `shift`, that all of the addresses and sizes or-ed together are multiples
/// of.
pub(super) fn fitting_shift(shift: u8, bits: u64) -> u8 {
    let fits = |candidate: &u8| *candidate <= shift && bits.is_multiple_of(1 << *candidate);
    PAGE_SHIFTS.iter().copied().filter(|candidate| fits(candidate)).max().unwrap_or(12)
}
