//! How long work on the thread that owns the GPU may last at a time.
//!
//! The caller of a driver's `advance_` method passes a budget. The driver does at least one unit of work,
//! reads the clock after each system call or some units, and leaves the rest for the next turn. So a turn is
//! never longer than the budget and one unit of work, whatever the number of runs, ranges or channels.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gpuvmk_host::clock::{Clock, MonotonicClock};

/// Units after which the clock is looked at: a unit is a run in a table in memory, a fraction of a
/// microsecond.
const LOOK_EVERY: u32 = 8;

/// The units that a system call counts: the clock is read after each call.
pub const CALL: u32 = LOOK_EVERY;

/// Pause before asking again for work that the GPU or another thread is doing.
pub const LOOK_AGAIN: Duration = Duration::from_micros(200);

/// How far a piece of work is when its budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// All of it is done.
    Done,
    /// The rest wants another turn.
    More,
    /// Another thread is doing a part: ask again after [`LOOK_AGAIN`].
    Waits,
}

/// Time that work may take in one turn.
pub struct Budget {
    clock: Arc<dyn Clock>,
    /// `None`: no limit.
    until: Option<u64>,
    units: u32,
    spent: bool,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("until", &self.until)
            .field("spent", &self.spent)
            .finish_non_exhaustive()
    }
}

/// The kernel's monotonic clock.
pub fn monotonic() -> Arc<dyn Clock> {
    static MONOTONIC: LazyLock<Arc<dyn Clock>> = LazyLock::new(|| Arc::new(MonotonicClock::default()));
    Arc::clone(&MONOTONIC)
}

impl Budget {
    /// As long as `time` from now on.
    pub fn new(clock: &Arc<dyn Clock>, time: Duration) -> Self {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let until = Some(clock.now().saturating_add(nanoseconds));
        Self { clock: Arc::clone(clock), until, units: 0, spent: false }
    }

    /// A budget that never ends, for callers that have nothing else to do meanwhile.
    pub fn unlimited() -> Self {
        Self { clock: monotonic(), until: None, units: 0, spent: false }
    }

    /// Notes work that was done; true when the rest has to wait.
    pub fn spend(&mut self, units: u32) -> bool {
        self.units = self.units.saturating_add(units);
        if self.units >= LOOK_EVERY {
            self.units = 0;
            self.spent = self.spent || self.until.is_some_and(|until| self.clock.now() >= until);
        }
        self.spent
    }

    /// True if it was used up when the clock was last looked at.
    pub const fn is_spent(&self) -> bool {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_host::clock::ManualClock;

    #[test]
    fn budget_ends_by_the_clock_and_not_by_units() {
        let clock = Arc::new(ManualClock::default());
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let mut budget = Budget::new(&shared, Duration::from_micros(100));

        assert!((0..1000).all(|_| !budget.spend(1)), "no time went by");
        clock.advance(99_000);
        assert!(!budget.spend(CALL));
        clock.advance(1000);
        assert!(budget.spend(CALL));
        assert!(budget.is_spent() && budget.spend(1), "it stays spent");
    }

    #[test]
    fn clock_is_looked_at_after_some_units() {
        let clock = Arc::new(ManualClock::default());
        let shared: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let mut budget = Budget::new(&shared, Duration::from_micros(1));
        clock.advance(2000);

        let until = (1..100).find(|_| budget.spend(1));

        assert_eq!(until, Some(LOOK_EVERY));
    }

    #[test]
    fn unlimited_budget_never_ends() {
        let mut budget = Budget::unlimited();
        assert!((0..100).all(|_| !budget.spend(CALL)));
    }
}
