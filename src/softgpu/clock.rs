//! The GPU's clock.

use std::time::Instant;

/// Time since power-on, as engines write it into reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    powered_on: Instant,
}

impl Clock {
    /// Makes a clock that starts at 0 now.
    pub(crate) fn start() -> Self {
        Self { powered_on: Instant::now() }
    }

    /// Nanoseconds since power-on.
    pub(crate) fn timestamp(&self) -> u64 {
        u64::try_from(self.powered_on.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
