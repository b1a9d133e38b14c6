//! How long a thread looks for news before it sleeps. As KVM's halt polling does, the time adapts: news that
//! come soon make it longer, news that do not come soon end the looking, so that who is idle, or waits for
//! long work, costs nothing. Time comes from the caller.

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

    /// How long to look for the next news.
    pub const fn time(&self) -> Duration {
        self.now
    }

    /// News came so long after the last ones were dealt with.
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
