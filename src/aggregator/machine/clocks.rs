//! The time that work takes, and when the machine wants to be called again.

use std::sync::Arc;
use std::time::Duration;

use crate::steps::{Step, Steps};
use gpuvmk_gpu::LOOK_AGAIN;
use gpuvmk_gpu::{Budget, budget};
use gpuvmk_host::clock::Clock;

/// Clock, times of steps, and deadlines that belong to no tenant and no channel.
pub(super) struct Clocks {
    /// The clock that measures time.
    clock: Arc<dyn Clock>,
    /// How long the thread was at what.
    pub steps: Steps,
    /// When the first tenant that waits for its part of the thread may continue.
    held_until: Option<Duration>,
    /// When to ask how far others are: the GPU with pieces of VRAM, the driver with what it has begun.
    poll_due: Option<Duration>,
    polls_again: bool,
}

impl Default for Clocks {
    fn default() -> Self {
        Self::new(budget::monotonic())
    }
}

impl Clocks {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, steps: Steps::default(), held_until: None, poll_due: None, polls_again: false }
    }

    /// The time that work is measured by, in nanoseconds.
    pub fn nanos(&self) -> u64 {
        self.clock.now()
    }

    /// A budget of this time from now on.
    pub fn budget(&self, time: Duration) -> Budget {
        Budget::new(&self.clock, time)
    }

    /// Counts a step that began and ended then.
    pub fn note(&mut self, step: Step, start: u64, end: u64) {
        self.steps.note(step, end.saturating_sub(start));
    }

    /// Sets a time until which a tenant waits.
    pub fn hold_until(&mut self, until: Duration) {
        self.held_until = Some(self.held_until.map_or(until, |other| other.min(until)));
    }

    /// Another thread is at work: its result must be polled soon.
    pub const fn poll_again(&mut self) {
        self.polls_again = true;
    }

    /// A turn begins: waiting work registers itself again.
    pub const fn begin_turn(&mut self) {
        self.held_until = None;
        self.polls_again = false;
    }

    /// A turn that began then is over.
    pub fn end_turn(&mut self, now: Duration) {
        self.poll_due = self.polls_again.then(|| now.saturating_add(LOOK_AGAIN));
    }

    /// When a turn is due.
    pub fn next_due(&self) -> Option<Duration> {
        self.held_until.into_iter().chain(self.poll_due).min()
    }
}
