//! How long the loop polls before it sleeps. After a doorbell the next one often comes soon, and waking the
//! loop costs more than the rest of a doorbell's way.
//!
//! Where there are few processors, it polls for one VM's work only. While several VMs work, every processor
//! has work, events of one VM come while another is served, and a VM that rings without an end would keep a
//! processor busy at others' expense. And it polls only while events come soon ([`PollWindow`]): engines that
//! work for long may need that processor (those of a software GPU do). When they rest after their work, the
//! next doorbell may come soon all the same: that has its own window.

use std::ops::Range;
use std::time::Duration;

use super::forecast::Forecast;
use gpuvmk_host::contention::{self, Contention};
use gpuvmk_host::poll_window::PollWindow;

/// A VM counts as alone so long after another VM's last event.
const ALONE: Duration = Duration::from_millis(10);

/// An event that is polled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Doorbell,
    WorkDone,
}

/// See the module. Time comes from the caller.
#[derive(Debug)]
pub(super) struct AdaptivePoll {
    most: Duration,
    /// Polls also while several VMs work.
    for_all: bool,
    /// For what comes after a doorbell, and for the doorbell that comes after work is done.
    after_doorbell: PollWindow,
    after_work: PollWindow,
    /// The last event, and when it came.
    awaited: Awaited,
    news_at: Duration,
    until: Duration,
    /// When the work that was rung for last began, and when its end is looked for.
    began: Option<Duration>,
    forecast: Forecast,
    ahead: Option<Range<Duration>>,
    /// The last look: when, how long after the one before, and for how long others had the processor before
    /// it.
    looked_at: Duration,
    looked: Duration,
    put_off: Duration,
    contention: Contention,
    /// The connection of the last event and its time; and the time of the last event of any other connection.
    last: Option<(u32, Duration)>,
    other: Option<Duration>,
}

impl AdaptivePoll {
    /// Polls for at most `most` after an event; zero: never.
    pub(super) fn new(most: Duration, for_all: bool) -> Self {
        Self {
            most,
            for_all,
            after_doorbell: PollWindow::new(most),
            after_work: PollWindow::new(most),
            awaited: Awaited::WorkDone,
            news_at: Duration::ZERO,
            until: Duration::ZERO,
            began: None,
            forecast: Forecast::default(),
            ahead: None,
            looked_at: Duration::ZERO,
            looked: Duration::ZERO,
            put_off: Duration::ZERO,
            contention: Contention::default(),
            last: None,
            other: None,
        }
    }

    /// True to poll once more, false to sleep. The caller has reported all events that the last look found.
    pub(super) fn is_on(&mut self, now: Duration) -> bool {
        self.found(false);
        now < self.until || self.ahead.as_ref().is_some_and(|ahead| ahead.contains(&now))
    }

    /// When to look again, whatever comes before.
    pub(super) fn next(&self, now: Duration) -> Option<Duration> {
        self.ahead.as_ref().map(|ahead| ahead.start).filter(|start| *start > now)
    }

    /// Connection `number` asked something. Where there are few processors that is no reason to look: who
    /// asks is answered, and looking for its next request would be at the expense of others.
    pub(super) fn note_request(&mut self, number: u32, now: Duration) {
        if self.for_all {
            self.note_event(number, now);
        }
    }

    /// Connection `number` has new work.
    pub(super) fn rang(&mut self, number: u32, now: Duration) {
        let looks = self.note_event(number, now);
        // A piece of work may be rung for in several parts.
        let began = *self.began.get_or_insert(now);
        let window = if looks && !self.most.is_zero() { self.forecast.window() } else { None };
        self.ahead =
            window.map(|window| began.saturating_add(window.start)..began.saturating_add(window.end));
    }

    /// Something new of connection `number`. False if what comes next is not to be looked for.
    fn note_event(&mut self, number: u32, now: Duration) -> bool {
        self.found(true);
        if let Some((last, when)) = self.last
            && last != number
        {
            self.other = Some(when);
        }
        self.last = Some((number, now));
        let time = self.after(Awaited::Doorbell, now);
        let looks = !self.contention.rests() && self.is_alone(now);
        self.until = if looks { now.saturating_add(time) } else { Duration::ZERO };
        looks
    }

