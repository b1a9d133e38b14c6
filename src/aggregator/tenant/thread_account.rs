//! One tenant's share of the aggregator's one thread. A tenant's requests are charged to its own share, so
//! that a flood of requests, updates or doorbells takes nothing from the others' shares.
//!
//! While only one tenant wants the thread it may have all of it, up to its own limit. When others do, each
//! earns an equal part of the time that passes, saves up to [`BURST`] of it, and is not served while it has
//! overdrawn. A request is never interrupted: it overdraws by one piece at most (see [`super::Job`]).

use std::time::Duration;

/// Limit of saved time. An honest guest's start-up is a burst of requests.
const BURST: Duration = Duration::from_millis(5);

/// A tenant that asked for something so long ago wants the thread no more.
const CONTENTION: Duration = Duration::from_millis(10);

/// One tenant's part of the thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadAccount {
    saved: Duration,
    overdrawn: Duration,
    settled: Duration,
    wanted: Option<Duration>,
    /// All time that it took.
    pub used: Duration,
    /// Most that it may have, in percent.
    pub most_percent: u32,
}

impl ThreadAccount {
    /// An account that may have `most_percent` of the thread.
    pub fn new(most_percent: u8) -> Self {
        Self {
            saved: BURST,
            overdrawn: Duration::ZERO,
            settled: Duration::ZERO,
            wanted: None,
            used: Duration::ZERO,
            most_percent: u32::from(most_percent).clamp(1, 100),
        }
    }

    /// True if its tenant wants the thread, or did lately.
    pub fn is_wanted(&self, now: Duration) -> bool {
        self.wanted.is_some_and(|wanted| now.saturating_sub(wanted) < CONTENTION)
    }

    /// Earns what the time since the last call is worth at `percent`.
    fn settle(&mut self, now: Duration, percent: u32) {
        let earned = now.saturating_sub(self.settled).saturating_mul(percent) / 100;
        self.settled = self.settled.max(now);
        let rest = earned.saturating_sub(self.overdrawn);
        self.overdrawn = self.overdrawn.saturating_sub(earned);
        self.saved = self.saved.saturating_add(rest).min(BURST);
    }

    /// Its tenant had the thread for this long.
    pub fn spend(&mut self, time: Duration) {
        self.used = self.used.saturating_add(time);
        self.overdrawn = self.overdrawn.saturating_add(time.saturating_sub(self.saved));
        self.saved = self.saved.saturating_sub(time);
    }

    /// Its tenant wants the thread, which so many `others` want too: `None` when it may have it now, else
    /// when it may ask again.
    pub fn wait(&mut self, others: usize, now: Duration) -> Option<Duration> {
        let parts = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
        let percent = (100 / parts).clamp(1, self.most_percent);
        self.wanted = self.wanted.max(Some(now));
        self.settle(now, percent);
        if percent == 100 {
            self.overdrawn = Duration::ZERO;
        }
        if self.overdrawn.is_zero() {
            return None;
        }
        let until = now.saturating_add(self.overdrawn.saturating_mul(100) / percent);
        // It waits, and so wants it for as long.
        self.wanted = Some(until);
        Some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn account_saves_a_burst_and_no_more() {
        let mut account = ThreadAccount::new(100);
        account.settle(MS * 1000, 50);
        account.spend(BURST);
        assert!(account.overdrawn.is_zero());

        account.spend(MS);

        assert_eq!(account.overdrawn, MS);
        account.settle(MS * 1001, 50);
        assert_eq!(account.overdrawn, MS / 2);
        account.settle(MS * 1003, 50);
        assert_eq!((account.overdrawn, account.saved), (Duration::ZERO, MS / 2));
        assert_eq!(account.used, BURST + MS);
    }
}
