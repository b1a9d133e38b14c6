//! Runs by the system memory that they point at, so that taking memory away looks at those that may name it
//! and at no others.
//!
//! Runs are sorted by the power of two that holds their length, then by their first bus address. Of each
//! class those that begin in the range, or before it by less than the class's length, are near it.

use std::ops::Bound;

use super::run::Run;
use crate::HostTarget;
use gpuvmk_chip::addr::Iova;
use gpuvmk_ordered::OrderedSet;

/// Class, first bus address, first virtual address.
pub(super) type Key = (u8, u64, u64);

const CLASSES: u8 = 64;

/// The index of runs by target.
#[derive(Clone, Debug, Default)]
pub(super) struct ByTarget {
    keys: OrderedSet<Key>,
    /// Bit for each class that has had a run since the index was empty.
    classes: u64,
}

fn key(run: &Run) -> Option<Key> {
    let HostTarget::System { iova: Iova(first), .. } = run.target else { return None };
    Some((class(run.len), first, run.va.0))
}

/// log2 of the smallest power of two that is not below a length.
fn class(len: u64) -> u8 {
    let bits = u64::BITS.saturating_sub(len.saturating_sub(1).leading_zeros());
    u8::try_from(bits).unwrap_or(CLASSES).min(CLASSES - 1)
}

impl ByTarget {
    pub(super) fn insert(&mut self, run: &Run) {
        if let Some(key) = key(run) {
            self.classes |= 1 << key.0;
            self.keys.insert(key);
        }
    }

    pub(super) fn remove(&mut self, run: &Run) {
        if let Some(key) = key(run) {
            self.keys.remove(&key);
            if self.keys.is_empty() {
                self.classes = 0;
            }
        }
    }

    /// Runs that may point at `[first, end)`: all that do, and some of the same size class just before. Those
    /// behind `cursor` only, where there is one.
    pub(super) fn near(&self, first: u64, end: u64, cursor: Option<Key>) -> impl Iterator<Item = Key> {
        let from = cursor.map_or(0, |(class, ..)| class);
        let known = self.classes;
        (from..CLASSES).filter(move |class| known >> class & 1 != 0).flat_map(move |class| {
            let reach = (1_u64 << class).saturating_sub(1);
            let least = Bound::Included((class, first.saturating_sub(reach), 0));
            let start = match cursor {
                Some(cursor) if cursor >= (class, first.saturating_sub(reach), 0) => Bound::Excluded(cursor),
                _ => least,
            };
            // A cursor may be the last there is.
            let last = (class, end.max(first), 0);
            let ended = matches!(start, Bound::Excluded(cursor) if cursor >= last);
            (!ended).then(|| self.keys.range((start, Bound::Excluded(last)))).into_iter().flatten().copied()
        })
    }
}
