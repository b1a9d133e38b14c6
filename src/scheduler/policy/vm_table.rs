//! A policy's state of each VM between decisions, and a VM's use since the last one.

use std::time::Duration;

use super::VmView;
use gpuvmk_chip::addr::TenantId;

/// A VM's row.
#[derive(Clone, Debug)]
pub(super) struct VmRow<S> {
    pub vm: TenantId,
    /// Its use up to the last decision.
    seen: Duration,
    /// Its use since then.
    pub grown: Duration,
    pub state: S,
}

/// One row for each VM that is present, in the order of the views.
#[derive(Clone, Debug)]
pub(super) struct VmTable<S> {
    pub rows: Vec<VmRow<S>>,
}

impl<S> Default for VmTable<S> {
    fn default() -> Self {
        Self { rows: Vec::new() }
    }
}

impl<S> VmTable<S> {
    /// Updates the rows from the views. Use before a VM's first view does not count.
    pub fn update(&mut self, vms: &[VmView], mut fresh: impl FnMut(&VmView) -> S) {
        if !self.matches(vms) {
            // Both are sorted: one pass keeps those who stay.
            let mut old = std::mem::take(&mut self.rows).into_iter().peekable();
            for view in vms {
                while old.next_if(|row| row.vm < view.vm).is_some() {}
                let kept = old.next_if(|row| row.vm == view.vm);
                self.rows.push(kept.unwrap_or_else(|| VmRow {
                    vm: view.vm,
                    seen: view.used,
                    grown: Duration::ZERO,
                    state: fresh(view),
                }));
            }
        }
        for (row, view) in self.rows.iter_mut().zip(vms) {
            row.grown = view.used.saturating_sub(row.seen);
            row.seen = view.used;
        }
    }

    /// The place of a VM in views and rows.
    pub fn place(&self, vm: TenantId) -> Option<usize> {
        self.rows.binary_search_by_key(&vm, |row| row.vm).ok()
    }

    fn matches(&self, vms: &[VmView]) -> bool {
        self.rows.len() == vms.len() && self.rows.iter().zip(vms).all(|(row, view)| row.vm == view.vm)
    }
}

/// Nanoseconds, for sums that may be negative.
pub(super) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Back again; what is negative is no time.
pub(super) fn time(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// `part` of `whole` of a time; nothing of an empty whole.
pub(super) fn portion(time: Duration, part: u64, whole: u64) -> Duration {
    let nanos = time.as_nanos().saturating_mul(part.into()).checked_div(whole.into()).unwrap_or(0);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ms, view};
    use super::*;

    #[test]
    fn those_who_stay_keep_their_state_and_newcomers_start_from_what_they_used() {
        let mut book = VmTable::<u32>::default();
        book.update(&[view(1, true, 5), view(3, true, 0)], |view| view.vm.0);
        book.rows[1].state = 33;

        book.update(&[view(2, true, 9), view(3, true, 4), view(4, false, 0)], |view| view.vm.0);

        let rows: Vec<_> = book.rows.iter().map(|row| (row.vm.0, row.grown, row.state)).collect();
        assert_eq!(rows, [(2, ms(0), 2), (3, ms(4), 33), (4, ms(0), 4)]);
        assert_eq!((book.place(TenantId(3)), book.place(TenantId(1))), (Some(1), None));
    }

    #[test]
    fn portions_and_signed_times_do_not_overflow() {
        assert_eq!(portion(ms(30), 1, 3), ms(10));
        assert_eq!(portion(Duration::MAX, u64::MAX, 1), Duration::from_nanos(u64::MAX));
        assert_eq!(portion(ms(30), 1, 0), ms(0));
        assert_eq!((nanos(Duration::MAX), time(-5)), (i64::MAX, ms(0)));
    }
}
