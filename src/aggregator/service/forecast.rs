//! Predicts when work will be done, if it takes about as long as earlier work: a driver that copies buffers
//! of one size waits the same time for each. A thread that sleeps until shortly before that time and polls
//! from then on sees the end at once, and hardly uses the processor (Linux's block layer polls disks in this
//! way). Times come from the caller.

use std::cmp::Reverse;
use std::ops::Range;
use std::time::Duration;

/// Pieces of work that are remembered.
const PIECES: usize = 8;
/// Polling begins before the earliest end that is expected: by one part in [`EARLY`] of the work's time, and
/// at least by this. Timers are late, a thread takes time to wake up, and work may get faster when the host's
/// memory does.
const MARGIN: Duration = Duration::from_micros(40);
const EARLY: u32 = 10;
/// Shorter work is over before a thread can wake up.
const SHORTEST: Duration = MARGIN.saturating_mul(4);
/// It looks for this part of the work's time, and so long, at most.
const SHARE: u32 = 2;
const MOST: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Forecast {
    /// How long the last pieces took, in no order.
    times: [Duration; PIECES],
    /// How many there have been.
    pieces: usize,
}

impl Forecast {
    /// A piece of work took so long.
    pub(super) fn note(&mut self, time: Duration) {
        if let Some(place) = self.times.get_mut(self.pieces % PIECES) {
            *place = time;
        }
        self.pieces = self.pieces.wrapping_add(1).max(1);
    }

    /// When to look for the end of the next piece, from its beginning: when most of the last would have been
    /// found. `None` if there is no such time, or it begins at once.
    pub(super) fn window(&self) -> Option<Range<Duration>> {
        if self.pieces < PIECES {
            return None;
        }
        let found = |window: &Range<Duration>| self.times.iter().filter(|time| window.contains(time)).count();
        let windows = self.times.iter().filter(|time| **time >= SHORTEST).map(|time| {
            let start = time.saturating_sub((*time / EARLY).clamp(MARGIN, MOST / 2));
            start..start.saturating_add((*time / SHARE).min(MOST))
        });
        windows
            .filter(|window| found(window) > PIECES / 2)
            .max_by_key(|window| (found(window), Reverse(window.start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROS: fn(u64) -> Duration = Duration::from_micros;

    fn after(times: impl IntoIterator<Item = u64>) -> Option<(u128, u128)> {
        let mut forecast = Forecast::default();
        times.into_iter().for_each(|time| forecast.note(MICROS(time)));
        forecast.window().map(|window| (window.start.as_micros(), window.end.as_micros()))
    }

    #[test]
    fn work_of_one_length_is_looked_for_shortly_before_its_end() {
        assert_eq!(after([2000; 7]), None, "too little is known");
        assert_eq!(after([2000; 30]), Some((1800, 2800)));
        // A little earlier where some is a little shorter, and what was held up once is no matter.
        let (start, end) = after([2300, 2000, 2050, 9000, 2010, 2100, 100, 2040]).unwrap();
        assert_eq!((start, end), (1800, 2800));
        assert_eq!(after([100_000; 8]), Some((99_500, 100_500)));
    }

    #[test]
    fn work_of_all_lengths_is_not() {
        assert_eq!(after((0..40).map(|piece| if piece % 2 == 0 { 300 } else { 2000 })), None);
        assert_eq!(after((0..40).map(|piece| 500 * (piece % 8))), None);
        assert_eq!(after([100; 30]), None, "it is over before anybody is awake");
    }

    #[test]
    fn change_is_noticed() {
        assert_eq!(after([4000; 30].into_iter().chain([1500; 4])), None);
        assert_eq!(after([4000; 30].into_iter().chain([1500; 5])), Some((1350, 2100)));
    }

    #[test]
    fn nothing_overflows() {
        let mut forecast = Forecast { pieces: usize::MAX - 3, ..Forecast::default() };
        for time in [Duration::MAX; 20] {
            forecast.note(time);
            forecast.window();
        }
        assert_eq!(forecast.window(), None);
    }
}
