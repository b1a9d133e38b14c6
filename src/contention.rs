//! Whether others want the processor of a thread that looks for news instead of sleeping. Where they have it for more than three quarters of
//! the time of looking, they need it, and looking is no use: then the thread sleeps at once, for more and more news. One other thread has
//! half of it, as is fair: that may be the very guest whose news are looked for. Time comes from the caller.

use std::time::Duration;

/// Two looks are further apart than this only if somebody else had the processor in between.
pub const PUT_OFF: Duration = Duration::from_micros(20);
/// So much of the time of looking is weighed at a time.
const WEIGHED: Duration = Duration::from_millis(5);
/// News that are waited for asleep after others had the processor for more than three quarters of that: the first time, and at most.
const REST: (u32, u32) = (256, 1 << 14);

/// See the module.
#[derive(Debug)]
pub struct Contention {
    /// Time spent looking since it was weighed, and how much of it others had the processor.
    looked: Duration,
    away: Duration,
    /// News to be waited for asleep.
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
    /// Others had the processor for `away` of the time that was `looked`. True when that is to end now.
    pub fn note(&mut self, looked: Duration, away: Duration) -> bool {
        self.looked = self.looked.saturating_add(looked);
        self.away = self.away.saturating_add(away);
        if self.looked < WEIGHED {
            return false;
        }
        let crowded = self.away > self.looked / 4 * 3;
        if crowded {
            self.rest = self.next_rest;
            self.next_rest = self.next_rest.saturating_mul(2).min(REST.1);
        } else {
            self.next_rest = (self.next_rest / 2).max(REST.0);
        }
        (self.looked, self.away) = (Duration::ZERO, Duration::ZERO);
        crowded
    }

    /// Whether the next news are to be waited for asleep.
    pub const fn is_resting(&self) -> bool {
        self.rest > 0
    }

    /// News came: true if the next are to be waited for asleep.
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
            let crowded = (0..25).filter(|_| contention.note(MICROS(200), MICROS(away))).count();
            (crowded, std::iter::from_fn(|| contention.rests().then_some(())).count())
        };
        assert_eq!([asleep(151), asleep(175), asleep(200)], [(1, 256), (1, 512), (1, 1024)]);
        assert_eq!([asleep(150), asleep(150), asleep(151)], [(0, 0), (0, 0), (1, 512)]);
        assert_eq!((0..20).map(|_| asleep(200).1).max(), Some(1 << 14));
    }
}
