//! An entry of the channel table: what the FIFO knows of a channel, what the channel waits for, and how
//! PBDMAs and engines take it and give it back.

use std::time::{Duration, Instant};

use gpuvmk_chip::addr::HostChannel;
use gpuvmk_chip::{Engine, PhysicalAddress};

/// Time until a semaphore is checked again for the first time. It doubles with each check.
const FIRST_PAUSE: Duration = Duration::from_micros(30);

/// Longest time until the next check. It bounds how late a store by a CPU is noticed.
const LONGEST_PAUSE: Duration = Duration::from_micros(1000);

/// The PBDMA or engine that works for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    /// A PBDMA has it loaded.
    Pbdma(u8),
    /// An engine goes on with its operation; no PBDMA has it meanwhile.
    Engine(Engine),
}

/// Why a channel with work does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A semaphore has not the value that an acquire wants.
    Semaphore {
        /// Time of the next check.
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
    /// The PBDMA or engine that works for it, if there is one.
    pub(crate) worker: Option<Worker>,
    /// Its operation is done, and its time is not up until then: it goes on before others, and keeps its
    /// engine.
    pub(super) back: Option<Instant>,
    /// It was loaded to go on in its time.
    pub(super) resumed: bool,
    /// PBDMA that loaded it last.
    pub(super) pbdma: u8,
    /// A doorbell that no PBDMA has seen.
    pub(crate) rung: bool,
    pub(crate) wait: Option<Wait>,
    /// A preemption waits for it to leave whoever has it.
    pub(crate) preempting: bool,
    /// Those that it has left, and that have yet to tell of it.
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
            // A PBDMA or engine that has it notices by the generation.
            worker: self.worker,
            preempting: self.preempting && self.worker.is_some(),
            telling: self.telling,
            ..Self::default()
        };
    }

    /// Brings the entry to its state after power-on, except for what PBDMAs and engines are doing.
    pub(super) fn clear(&mut self) {
        *self = Self {
            generation: self.generation.wrapping_add(1),
            worker: self.worker,
            telling: self.telling,
            ..Self::default()
        };
    }

    /// Gives it, which has this number, to a PBDMA.
    pub(super) fn load(&mut self, channel: HostChannel, pbdma: u8) -> Option<Job> {
        let instance = self.instance?;
        self.worker = Some(Worker::Pbdma(pbdma));
        self.pbdma = pbdma;
        self.pending = false;
        let slice_end = self.back.take();
        self.resumed = slice_end.is_some();
        // The PBDMA that loads it reads GP_PUT anyway.
        self.rung = false;
        let (waiting_since, pause) = match self.wait.take() {
            Some(Wait::Semaphore { since, pause, .. }) => (Some(since), pause),
            Some(Wait::Engine(_)) | None => (None, FIRST_PAUSE),
        };
        Some(Job { channel, instance, generation: self.generation, slice_end, waiting_since, pause })
    }

    /// Begins to preempt it: it is not scheduled until it is off, and has no time left then.
    pub(crate) fn preempt(&mut self) {
        self.preempting = true;
        self.back = None;
    }

    /// Makes an acquire that it waits in look again. True when there is one.
    pub(super) fn retry(&mut self, now: Instant) -> bool {
        let Some(Wait::Semaphore { retry_at, pause, .. }) = &mut self.wait else { return false };
        *retry_at = now;
        *pause = FIRST_PAUSE;
        true
    }

    /// Takes it back from whoever has it, as the `turn`-th stay that has ended.
    pub(super) fn leave(&mut self, job: &Job, departure: Departure, turn: u64, now: Instant) {
        if !matches!(departure, Departure::NoEngine(_)) {
            self.last_ran = turn;
        }
        if let Departure::Working(engine) = departure {
            self.worker = Some(Worker::Engine(engine));
            return;
        }
        self.worker = None;
        self.preempting = false;
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
            Departure::NoEngine(engine) | Departure::Outlasted(engine) => {
                self.wait = Some(Wait::Engine(engine));
                self.pending = true;
            }
            Departure::Done(slice_end) => {
                self.back = (now < slice_end).then_some(slice_end);
                self.pending = true;
            }
            Departure::Stopped => self.stopped = true,
            // The channel is still at work.
            Departure::Working(_) => {}
        }
    }
}

/// A channel given to a PBDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) channel: HostChannel,
    pub(crate) instance: PhysicalAddress,
    pub(crate) generation: u64,
    /// When its time is up, where it goes on in the time that it had.
    pub(crate) slice_end: Option<Instant>,
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

/// How a channel left whoever had it.
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
    /// An engine goes on alone with a long operation.
    Working(Engine),
    /// Its time on the engine is up, and others want it.
    Outlasted(Engine),
    /// The engine has done what it was left alone with. The channel's time is up then.
    Done(Instant),
    /// An error or a fault.
    Stopped,
}
