//! One channel as the scheduler sees it.

use std::time::Duration;

use gpuvmk_chip::addr::TenantId;
use gpuvmk_chip::{Engine, EngineSet};

/// Number of looks without work in sight after which a channel counts as idle. Also the number of looks at an
/// idle engine after which a channel with work counts as waiting for something else than the engine.
const LOOKS: u8 = 2;

/// How soon hardware shows what it does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Shortest time between looks that count: a channel between its last fetch and its engine is there
    /// within less.
    pub recheck: Duration,
    /// How long after a channel was listed, or its doorbell rung, an idle engine proves nothing about it.
    /// Hardware may still be switching from another channel to this one (on RM, 137 us and 256 us were
    /// measured).
    pub settle: Duration,
}

impl Pace {
    /// Of a GPU whose engines go from one VM to the next in `switch`.
    pub fn of(switch: Duration) -> Self {
        Self {
            recheck: switch.saturating_mul(2).clamp(Duration::from_micros(20), Duration::from_micros(100)),
            settle: switch.saturating_mul(5).clamp(Duration::from_micros(50), Duration::from_micros(500)),
        }
    }
}

/// State of a channel's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// None that is known.
    Idle,
    /// There is some; hardware does not know of the last doorbell, which came at this time.
    Held {
        since: Duration,
        /// Hardware knew of work before that one.
        begun: bool,
    },
    /// Hardware knows of all.
    Known,
}

/// State of a channel.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub vm: TenantId,
    /// Engines that it has contexts for.
    pub engines: EngineSet,
    /// The engine whose list it is on.
    pub engine: Engine,
    pub gp_put: u32,
    /// Entries of its ring less one.
    pub ring_mask: u32,
    pub work: Work,
    /// True when it is on the runlist.
    pub listed: bool,
    /// It waits for something else than its engine.
    pub blocked: bool,
    /// How far its ring was fetched when it was last looked at.
    pub fetched: Option<u32>,
    /// More of it was fetched by then.
    pub moved: bool,
    /// When hardware could last run it, by the last look.
    pub could_run: Option<Duration>,
    /// A look has shown that it is done, and hardware's notifications have not been read since.
    pub unheard: bool,
    looks: u8,
    /// Looks before that time do not count.
    look_again: Duration,
    /// From when on it is done if its engine is idle, and from when on it waits then.
    done_from: Duration,
    waits_from: Duration,
}

/// A channel that had to leave its engine and has not yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeavingChannel {
    /// Since when it has been seen to be late.
    pub since: Duration,
    /// When to look again.
    pub look: Duration,
}

/// Result of a look at a busy channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// An engine runs it.
    pub running: bool,
    /// Hardware has fetched all its work.
    pub fetched: bool,
    /// Its own engine runs nothing.
    pub engine_idle: bool,
    /// A channel that has to leave still has its engine. Until this time an idle engine proves nothing.
    pub made_over: Option<Duration>,
}

impl Channel {
    pub fn new(vm: TenantId, engines: EngineSet, ring_mask: u32) -> Self {
        Self {
            vm,
            engines,
            engine: list_of(engines),
            gp_put: 0,
            ring_mask,
            work: Work::Idle,
            listed: true,
            blocked: false,
            fetched: None,
            moved: false,
            could_run: None,
            unheard: false,
            looks: 0,
            look_again: Duration::ZERO,
            done_from: Duration::ZERO,
            waits_from: Duration::ZERO,
        }
    }

    /// Hardware may run it, or may not any more; `begun` if it has work that hardware knew of before. True
    /// when the first is new.
    pub fn list(&mut self, listed: bool, begun: bool, now: Duration, pace: Pace) -> bool {
        if listed && !self.listed {
            self.looks = 0;
            self.waits_from = now.saturating_add(pace.settle);
            // Work that hardware has not begun is not fetched.
            self.done_from = if begun { self.waits_from } else { now };
        }
        if self.may_run() && !listed {
            self.could_run = Some(now);
        }
        std::mem::replace(&mut self.listed, listed) != listed
    }

    /// Hardware may run it now, and has work of it.
    pub fn may_run(&self) -> bool {
        self.listed && self.work == Work::Known
    }

    pub fn busy(&self) -> bool {
        self.work != Work::Idle
    }

    /// True when it has work that goes on once it has its engine.
    pub fn ready(&self) -> bool {
        self.busy() && !self.blocked
    }

    /// True if it has no work, or if hardware had fetched all of it at the last look: it may be done.
    pub fn may_be_done(&self) -> bool {
        !self.busy() || self.work == Work::Known && self.fetched == Some(self.gp_put)
    }

    /// A doorbell came.
    pub fn rung(&mut self, gp_put: u32, now: Duration, hold: bool, pace: Pace) {
        self.gp_put = gp_put;
        self.looks = 0;
        self.waits_from = now.saturating_add(pace.settle);
        self.work = match self.work {
            Work::Held { since, begun } => Work::Held { since, begun },
            before if hold => Work::Held { since: now, begun: before == Work::Known },
            Work::Idle | Work::Known => Work::Known,
        };
    }

    pub fn settle(&mut self) {
        self.work = Work::Idle;
        self.blocked = false;
        self.looks = 0;
    }

