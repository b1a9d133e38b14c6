//! How many doorbells of one tenant are taken in a time. Honest guests are far below the limit; one that
//! rings without end gets no more of the thread's time than it allows, and loses nothing, because doorbells
//! merge.
//!
//! A VM that rings without new work, look after look, is looked at less and less often: no work of it is
//! waiting.

use std::time::Duration;

/// Length of the window.
const WINDOW: Duration = Duration::from_millis(1);

/// Looks in a row that found doorbells and nothing new, before the next one is put off.
const IN_VAIN: u32 = 8;

/// The longest that a look is put off. A doorbell with new work among those without waits for so long.
const LONGEST: Duration = Duration::from_millis(32);

/// One tenant's rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoorbellRate {
    /// Doorbells taken in a window.
    limit: usize,
    window_start: Duration,
    taken: usize,
    in_vain: u32,
    closed_until: Option<Duration>,
}

impl DoorbellRate {
    /// So many a second, at least one in each window.
    pub fn new(per_second: u32) -> Self {
        let limit = usize::try_from(per_second / 1000).unwrap_or(usize::MAX).max(1);
        Self { limit, window_start: Duration::ZERO, taken: 0, in_vain: 0, closed_until: None }
    }

    /// No doorbells are taken until then.
    pub const fn close(&mut self, until: Duration) {
        self.closed_until = Some(until);
    }

    /// When doorbells are looked at again; `None` while they are.
    pub const fn closed_until(&self) -> Option<Duration> {
        self.closed_until
    }

    /// Doorbells are looked at again.
    pub const fn open(&mut self) {
        self.closed_until = None;
        self.taken = 0;
    }

    /// Counts doorbells that a look has taken, `new` of which had new work. True when no more are taken for a
    /// while.
    pub fn note(&mut self, taken: usize, new: usize, now: Duration) -> bool {
        if now.saturating_sub(self.window_start) >= WINDOW {
            self.window_start = now;
            self.taken = 0;
        }
        self.taken = self.taken.saturating_add(taken);
        self.in_vain = match (taken, new) {
            (0, _) => self.in_vain,
            (_, 0) => self.in_vain.saturating_add(1),
            _ => 0,
        };
        let flood = (self.taken >= self.limit).then(|| self.window_start.saturating_add(WINDOW));
        let idle = self.pause().filter(|_| taken > 0).map(|pause| now.saturating_add(pause));
        let until = flood.max(idle);
        if until.is_some() {
            self.closed_until = until;
        }
        until.is_some()
    }

    /// How long the next look is put off.
    fn pause(&self) -> Option<Duration> {
        let doublings = self.in_vain.checked_sub(IN_VAIN)?.min(LONGEST.as_millis().ilog2());
        Some(WINDOW.saturating_mul(1 << doublings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn honest_rate_is_never_closed() {
        let mut rate = DoorbellRate::new(200_000);

        assert!((0..10_000).all(|i| !rate.note(1, 1, US * i * 10)));
    }

    #[test]
    fn flood_is_closed_until_the_window_ends_and_then_open_again() {
        let mut rate = DoorbellRate::new(200_000);

        let closed = (0..200).filter(|_| rate.note(1, 1, US)).count();

        assert_eq!(closed, 1);
        assert_eq!(rate.closed_until(), Some(WINDOW));
        rate.open();
        assert!(!rate.note(1, 1, WINDOW));
    }

    #[test]
    fn lower_rate_closes_earlier() {
        let mut rate = DoorbellRate::new(5_000);

        assert_eq!(
            (0..5).map(|_| rate.note(1, 1, US)).collect::<Vec<_>>(),
            [false, false, false, false, true]
        );
    }

    #[test]
    fn rings_in_vain_are_looked_at_less_and_less_often_until_one_says_something_new() {
        let mut rate = DoorbellRate::new(200_000);
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..16 {
            now += WINDOW;
            if rate.note(3, 0, now) {
                let until = rate.closed_until().unwrap();
                pauses.push((until - now).as_millis());
                now = until;
                rate.open();
            }
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 32, 32, 32]);

        assert!(!rate.note(3, 1, now + WINDOW));
        assert!(!rate.note(3, 0, now + WINDOW), "from the beginning");
    }

    #[test]
    fn look_that_finds_no_doorbell_is_not_in_vain() {
        let mut rate = DoorbellRate::new(200_000);
        assert!((1..100).all(|i| !rate.note(0, 0, WINDOW * i)));
        assert!((0..7).all(|_| !rate.note(1, 0, WINDOW * 100)));
        assert!((1..100).all(|i| !rate.note(0, 0, WINDOW * (100 + i))));
        assert!(rate.note(1, 0, WINDOW * 300));
    }
}
