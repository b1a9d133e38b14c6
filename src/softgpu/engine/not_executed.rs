//! What guests ask for and this model does not do: not the guests' fault, so it is told and counted.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

/// Lines in the log. A guest may launch without an end.
const LOGGED: u64 = 16;

/// Counts launches that ended because of this model.
#[derive(Debug, Default)]
pub(crate) struct NotExecuted(AtomicU64);

impl NotExecuted {
    /// Notes one launch. `what` completes "The software GPU does not execute".
    pub(crate) fn note(&self, what: impl Display) {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        if before >= LOGGED {
            log::debug!("softgpu: does not execute {what}");
            return;
        }
        let last = if before + 1 == LOGGED { " Further ones are counted only." } else { "" };
        log::warn!("The software GPU does not execute {what}: the launch stops its channel.{last}");
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