    /// The GPU has done something that it was given: what its owner does next may be rung for soon.
    pub(super) fn worked(&mut self, now: Duration) {
        self.found(true);
        if let Some(began) = self.began.take() {
            self.forecast.note(now.saturating_sub(began));
        }
        self.ahead = None;
        let time = self.after(Awaited::WorkDone, now);
        if self.is_alone(now) && !self.contention.is_resting() {
            self.until = self.until.max(now.saturating_add(time));
        }
    }

    /// True if one VM alone works, or if that does not matter.
    fn is_alone(&self, now: Duration) -> bool {
        self.for_all || self.other.is_none_or(|other| now.saturating_sub(other) > ALONE)
    }

    /// How long to poll for the next event after this one.
    fn after(&mut self, awaited: Awaited, now: Duration) -> Duration {
        let waited = now.saturating_sub(std::mem::replace(&mut self.news_at, now));
        match std::mem::replace(&mut self.awaited, awaited) {
            Awaited::Doorbell => self.after_doorbell.waited(waited),
            // Work that is done by the way says nothing of doorbells.
            Awaited::WorkDone if awaited == Awaited::Doorbell => self.after_work.waited(waited),
            Awaited::WorkDone => {}
        }
        match awaited {
            _ if self.for_all => self.most,
            Awaited::Doorbell => self.after_doorbell.time(),
            Awaited::WorkDone => self.after_work.time(),
        }
    }

    /// Between two looks the processor was offered to others, from `begin` to `end`: an engine's thread, or
    /// QEMU's, may have been put on it.
    pub(super) fn offered(&mut self, begin: Duration, end: Duration) {
        self.put_off = contention::put_off(end.saturating_sub(begin));
        self.looked = end.saturating_sub(self.looked_at).min(self.most.max(self.put_off));
        self.looked_at = end;
    }

