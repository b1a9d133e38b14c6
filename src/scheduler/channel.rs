//! One channel as the scheduler sees it.

use std::time::Duration;

use crate::addr::TenantId;
use crate::chip::{Engine, EngineSet};

/// Looks without work in sight after which a channel counts as idle, and looks at an idle engine with work left after
/// which it counts as one that waits for something else than the engine.
const LOOKS: u8 = 2;

/// What a channel is about.
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

/// A channel.
#[derive(Clone, Debug)]
pub(super) struct Channel {
    pub vm: TenantId,
    /// Whose list it is on.
    pub engine: Engine,
    pub gp_put: u32,
    /// Entries of its ring less one.
    pub ring_mask: u32,
    pub work: Work,
    /// Hardware may run it, as far as it was told.
    pub listed: bool,
    /// It waits for something else than its engine.
    pub blocked: bool,
    looks: u8,
}

/// What a look at a busy channel showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// An engine runs it.
    pub running: bool,
    /// Hardware has fetched all that it was told of.
    pub fetched: bool,
    /// Its own engine runs nothing.
    pub engine_idle: bool,
}

impl Channel {
    pub fn new(vm: TenantId, engines: EngineSet, ring_mask: u32) -> Self {
        Self {
            vm,
            engine: list_of(engines),
            gp_put: 0,
            ring_mask,
            work: Work::Idle,
            listed: true,
            blocked: false,
            looks: 0,
        }
    }

    pub fn busy(&self) -> bool {
        self.work != Work::Idle
    }

    /// True when it has work that goes on once it has its engine.
    pub fn ready(&self) -> bool {
        self.busy() && !self.blocked
    }

    /// A doorbell came.
    pub fn rung(&mut self, gp_put: u32, now: Duration, hold: bool) {
        self.gp_put = gp_put;
        self.looks = 0;
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
    pub fn note(&mut self, look: Look) -> bool {
        let held = matches!(self.work, Work::Held { .. });
        if look.running {
            self.looks = 0;
            return std::mem::take(&mut self.blocked);
        }
        let done = look.fetched && !held;
        // Another channel of its list has the engine, or it may not have it: that says nothing.
        let waits = !look.fetched && self.listed && look.engine_idle && !self.blocked;
        if !done && !waits {
            self.looks = 0;
            return false;
        }
        self.looks = self.looks.saturating_add(1);
        if self.looks < LOOKS {
            return false;
        }
        self.looks = 0;
        if done {
            self.settle();
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

/// Whose list a channel with contexts on these engines is on. One that uses several is on the list of the first:
/// hardware runs or stops a channel as a whole.
pub(super) fn list_of(engines: EngineSet) -> Engine {
    Engine::ALL.into_iter().find(|engine| engines.contains((*engine).into())).unwrap_or(Engine::Graphics)
}