    /// Takes a look into account. True when the channel has become idle, blocked or ready by it.
    pub fn note(&mut self, look: Look, now: Duration, pace: Pace) -> bool {
        let held = matches!(self.work, Work::Held { .. });
        if look.running {
            self.looks = 0;
            self.done_from = now;
            return std::mem::take(&mut self.blocked);
        }
        // Nor does one wait whose ring was fetched further: its work may be too short to be seen at.
        if self.moved && self.blocked {
            self.looks = 0;
            self.blocked = false;
            return true;
        }
        if let Some(until) = look.made_over {
            self.done_from = self.done_from.max(until);
            self.waits_from = self.waits_from.max(until);
        }
        // Another channel of its list has the engine, or it may not have it: that says nothing. Hardware
        // fetches the ring's last entry when it begins with it, so a channel that was interrupted looks like
        // one that is done.
        let could_run = self.listed && look.engine_idle;
        let done = look.fetched && !held && could_run && now >= self.done_from;
        let waits = !look.fetched && could_run && now >= self.waits_from && !self.blocked;
        if !done && !waits {
            self.looks = 0;
            return false;
        }
        if now < self.look_again {
            return false;
        }
        self.look_again = now.saturating_add(pace.recheck);
        self.looks = self.looks.saturating_add(1);
        if self.looks < LOOKS {
            return false;
        }
        self.looks = 0;
        if done {
            self.settle();
            self.unheard = true;
        } else {
            self.blocked = true;
        }
        true
    }

    /// True when one look has shown it without work, or waiting, and the next decides.
    pub fn undecided(&self) -> bool {
        self.looks > 0
    }

    /// Ring entries that hardware has not fetched.
    pub fn depth(&self, fetched: u32) -> u64 {
        (self.gp_put.wrapping_sub(fetched) & self.ring_mask).into()
    }
}

/// Whose list a channel with contexts on these engines is on. One that uses several is on the list of the
/// first: hardware runs or stops a channel as a whole.
pub(super) fn list_of(engines: EngineSet) -> Engine {
    engines.engines().next().unwrap_or(Engine::Graphics)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a GPU that takes its time.
    const DEAR: Pace = Pace { recheck: Duration::from_micros(100), settle: Duration::from_micros(500) };

    fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// A channel whose ring was fetched to its end, and that no engine runs.
    fn look(channel: &mut Channel, now: u64, engine_idle: bool) -> bool {
        channel.note(Look { running: false, fetched: true, engine_idle, made_over: None }, us(now), DEAR)
    }

    fn at_work() -> Channel {
        let mut channel = Channel::new(TenantId(1), EngineSet::GRAPHICS, 0xff);
        channel.rung(1, us(0), false, DEAR);
        channel
    }

    #[test]
    fn channel_is_done_when_its_engine_was_idle_twice() {
        let mut channel = at_work();

        assert!(!look(&mut channel, 1000, true) && !look(&mut channel, 1050, true));
        assert!(look(&mut channel, 1100, true) && !channel.busy());
    }

    #[test]
    fn channel_that_was_interrupted_is_not_done() {
        let mut channel = at_work();
        channel.list(false, true, us(1000), DEAR);

        assert!((1..20).all(|ms| !look(&mut channel, 1000 * ms, true)));
        channel.list(true, true, us(20_000), DEAR);
        // The engine is being made over to it.
        assert!(!look(&mut channel, 20_100, true) && !look(&mut channel, 20_300, true));

        assert!(channel.ready());
    }

    #[test]
    fn channel_is_not_done_while_its_engine_is_made_over_to_it_by_one_that_took_long_to_leave() {
        let mut channel = at_work();
        channel.list(false, true, us(1000), DEAR);
        channel.list(true, true, us(2000), DEAR);
        let until = Some(us(9500));
        channel.note(
            Look { running: false, fetched: true, engine_idle: false, made_over: until },
            us(9000),
            DEAR,
        );

        assert!(!look(&mut channel, 9200, true) && !look(&mut channel, 9400, true));
        assert!(!look(&mut channel, 9600, true) && look(&mut channel, 9800, true));
    }

    #[test]
    fn channel_that_was_seen_at_work_again_may_be_done_at_once() {
        let mut channel = at_work();
        channel.list(false, true, us(1000), DEAR);
        channel.list(true, true, us(2000), DEAR);
        channel.note(
            Look { running: true, fetched: true, engine_idle: false, made_over: None },
            us(2050),
            DEAR,
        );

        assert!(!look(&mut channel, 2100, true) && look(&mut channel, 2200, true));
    }

    #[test]
    fn channel_whose_work_has_not_begun_waits_only_when_hardware_had_time_to_begin() {
        let mut channel = at_work();
        let mut look = |now| {
            channel.note(
                Look { running: false, fetched: false, engine_idle: true, made_over: None },
                us(now),
                DEAR,
            )
        };

        assert!((0..5).all(|n| !look(100 * n)));
        assert!(!look(500) && look(600));

        assert!(channel.blocked);
    }

    #[test]
    fn channel_whose_ring_was_fetched_further_does_not_wait_any_more() {
        let mut channel = at_work();
        let mut look = |moved, now, engine_idle| {
            channel.moved = moved;
            let look = Look { running: false, fetched: false, engine_idle, made_over: None };
            (channel.note(look, us(now), DEAR), channel.blocked)
        };

        assert_eq!((look(false, 600, true), look(false, 700, true)), ((false, false), (true, true)));
        assert_eq!(look(false, 800, false), (false, true));
        assert_eq!(look(true, 900, false), (true, false));
    }

    #[test]
    fn channel_that_shares_its_engine_is_not_done_while_another_one_runs() {
        let mut channel = at_work();

        assert!((1..20).all(|ms| !look(&mut channel, 1000 * ms, false)));
    }
}
