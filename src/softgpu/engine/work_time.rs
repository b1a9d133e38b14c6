//! Sums the time that an engine has worked. Any thread may read the sum at any moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bit that is set while the engine works.
const UNDER_WAY: u64 = 1 << 63;

/// Time of work. One thread begins and ends it; any thread looks, without waiting.
#[derive(Debug)]
pub(super) struct WorkTime {
    epoch: Instant,
    /// At rest: nanoseconds of work. Under way: the same less the moment when it began, so that adding the
    /// present moment gives the sum; in 63 bits, that wrap.
    word: AtomicU64,
    /// The largest sum that a reader was given so far.
    told: AtomicU64,
}

impl Default for WorkTime {
    fn default() -> Self {
        Self { epoch: Instant::now(), word: AtomicU64::new(0), told: AtomicU64::new(0) }
    }
}

impl WorkTime {
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Work begins. Returns the time of all work before.
    pub(super) fn begin(&self) -> Duration {
        let sum = self.word.load(Ordering::Relaxed);
        self.word.store(sum.wrapping_sub(self.now()) | UNDER_WAY, Ordering::Release);
        Duration::from_nanos(sum)
    }

    /// Work ends. Returns the time of all work.
    pub(super) fn end(&self) -> Duration {
        let sum = self.word.load(Ordering::Relaxed).wrapping_add(self.now()) & !UNDER_WAY;
        self.word.store(sum, Ordering::Release);
        Duration::from_nanos(sum)
    }

    /// True while work is under way.
    pub(super) fn under_way(&self) -> bool {
        self.word.load(Ordering::Acquire) & UNDER_WAY != 0
    }

    /// Time of all work up to now. It never goes back.
    pub(super) fn sum(&self) -> Duration {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let now = if word & UNDER_WAY == 0 { 0 } else { self.now() };
            // What ended before the clock was read must not count up to then.
            let again = self.word.load(Ordering::Acquire);
            if again == word {
                let sum = word.wrapping_add(now) & !UNDER_WAY;
                // Who ends the work may have read the clock already, and not said so yet.
                return Duration::from_nanos(self.told.fetch_max(sum, Ordering::Relaxed).max(sum));
            }
            word = again;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn work_counts_while_it_is_under_way_and_rest_does_not() {
        let time = WorkTime::default();
        let pause = Duration::from_millis(2);
        assert_eq!((time.begin(), time.under_way()), (Duration::ZERO, true));
        std::thread::sleep(pause);
        let under_way = time.sum();
        let first = time.end();
        std::thread::sleep(pause);

        assert!(under_way >= pause && first >= under_way && time.sum() == first && !time.under_way());
        assert_eq!(time.begin(), first);
        std::thread::sleep(pause);
        assert!(time.end() >= first + pause);
    }

    #[test]
    fn sum_never_goes_back_for_whoever_looks() {
        let (time, done) = (WorkTime::default(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = Duration::ZERO;
                while !done.load(Ordering::Relaxed) {
                    let sum = time.sum();
                    assert!(sum >= last);
                    last = sum;
                }
            });
            for _ in 0..100_000 {
                time.begin();
                time.end();
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
