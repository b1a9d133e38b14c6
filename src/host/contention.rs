//! Detects whether other threads want the processor of a thread that polls, and yields it to them between two
//! looks.
//!
//! Another thread may keep the processor for long. If no event came meanwhile, nothing is lost. An event that
//! came had to wait for the processor. If such waits are more than three quarters of the polling time,
//! polling is useless, and the thread sleeps at once, for more and more events. (One other thread gets half
//! of the time, as is fair: it may be the very guest whose events are polled for.) Time comes from the
//! caller.
//!
//! A thread whose events come from many sleeps already after one that may have waited for long
//! ([`Contention::gives_way`]): asleep it is woken and takes the processor, while one that has yielded is
//! only ready to run. Since Linux 6.18 that lasts: a yield gives up the rest of a slice, each look one more,
//! and a thread that computes may have the processor for all of them.

use std::time::Duration;

/// Two looks are further apart than this only if another thread had the processor in between.
const PUT_OFF: Duration = Duration::from_micros(20);
/// So much of the time of looking is weighed at a time: for several ticks, after which the kernel has put
/// threads on the processors that are free.
const WEIGHED: Duration = Duration::from_millis(20);
/// Longer than any thread that works for some microseconds at a time has the processor: another one computes.
const COMPUTES: Duration = Duration::from_micros(200);
/// Number of events that are waited for asleep after others had the processor for too long: the first time,
/// and at most.
const REST: (u32, u32) = (256, 1 << 12);

/// For how long others had the processor, where two looks are so far apart.
pub fn put_off(between: Duration) -> Duration {
    if between > PUT_OFF { between } else { Duration::ZERO }
}

/// See the module.
#[derive(Debug)]
pub struct Contention {
    /// Time spent looking since it was weighed, and how much of it others had the processor.
    looked: Duration,
    away: Duration,
    /// Number of events that are still to be waited for asleep.
    rest: u32,
    /// How many those will be the next time.
    next_rest: u32,
}

impl Default for Contention {
    fn default() -> Self {
        Self { looked: Duration::ZERO, away: Duration::ZERO, rest: 0, next_rest: REST.0 }
    }
}

impl Contention {
    /// Notes a poll of length `looked` that found an event or not. Others had the processor for `put_off`
    /// before the last look. True when the thread should not poll for a while.
    pub fn looked(&mut self, looked: Duration, put_off: Duration, found: bool) -> bool {
        if found {
            self.weigh(looked, put_off)
        } else {
            self.weigh(looked.saturating_sub(put_off), Duration::ZERO)
        }
    }

    fn weigh(&mut self, looked: Duration, away: Duration) -> bool {
        self.looked = self.looked.saturating_add(looked);
        self.away = self.away.saturating_add(away);
        if self.looked < WEIGHED {
            return false;
        }
        let crowded = self.away > self.looked / 4 * 3;
        if crowded {
            self.begin_rest();
        } else {
            self.next_rest = (self.next_rest / 2).max(REST.0);
        }
        (self.looked, self.away) = (Duration::ZERO, Duration::ZERO);
        crowded
    }

    /// Notes an event that was found after others had the processor for `put_off`. True when the thread
    /// should not poll for a while: somebody computes on its processor.
    pub fn gives_way(&mut self, put_off: Duration) -> bool {
        let gives_way = put_off > COMPUTES;
        if gives_way {
            self.begin_rest();
            (self.looked, self.away) = (Duration::ZERO, Duration::ZERO);
        }
        gives_way
    }

    fn begin_rest(&mut self) {
        self.rest = self.next_rest;
        self.next_rest = self.next_rest.saturating_mul(2).min(REST.1);
    }

    /// True while the thread must sleep for the next event.
    pub const fn is_resting(&self) -> bool {
        self.rest > 0
    }

    /// Notes an event. True if the thread must sleep for the next one.
    pub fn rests(&mut self) -> bool {
        let rests = self.is_resting();
        self.rest = self.rest.saturating_sub(1);
        rests
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROS: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn who_is_put_off_sleeps_for_more_and_more_news() {
        let mut contention = Contention::default();
        let mut asleep = |away: u64| {
            let crowded = (0..100).filter(|_| contention.looked(MICROS(200), MICROS(away), true)).count();
            (crowded, std::iter::from_fn(|| contention.rests().then_some(())).count())
        };
        assert_eq!([asleep(151), asleep(175), asleep(200)], [(1, 256), (1, 512), (1, 1024)]);
        assert_eq!([asleep(150), asleep(150), asleep(151)], [(0, 0), (0, 0), (1, 512)]);
        assert_eq!((0..20).map(|_| asleep(200).1).max(), Some(1 << 12));
    }

    #[test]
    fn who_finds_an_event_after_somebody_computed_sleeps_for_the_next_ones() {
        let mut contention = Contention::default();
        assert!(!contention.gives_way(MICROS(200)) && !contention.is_resting());
        for events in [256, 512] {
            assert!(contention.gives_way(MICROS(201)));
            assert_eq!(std::iter::from_fn(|| contention.rests().then_some(())).count(), events);
        }
    }

    #[test]
    fn processor_that_others_have_while_nothing_comes_is_no_loss() {
        let mut contention = Contention::default();
        let long_work =
            (0..100).filter(|_| contention.looked(MICROS(1450), put_off(MICROS(1400)), false)).count();
        let news = (0..100).filter(|_| contention.looked(MICROS(60), put_off(MICROS(20)), true)).count();
        assert_eq!((long_work, news, contention.is_resting()), (0, 0, false));
    }
}
