//! A channel's stay on a PBDMA: one method at a time, until it must leave.
//!
//! Between two methods the channel can leave: all of its state is then in RAMFC. Ring and segments are parsed
//! in [`super::pushbuffer`], host methods executed in [`super::host`]; the others go to the engine that the
//! subchannel is bound to. What the engine does not finish in a short time is long: the channel leaves, and
//! the engine goes on alone.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::ending::{Ending, refused};
use super::host::{HostClass, HostUnit};
use super::loaded::Loaded;
use super::long_work::{LongWork, owner};
use super::pushbuffer::Pushbuffer;
use super::shared::Shared;
use crate::engine::control::{Control, Place};
use crate::engine::model::Progress;
use crate::engine::unit::{Executed, Operation};
use crate::fifo::ramfc::HostState;
use crate::fifo::{Departure, Job};
use gpuvmk_chip::gf100::methods::host;
use gpuvmk_chip::gf100::regs::pfifo::NV_PPBDMA_INTR_0;
use gpuvmk_chip::stream::Method;
use gpuvmk_chip::{Engine, EngineSet};

/// Time that a channel has while others wait.
pub(super) const TIMESLICE: Duration = Duration::from_millis(1);

/// Number of methods between two looks at the clock.
const CLOCK_INTERVAL: u32 = 32;

/// A channel's stay on a PBDMA.
#[derive(Debug)]
pub(super) struct Execution<'a> {
    shared: &'a Shared,
    class: &'static dyn HostClass,
    pbdma: u8,
    loaded: Loaded<'a>,
    stream: Pushbuffer,
    slice_end: Instant,
    steps: u32,
    /// Engines that this stay has got.
    taken: EngineSet,
    /// The last method that was given to an engine.
    given: Method,
}

impl<'a> Execution<'a> {
    /// Loads a channel from its instance block.
    pub(super) fn load(shared: &'a Shared, host: HostUnit, pbdma: u8, job: Job) -> Result<Self, Ending> {
        Ok(Self {
            shared,
            class: host.class,
            pbdma,
            loaded: Loaded::load(shared, &host.masks, pbdma, job)?,
            stream: Pushbuffer::default(),
            slice_end: job.slice_end.unwrap_or_else(|| Instant::now() + TIMESLICE),
            steps: 0,
            taken: EngineSet::empty(),
            given: Method { subchannel: 0, method: 0, data: 0 },
        })
    }

    /// The channel as it was given to the PBDMA, with what has become of its acquire.
    pub(super) fn job(&self) -> Job {
        self.loaded.job
    }

    /// What an engine is to go on with.
    pub(super) fn long_work(&self) -> LongWork {
        LongWork {
            pbdma: self.pbdma,
            job: self.loaded.job,
            space: self.loaded.space.clone(),
            slice_end: self.slice_end,
            method: self.given,
        }
    }

    /// Takes a new end of the ring's valid entries from USERD.
    pub(super) fn read_put(&mut self) -> Result<(), Ending> {
        self.loaded.read_put()
    }

    /// Writes the state back to RAMFC.
    pub(super) fn save(&self) {
        self.loaded.save();
    }

    /// Executes until the channel must leave.
    pub(super) fn run(&mut self) -> Ending {
        loop {
            if let Err(ending) = self.step() {
                return ending;
            }
        }
    }

    fn step(&mut self) -> Result<(), Ending> {
        let attention = self.shared.attention(self.pbdma);
        if attention.load(Ordering::Acquire) {
            // Cleared before looking, so that nothing said from now on is missed.
            attention.store(false, Ordering::Release);
            self.check_admission()?;
        }
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(CLOCK_INTERVAL) {
            self.check_slice()?;
        }
        if self.loaded.state.semaphore.pending {
            return self.acquire();
        }
        if self.loaded.state.operation_pending {
            let Some(engine) = self.loaded.engine_of(self.loaded.state.current_engine) else {
                self.loaded.state.operation_pending = false;
                return Ok(());
            };
            return self.engine(engine, Operation::Resume);
        }
        if let Some(method) = self.loaded.state.cached.take() {
            return self.execute(method);
        }
        match self.stream.step(&mut self.loaded, self.class)? {
            Some(method) => self.execute(method),
            None => Ok(()),
        }
    }

