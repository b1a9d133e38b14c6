//! Whether there is news for operators: what a register face counts is asked for when something changed.

use std::sync::atomic::{AtomicBool, Ordering};

/// Says that counters have changed. Any thread may say so and ask; nobody waits.
#[derive(Debug)]
pub struct CountersChanged(AtomicBool);

impl Default for CountersChanged {
    /// They have: nobody was told of any yet.
    fn default() -> Self {
        Self(AtomicBool::new(true))
    }
}

impl CountersChanged {
    /// A counter was changed, before this call.
    pub fn note(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// True if any was since the last call of this.
    pub fn take(&self) -> bool {
        // Most accesses change none: a load is cheaper than a swap.
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Acquire)
    }
}
