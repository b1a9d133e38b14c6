//! How many doorbells of one tenant are taken in a time. Honest guests are far below the limit; one that rings
//! without end gets no more of the thread's time than it allows, and loses nothing, because doorbells merge.

use std::time::Duration;

/// The window.
const WINDOW: Duration = Duration::from_millis(1);

/// One tenant's rate.
#[derive(Clone, Copy, Debug)]
pub(super) struct DoorbellRate {
    /// Doorbells taken in a window.
    limit: usize,
    window_start: Duration,
    taken: usize,
    closed_until: Option<Duration>,
}

impl DoorbellRate {
    /// So many a second, at least one in each window.
    pub fn new(per_second: u32) -> Self {
        let limit = usize::try_from(per_second / 1000).unwrap_or(usize::MAX).max(1);
        Self { limit, window_start: Duration::ZERO, taken: 0, closed_until: None }
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

    /// Counts doorbells that were taken. True when no more are taken until the window is over.
    pub fn note(&mut self, taken: usize, now: Duration) -> bool {
        if now.saturating_sub(self.window_start) >= WINDOW {
            self.window_start = now;
            self.taken = 0;
        }
        self.taken = self.taken.saturating_add(taken);
        if self.taken < self.limit {
            return false;
        }
        self.closed_until = Some(self.window_start.saturating_add(WINDOW));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn honest_rate_is_never_closed() {
        let mut rate = DoorbellRate::new(200_000);

        assert!((0..10_000).all(|i| !rate.note(1, US * i * 10)));
    }

    #[test]
    fn flood_is_closed_until_the_window_ends_and_then_open_again() {
        let mut rate = DoorbellRate::new(200_000);

        let closed = (0..200).filter(|_| rate.note(1, US)).count();

        assert_eq!(closed, 1);
        assert_eq!(rate.closed_until(), Some(WINDOW));
        rate.open();
        assert!(!rate.note(1, WINDOW));
    }

    #[test]
    fn lower_rate_closes_earlier() {
        let mut rate = DoorbellRate::new(5_000);

        assert_eq!((0..5).map(|_| rate.note(1, US)).collect::<Vec<_>>(), [false, false, false, false, true]);
    }
}
