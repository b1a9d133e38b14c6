//! The pieces that the processor has begun to zero, and how far they are.

use std::sync::Arc;

use crate::budget;
use gpuvmk_chip::addr::HostVram;
use gpuvmk_host::clock::Clock;
use gpuvmk_ordered::OrderedMap;

/// A piece that was begun.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Begun {
    /// Bytes that are zero.
    pub done: u64,
    /// Nanoseconds that they took.
    pub took: u64,
}

/// Pieces that were begun, by start and size, and the clock that ends turns.
pub(super) struct ByHand {
    pub begun: OrderedMap<(u64, u64), Begun>,
    pub clock: Arc<dyn Clock>,
}

impl Default for ByHand {
    fn default() -> Self {
        Self { begun: OrderedMap::new(), clock: budget::monotonic() }
    }
}

impl ByHand {
    /// True if the processor has begun with a piece.
    pub(super) fn has(&self, start: HostVram, size: u64) -> bool {
        self.begun.contains_key(&(start.0, size))
    }

    /// Forgets pieces in a range that a tenant gets now.
    pub(super) fn forget(&mut self, start: HostVram, size: u64) {
        let end = start.0.saturating_add(size);
        self.begun.retain(|(first, size), _| *first >= end || first.saturating_add(*size) <= start.0);
    }
}
