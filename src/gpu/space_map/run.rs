//! A run: consecutive virtual addresses over consecutive target addresses.

use crate::HostTarget;
use gpuvmk_chip::addr::{GpuVa, HostVram, Iova};

/// Consecutive virtual addresses that point at consecutive target addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First virtual address.
    pub va: GpuVa,
    /// Length in bytes.
    pub len: u64,
    /// Where the first byte points.
    pub target: HostTarget,
    /// True when stores fault.
    pub read_only: bool,
    /// Storage kind, as in a page-table entry.
    pub kind: u8,
    /// log2 of the page size.
    pub page_shift: u8,
}

impl Run {
    /// One past the last virtual address.
    pub fn end(&self) -> u64 {
        self.va.0.saturating_add(self.len)
    }

    /// Number of its pages.
    pub fn pages(&self) -> u64 {
        self.len >> self.page_shift
    }

    /// Where `va` points, which lies in the run.
    pub fn target_at(&self, va: u64) -> HostTarget {
        advance(self.target, va.saturating_sub(self.va.0))
    }

    /// The part that lies in `[start, end)`; the page size stays.
    pub(super) fn clip(&self, start: u64, end: u64) -> Option<Self> {
        let (first, last) = (self.va.0.max(start), self.end().min(end));
        (first < last).then(|| Self {
            va: GpuVa(first),
            len: last.saturating_sub(first),
            target: self.target_at(first),
            ..*self
        })
    }

    /// Its pages that point at system memory in `[first, end)`.
    pub(super) fn pages_at(&self, first: u64, end: u64) -> Option<Self> {
        let HostTarget::System { iova: Iova(target), .. } = self.target else { return None };
        let overlap = (first.max(target), end.min(target.saturating_add(self.len)));
        if overlap.0 >= overlap.1 {
            return None;
        }
        let page = 1_u64 << self.page_shift;
        let from = overlap.0.saturating_sub(target) / page * page;
        let to = overlap.1.saturating_sub(target).checked_next_multiple_of(page)?;
        self.clip(self.va.0.saturating_add(from), self.va.0.saturating_add(to))
    }

    /// True when `next` continues this run, in every respect.
    pub(super) fn continues_with(&self, next: &Self) -> bool {
        let expected = Self { va: GpuVa(self.end()), target: advance(self.target, self.len), ..*self };
        expected == Self { len: self.len, ..*next }
    }
}

/// The target `bytes` further on.
pub(super) fn advance(target: HostTarget, bytes: u64) -> HostTarget {
    match target {
        HostTarget::Vram(HostVram(address)) => HostTarget::Vram(HostVram(address.saturating_add(bytes))),
        HostTarget::System { iova: Iova(address), coherent } => {
            HostTarget::System { iova: Iova(address.saturating_add(bytes)), coherent }
        }
    }
}
