//! When the work of an engine must pause.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::Preemption;

/// When an engine must pause.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control<'a> {
    /// The channel may have to leave.
    pub(crate) attention: &'a AtomicBool,
    /// The engine is being reset.
    pub(crate) abort: &'a AtomicBool,
    /// End of the channel's timeslice.
    pub(crate) slice_end: Instant,
    /// Whether anything but a reset makes it pause.
    pub(crate) preemption: Preemption,
}

impl Control<'_> {
    /// True when a long operation must stop here.
    pub(crate) fn should_pause(&self) -> bool {
        let wanted = || self.attention.load(Ordering::Acquire) || Instant::now() >= self.slice_end;
        self.aborted() || self.preemption == Preemption::Anywhere && wanted()
    }

    pub(crate) fn aborted(&self) -> bool {
        self.abort.load(Ordering::Acquire)
    }
}
