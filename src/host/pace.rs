//! How often something may happen: a rate with room for a burst. Time comes from the caller.

use std::time::Duration;

/// One event's allowance, as a leaky bucket: each event moves the time at which the bucket is empty.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    interval: Duration,
    burst: Duration,
    empty_at: Duration,
}

impl Pace {
    /// `per_second` events a second in the long run, and what would be due in `burst` at once.
    pub fn new(per_second: u32, burst: Duration) -> Self {
        let nanos = 1_000_000_000 / u64::from(per_second.max(1));
        Self { interval: Duration::from_nanos(nanos), burst, empty_at: Duration::ZERO }
    }

    /// How long an event at `now` has to wait; it counts from then on in any case.
    pub fn wait(&mut self, now: Duration) -> Duration {
        let empty_at = self.empty_at.max(now);
        let wait = empty_at.saturating_sub(now).saturating_sub(self.burst);
        self.empty_at = empty_at.saturating_add(self.interval);
        wait
    }

    /// True when an event at `now` may happen; one that may not does not count.
    pub fn allows(&mut self, now: Duration) -> bool {
        let empty_at = self.empty_at.max(now);
        let allowed = empty_at.saturating_sub(now) <= self.burst;
        if allowed {
            self.empty_at = empty_at.saturating_add(self.interval);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn events_below_the_rate_never_wait() {
        let mut pace = Pace::new(1000, MS * 10);
        assert!((0..10_000).all(|i| pace.wait(MS * i).is_zero()));
    }

    #[test]
    fn flood_gets_its_burst_and_then_the_rate() {
        let mut pace = Pace::new(1000, MS * 10);
        let mut now = Duration::ZERO;
        for _ in 0..1011 {
            now += pace.wait(now);
        }
        assert_eq!(now, MS * 1000);
    }

    #[test]
    fn refused_events_do_not_put_the_next_one_off() {
        let mut pace = Pace::new(10, Duration::ZERO);
        assert!(pace.allows(MS));
        assert!(!(2..100).any(|ms| pace.allows(MS * ms)));
        assert!(pace.allows(MS * 101));
    }
}
