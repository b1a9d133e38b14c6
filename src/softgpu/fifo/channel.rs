//! A channel of the table: what is known of it, what it waits for, how it comes to a PBDMA and leaves it.

use std::time::{Duration, Instant};

use gpuvmk_chip::addr::HostChannel;
use gpuvmk_chip::{Engine, PhysicalAddress};

/// First pause before a semaphore is looked at again, doubled each time.
const FIRST_PAUSE: Duration = Duration::from_micros(30);

/// Longest pause: bounds how late a store by a CPU is noticed.
const LONGEST_PAUSE: Duration = Duration::from_micros(1000);

/// Why a channel with work does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A semaphore has not the value that an acquire wants.
    Semaphore {
        /// When to look again.
        retry_at: Instant,
        /// How long the next pause is.
        pause: Duration,
        /// When the acquire began.
        since: Instant,
    },
    /// Another channel holds the engine, or it is not ready.
    Engine(Engine),
}

/// One channel of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Channel {
    pub(crate) instance: Option<PhysicalAddress>,
    /// Grows with every bind, so that work begun before is recognised.
    pub(crate) generation: u64,
    pub(crate) enabled: bool,
    pub(crate) listed: bool,
    /// An error or a fault ended it; a bind makes it usable again.
    pub(crate) stopped: bool,
    /// There may be work.
    pub(crate) pending: bool,
    /// PBDMA that has it loaded.
    pub(crate) loaded: Option<u8>,
    /// A doorbell that no PBDMA has seen.
    pub(crate) rung: bool,
    pub(crate) wait: Option<Wait>,
    /// A preemption waits for it to leave its PBDMA.
    pub(crate) preempting: bool,
    /// PBDMAs that it has left, and that have yet to tell of it.
    pub(super) telling: u8,
    pub(super) last_ran: u64,
}

impl Channel {
    /// Binds it to an instance block; what was known of the number is forgotten.
    pub(super) fn bind(&mut self, instance: Option<PhysicalAddress>) {
        *self = Self {
            instance,
            generation: self.generation.wrapping_add(1),
            enabled: self.enabled,
            listed: self.listed,
            pending: true,
            // Whoever has it loaded takes notice by the generation.
            loaded: self.loaded,
            preempting: self.preempting && self.loaded.is_some(),
            telling: self.telling,
            ..Self::default()
        };
    }

    /// As after power-on, except for what the PBDMAs are doing.
    pub(super) fn clear(&mut self) {
        *self = Self {
            generation: self.generation.wrapping_add(1),
            loaded: self.loaded,
            telling: self.telling,
            ..Self::default()
        };
    }

    /// Gives it, which has this number, to a PBDMA.
    pub(super) fn load(&mut self, channel: HostChannel, pbdma: u8) -> Option<Job> {
        let instance = self.instance?;
        self.loaded = Some(pbdma);
        self.pending = false;
        // Whoever loads it reads GP_PUT.
        self.rung = false;
        let (waiting_since, pause) = match self.wait.take() {
            Some(Wait::Semaphore { since, pause, .. }) => (Some(since), pause),
            Some(Wait::Engine(_)) | None => (None, FIRST_PAUSE),
        };
        Some(Job { channel, instance, generation: self.generation, waiting_since, pause })
    }

    /// Makes an acquire that it waits in look again. True when there is one.
    pub(super) fn retry(&mut self, now: Instant) -> bool {
        let Some(Wait::Semaphore { retry_at, pause, .. }) = &mut self.wait else { return false };
        *retry_at = now;
        *pause = FIRST_PAUSE;
        true
    }

    /// Takes it back from its PBDMA, as the `turn`-th stay that has ended.
    pub(super) fn leave(&mut self, job: &Job, departure: Departure, turn: u64, now: Instant) {
        self.loaded = None;
        self.preempting = false;
        if !matches!(departure, Departure::NoEngine(_)) {
            self.last_ran = turn;
        }
        if self.generation != job.generation {
            return;
        }
        match departure {
            Departure::Idle => self.pending |= self.rung,
            Departure::Yielded => self.pending = true,
            Departure::Blocked => {
                let since = job.waiting_since.unwrap_or(now);
                let pause = job.pause;
                let retry_at = now.checked_add(pause).unwrap_or(now);
                let longer = pause.saturating_mul(2).min(LONGEST_PAUSE);
                self.wait = Some(Wait::Semaphore { retry_at, pause: longer, since });
                self.pending = true;
            }
            Departure::NoEngine(engine) => {
                self.wait = Some(Wait::Engine(engine));
                self.pending = true;
            }
            Departure::Stopped => self.stopped = true,
        }
    }
}

/// A channel given to a PBDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) channel: HostChannel,
    pub(crate) instance: PhysicalAddress,
    pub(crate) generation: u64,
    /// The acquire that it waits in, if it does.
    pub(crate) waiting_since: Option<Instant>,
    pause: Duration,
}

impl Job {
    /// The acquire that it waited in has succeeded.
    pub(crate) fn acquired(&mut self) {
        self.waiting_since = None;
        self.pause = FIRST_PAUSE;
    }
}

/// How a channel left its PBDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// Nothing left to do.
    Idle,
    /// There is more: its time is up, or it was told to leave.
    Yielded,
    /// An acquire failed.
    Blocked,
    /// An engine was not to be had.
    NoEngine(Engine),
    /// An error or a fault.
    Stopped,
}
