//! Changes of an address space that are made over several turns, and the withdrawal of system memory from
//! one.

use std::collections::VecDeque;

use super::{HostMapping, HostRange, HostTarget};
use gpuvmk_chip::addr::{GpuVa, HostVram, Iova};

/// log2 of the smallest page of all GPUs.
const SMALLEST: u8 = 12;

/// Changes that are still to be made; the driver takes them from the front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpaceUpdate {
    /// Runs to unmap, before anything is mapped.
    pub unmap: VecDeque<HostRange>,
    /// Runs to map.
    pub map: VecDeque<HostMapping>,
}

impl SpaceUpdate {
    /// One of these changes.
    pub fn new(unmap: &[HostRange], map: &[HostMapping]) -> Self {
        Self { unmap: unmap.iter().copied().collect(), map: map.iter().copied().collect() }
    }

    /// True when nothing is left.
    pub fn is_empty(&self) -> bool {
        self.unmap.is_empty() && self.map.is_empty()
    }

    /// Joins the first mappings where one continues the one before. True when there is a mapping.
    pub fn join_front(&mut self) -> bool {
        while let [first, second, ..] = self.map.make_contiguous() {
            let length = u64::from(first.pages) << first.page_shift;
            let follows = HostMapping { pages: second.pages, ..part(first, length, 0, first.page_shift) };
            let Some(pages) = first.pages.checked_add(second.pages).filter(|_| follows == *second) else {
                break;
            };
            second.pages = pages;
            second.va = first.va;
            second.target = first.target;
            self.map.pop_front();
        }
        !self.map.is_empty()
    }

    /// Removes the first `bytes` of the first mapping; the rest of a page that is cut becomes smallest pages.
    pub fn mapped(&mut self, bytes: u64) {
        let Some(run) = self.map.pop_front() else { return };
        let length = u64::from(run.pages) << run.page_shift;
        if bytes >= length {
            return;
        }
        let page = 1_u64 << run.page_shift;
        // Where its own pages go on.
        let whole = bytes.next_multiple_of(page).min(length);
        if whole < length {
            self.map.push_front(part(&run, whole, length.saturating_sub(whole), run.page_shift));
        }
        if bytes < whole {
            self.map.push_front(part(&run, bytes, whole.saturating_sub(bytes), SMALLEST));
        }
    }
}

/// `bytes` of a run, from `from` on.
fn part(run: &HostMapping, from: u64, bytes: u64, page_shift: u8) -> HostMapping {
    HostMapping {
        va: GpuVa(run.va.0.saturating_add(from)),
        pages: u32::try_from(bytes >> page_shift).unwrap_or(u32::MAX),
        page_shift,
        target: match run.target {
            HostTarget::Vram(at) => HostTarget::Vram(HostVram(at.0.saturating_add(from))),
            HostTarget::System { iova, coherent } => {
                HostTarget::System { iova: Iova(iova.0.saturating_add(from)), coherent }
            }
        },
        ..*run
    }
}

/// System memory that is taken out of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// First bus address.
    pub iova: Iova,
    /// Size in bytes.
    pub size: u64,
    /// Pages that were taken out so far.
    pub pages: u64,
    /// Position of the driver, in its own terms.
    pub cursor: Option<(u8, u64, u64)>,
}

impl Revocation {
    /// Of all that points at `[iova, iova + size)`. A new one for each address space.
    pub const fn new(iova: Iova, size: u64) -> Self {
        Self { iova, size, pages: 0, cursor: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_make_up_the_whole(
            pages in 1_u32..20, shift in prop::sample::select(vec![12_u8, 16, 21]),
            steps in prop::collection::vec(1_u64..700, 0..12),
        ) {
            let target = HostTarget::System { iova: Iova(1 << 40), coherent: true };
            let run = HostMapping { va: GpuVa(1 << 30), pages, page_shift: shift, target, read_only: false, kind: 3 };
            let mut update = SpaceUpdate::new(&[], &[run]);
            let mut done = 0;
            for step in steps {
                let bytes = (step << 12).min((u64::from(pages) << shift) - done);
                let Some(front) = update.map.front() else { break };
                let bytes = bytes.min(u64::from(front.pages) << front.page_shift);
                update.mapped(bytes);
                done += bytes;
                let mut at = done;
                for left in &update.map {
                    prop_assert_eq!(left.va.0, run.va.0 + at);
                    prop_assert!(left.va.is_aligned(1 << left.page_shift));
                    let HostTarget::System { iova, .. } = left.target else { unreachable!() };
                    prop_assert_eq!(iova.0, (1 << 40) + at);
                    at += u64::from(left.pages) << left.page_shift;
                }
                prop_assert_eq!(at, u64::from(pages) << shift);
            }
        }
    }
}
