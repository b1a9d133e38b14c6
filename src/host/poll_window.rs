//! How long a thread polls before it sleeps. As in KVM's halt polling, the time adapts: events that come soon
//! make it longer, and late ones end the polling. So an idle thread, or one that waits for long work, costs
//! nothing. Time comes from the caller.

use std::time::Duration;

/// How long to look at first.
const FIRST: Duration = Duration::from_micros(25);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct PollWindow {
    most: Duration,
    now: Duration,
}

impl PollWindow {
    /// Looks for `most` at most; zero: never.
    pub const fn new(most: Duration) -> Self {
        Self { most, now: Duration::ZERO }
    }

    /// How long to poll for the next event.
    pub const fn time(&self) -> Duration {
        self.now
    }

    /// Notes the time from the end of the last event's handling to the next event.
    pub fn waited(&mut self, time: Duration) {
        self.now = if time > self.most {
            Duration::ZERO
        } else {
            self.now.saturating_mul(2).max(FIRST).min(self.most)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROS: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn window_grows_with_news_that_come_soon_and_closes_with_those_that_do_not() {
        let mut window = PollWindow::new(MICROS(200));
        let windows: Vec<u128> = [60, 60, 60, 60, 200, 60, 201, 60]
            .into_iter()
            .map(|time| {
                window.waited(MICROS(time));
                window.time().as_micros()
            })
            .collect();
        assert_eq!(windows, [25, 50, 100, 200, 200, 200, 0, 25]);
    }

    #[test]
    fn time_of_zero_is_never_looked() {
        let mut window = PollWindow::new(Duration::ZERO);
        (0..10).for_each(|_| window.waited(Duration::ZERO));
        assert_eq!(window.time(), Duration::ZERO);
    }
}