    /// Looks at the semaphore of a pending acquire: goes on, or lets others run until the next look.
    fn acquire(&mut self) -> Result<(), Ending> {
        let semaphore = self.loaded.state.semaphore;
        if self.class.reached(&self.loaded, &semaphore)? {
            self.loaded.state.semaphore.pending = false;
            self.loaded.job.acquired();
            return Ok(());
        }
        let waited = self.loaded.job.waiting_since.map_or(Duration::ZERO, |since| Instant::now() - since);
        let limit = self.loaded.state.acquire_limit();
        if limit.is_some_and(|limit| waited > Duration::from_micros(limit)) {
            return Err(self.loaded.host_error(NV_PPBDMA_INTR_0::ACQUIRE, None));
        }
        Err(Departure::Blocked.into())
    }

    /// Leaves if the driver no longer wants the channel to run, or if it had the PBDMA on loan and the one
    /// whose time it is is back.
    fn check_admission(&mut self) -> Result<(), Ending> {
        self.taken = EngineSet::empty();
        let job = &self.loaded.job;
        let fifo = self.shared.fifo();
        let stays =
            fifo.goes_on(job, self.pbdma) && (job.slice_end.is_some() || !fifo.is_any_back(Instant::now()));
        if stays { Ok(()) } else { Err(Departure::Yielded.into()) }
    }

    /// Leaves if the time is up and others wait.
    fn check_slice(&mut self) -> Result<(), Ending> {
        let now = Instant::now();
        if now >= self.slice_end {
            if self.shared.fifo().others_wait(now) {
                return Err(Departure::Yielded.into());
            }
            self.slice_end = now + TIMESLICE;
        }
        Ok(())
    }

    fn execute(&mut self, method: Method) -> Result<(), Ending> {
        if method.method == host::SET_OBJECT {
            self.class.bind(&mut self.loaded, method)?;
        } else if method.method < host::ENGINE_METHODS {
            return self.class.method(&mut self.loaded, method);
        }
        let number = self.loaded.bound(method.subchannel);
        match self.loaded.engine_of(number) {
            Some(engine) => {
                self.loaded.state.current_engine = number;
                self.engine(engine, Operation::Method(method))
            }
            None if method.method == host::SET_OBJECT => Ok(()),
            None => Err(self.loaded.host_error(NV_PPBDMA_INTR_0::DEVICE, Some(method))),
        }
    }

    /// Gives an operation to an engine.
    fn engine(&mut self, engine: Engine, operation: Operation) -> Result<(), Ending> {
        let keep = |state: &mut HostState| {
            if let Operation::Method(method) = operation {
                state.cached = Some(method);
            }
        };
        if !self.taken.contains(engine.into()) {
            if !self.shared.fifo().take_engine(engine, self.loaded.job.channel) {
                keep(&mut self.loaded.state);
                return Err(Departure::NoEngine(engine).into());
            }
            self.taken |= engine.into();
        }
        let Some(unit) = self.shared.unit(engine) else { return Ok(()) };
        self.given = match operation {
            Operation::Method(method) => method,
            Operation::Resume => Method { subchannel: 0, method: 0, data: 0 },
        };
        let owner = owner(&self.loaded.job);
        let attention = self.shared.attention(self.pbdma);
        let asked_first = OnceLock::new();
        let control = Control {
            attention,
            abort: unit.abort(),
            slice_end: self.slice_end,
            preemption: self.shared.preemption(),
            place: Place::HostUnit(&asked_first),
        };
        match unit.execute(&self.shared.system, owner, &self.loaded.space, control, operation) {
            Ok(Executed::Switched(switch)) => {
                keep(&mut self.loaded.state);
                switch.tell(&self.shared.events);
                Ok(())
            }
            Ok(Executed::NotNow) => {
                keep(&mut self.loaded.state);
                Ok(())
            }
            Ok(Executed::Ran(Progress::Paused, effects)) => {
                self.loaded.state.operation_pending = true;
                self.shared.tell_effects(engine, effects);
                Err(Departure::Working(engine).into())
            }
            Ok(Executed::Ran(Progress::Done, effects)) => {
                self.loaded.state.operation_pending = false;
                self.shared.tell_effects(engine, effects);
                Ok(())
            }
            Err(refusal) => {
                self.loaded.state.operation_pending = false;
                Err(refused(self.pbdma, engine, self.given, refusal))
            }
        }
    }
}
