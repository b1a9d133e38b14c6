//! One range of bus addresses and the memory behind it. A range never changes: what becomes of it when others
//! come and go is a new one, so an access that holds one needs no lock.

use super::owner::MemoryOwner;
use crate::mapping::Mapping;
use std::sync::Arc;

/// A range, its ends included (a range may end at 2^64).
#[derive(Debug)]
pub(super) struct Range {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) writable: bool,
    /// Memory, and the offset in it of the first byte.
    pub(super) memory: Option<(Arc<Mapping>, u64)>,
    pub(super) owner: MemoryOwner,
}

impl Range {
    /// Bytes.
    pub(super) fn size(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }

    /// True when `next` follows, at its addresses and in its file, with the same rights.
    fn goes_on_in(&self, next: &Self) -> bool {
        let memory = match (&self.memory, &next.memory) {
            (None, None) => true,
            (Some((mine, offset)), Some((theirs, next_offset))) => {
                Arc::ptr_eq(mine, theirs) && offset.checked_add(self.size()) == Some(*next_offset)
            }
            _ => false,
        };
        memory
            && self.last.checked_add(1) == Some(next.first)
            && self.writable == next.writable
            && self.owner.is(&next.owner)
    }

    /// Both as one, if they are one memory.
    pub(super) fn joined(&self, next: &Self) -> Option<Self> {
        self.goes_on_in(next).then(|| Self { last: next.last, ..self.part(self.first, self.last) })
    }

    /// The part of it between two of its addresses, both included.
    pub(super) fn part(&self, first: u64, last: u64) -> Self {
        let memory = self.memory.as_ref();
        let memory =
            memory.map(|(memory, offset)| (Arc::clone(memory), offset.saturating_add(first - self.first)));
        Self { first, last, writable: self.writable, memory, owner: self.owner.clone() }
    }
}