    /// Notes whether the poll found an event.
    fn found(&mut self, event: bool) {
        let (looked, put_off) = (std::mem::take(&mut self.looked), std::mem::take(&mut self.put_off));
        let gives_way = event && self.contention.gives_way(put_off);
        if self.contention.looked(looked, put_off, event) || gives_way {
            self.until = Duration::ZERO;
            self.ahead = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROS: fn(u64) -> Duration = Duration::from_micros;

    fn looking(for_all: bool) -> AdaptivePoll {
        AdaptivePoll::new(MICROS(200), for_all)
    }

    /// Events of connection 1 come so quickly up to `now` that they are polled for as long as possible.
    fn at_work(looking: &mut AdaptivePoll, now: Duration) {
        (0..5).rev().for_each(|ago| looking.rang(1, now.saturating_sub(MICROS(10 * ago))));
    }

    #[test]
    fn news_are_looked_for_a_while_after_the_last() {
        let mut looking = looking(false);
        assert!(!looking.is_on(MICROS(0)), "nothing came yet");
        at_work(&mut looking, MICROS(1000));
        assert!(looking.is_on(MICROS(1199)) && !looking.is_on(MICROS(1200)));
        let mut never = AdaptivePoll::new(Duration::ZERO, true);
        at_work(&mut never, MICROS(1000));
        assert!(!never.is_on(MICROS(1000)));
    }

    #[test]
    fn long_work_is_not_waited_for_by_looking_and_the_doorbell_after_it_is() {
        let mut looking = looking(false);
        at_work(&mut looking, MICROS(1000));
        // Two milliseconds of work, after two doorbells, again and again.
        for round in 0..5 {
            let began = MICROS(1200 + 2100 * round);
            looking.rang(1, began);
            looking.rang(1, began + MICROS(10));
            looking.worked(began + MICROS(2000));
        }
        assert!(looking.is_on(MICROS(11_600 + 199)) && !looking.is_on(MICROS(11_600 + 200)));
        looking.rang(1, MICROS(11_650));
        assert!(!looking.is_on(MICROS(11_650)), "what follows a doorbell did not come soon");
        looking.rang(1, MICROS(11_660));
        assert!(
            looking.is_on(MICROS(11_684)) && !looking.is_on(MICROS(11_685)),
            "only for a little while at first"
        );

        let mut spare = AdaptivePoll::new(MICROS(200), true);
        spare.rang(1, MICROS(5000));
        assert!(spare.is_on(MICROS(5199)), "where there are processors to spare, it is no matter");
    }

    #[test]
    fn end_of_long_work_is_looked_for_shortly_before_it() {
        let mut looking = looking(false);
        let mut began = MICROS(10_000);
        for _ in 0..30 {
            looking.rang(1, began);
            looking.rang(1, began + MICROS(10));
            assert!(!looking.is_on(began + MICROS(900)));
            looking.worked(began + MICROS(2010));
            began += MICROS(5000);
        }
        looking.rang(1, began);
        looking.rang(1, began + MICROS(1000));
        assert_eq!(
            looking.next(began + MICROS(1000)),
            Some(began + MICROS(1809)),
            "both are one piece of work"
        );
        assert!(!looking.is_on(began + MICROS(1808)) && looking.is_on(began + MICROS(1809)));
        assert_eq!(looking.next(began + MICROS(1809)), None, "it is time");
        assert!(
            looking.is_on(began + MICROS(2808)) && !looking.is_on(began + MICROS(2809)),
            "it did not come"
        );
        looking.worked(began + MICROS(2500));
        // Another VM has work too.
        looking.rang(2, began + MICROS(2600));
        assert_eq!(looking.next(began + MICROS(2600)), None);
    }

    #[test]
    fn requests_are_looked_for_where_there_are_processors_to_spare() {
        let (mut few, mut many) = (looking(false), looking(true));
        at_work(&mut few, MICROS(1000));
        few.note_request(2, MICROS(1100));
        assert!(few.is_on(MICROS(1199)) && !few.is_on(MICROS(1200)));
        many.note_request(2, MICROS(1100));
        assert!(many.is_on(MICROS(1299)));
    }

    #[test]
    fn nobody_is_looked_for_while_several_are_at_work() {
        let mut few = looking(false);
        at_work(&mut few, MICROS(1000));
        few.rang(2, MICROS(1100));
        assert!(!few.is_on(MICROS(1101)));
        // The other one has been silent for long.
        (0..5).rev().for_each(|ago| few.rang(2, MICROS(10_999 - ago)));
        assert!(!few.is_on(MICROS(11_000)));
        few.rang(2, MICROS(11_001));
        assert!(few.is_on(MICROS(11_100)));

        let mut many = looking(true);
        many.rang(1, MICROS(1000));
        many.rang(2, MICROS(1100));
        assert!(many.is_on(MICROS(1101)));
    }

    #[test]
    fn beside_a_thread_that_computes_nobody_looks_for_a_while() {
        let mut looking = looking(false);
        at_work(&mut looking, MICROS(1000));
        looking.offered(MICROS(1000), MICROS(2300));
        assert!(looking.is_on(MICROS(1199)), "nothing came meanwhile");
        looking.offered(MICROS(1200), MICROS(2500));
        looking.rang(1, MICROS(2501));
        assert!(!looking.is_on(MICROS(2502)));
        at_work(&mut looking, MICROS(3000));
        assert!(!looking.is_on(MICROS(3001)));
        (0..256).for_each(|event| looking.rang(1, MICROS(3100 + event)));
        assert!(looking.is_on(MICROS(3356)));
    }

    #[test]
    fn where_others_want_the_processor_they_have_it() {
        let mut looking = looking(false);
        at_work(&mut looking, MICROS(1000));
        assert!(looking.is_on(MICROS(1001)));
        looking.offered(MICROS(1001), MICROS(1081));
        assert!(looking.is_on(MICROS(1081)), "nothing came meanwhile");
        for look in 1..260 {
            let begin = MICROS(1100 + 100 * look);
            looking.offered(begin, begin + MICROS(80));
            looking.rang(1, begin + MICROS(81));
        }
        assert!(!looking.is_on(MICROS(27_100)), "most of the time was others'");
        at_work(&mut looking, MICROS(28_000));
        assert!(!looking.is_on(MICROS(28_001)));
    }
}
