//! A VM's use of one engine, and its waits.

use std::time::Duration;

use gpuvmk_observe::latency::{Latency, Times};

/// A VM's account on one engine.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Time in which the engine ran a channel of the VM.
    pub used: Duration,
    /// The same as policies count it: also time that the VM's channels of this list spent on other engines.
    pub charged: Duration,
    /// Time in which the VM had work that could go on and was not admitted.
    pub waiting: Duration,
    /// Time in which it had work that was not done, for whatever reason.
    pub wanting: Duration,
    /// Number of doorbells.
    pub submissions: u64,
    /// Times that the engine was given to it.
    pub switches: u64,
    /// Ring entries that hardware had not fetched when it was last looked.
    pub depth: u64,
    /// How long doorbells waited until they were passed to hardware; those that did not wait count as zero.
    pub waits: Latency,
}

impl Account {
    /// How long doorbells waited, in nanoseconds.
    pub fn wait_summary(&self) -> Times {
        self.waits.summary()
    }

    /// A doorbell reached hardware after it had waited.
    pub(super) fn note_wait(&mut self, waited: Duration) {
        self.waits.note_nanos(u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX));
    }
}
