//! A channel on a PBDMA: ring entries, segments, headers and words, one method at a time.
//!
//! Between two methods the channel can leave: all of its state is then in RAMFC. Ring and segments are parsed
//! in [`super::pushbuffer`], host methods executed in [`super::host`]; the others go to the engine that the
//! subchannel is bound to.

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::core::Shared;
use crate::engine::context::read_instance;
use crate::engine::control::Control;
use crate::engine::model::{Effects, Progress, Refusal};
use crate::engine::unit::{Executed, Operation, Owner};
use crate::fifo::ramfc::{HostState, Method, engine_number};
use crate::fifo::{Departure, Job};
use crate::hardware::Hardware;
use crate::ledger::Actor;
use crate::mmu::AddressSpace;
use crate::mmu::client::Client;
use crate::pbdma::{Ending, TIMESLICE};
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::gf100::methods::{host, pbdma_intr};
use gpuvmk_chip::gf100::ramin::USERD_GP_PUT;
use gpuvmk_chip::{AccessKind, Engine, EngineSet, FaultReason, PhysicalAddress};
use gpuvmk_units::backend::{ChannelError, FaultUnit, GraphicsError, HostError, MmuFault};

/// Methods between two looks at the clock.
const CLOCK_INTERVAL: u32 = 32;

/// What the register face is told when a channel stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Fault(MmuFault),
    Host(HostError),
    Graphics(GraphicsError),
    Channel(ChannelError),
}

impl Report {
    pub(crate) fn tell(self, hardware: &Hardware) {
        log::debug!("softgpu: a channel stops: {self:x?}");
        hardware.tell(|events| match self {
            Self::Fault(fault) => events.mmu_fault(fault),
            Self::Host(error) => events.host_error(error),
            Self::Graphics(error) => events.graphics_error(error),
            Self::Channel(error) => events.channel_error(error),
        });
    }
}

impl From<Report> for Ending {
    fn from(report: Report) -> Self {
        Self { departure: Departure::Stopped, report: Some(report) }
    }
}

impl From<MmuFault> for Ending {
    fn from(fault: MmuFault) -> Self {
        Report::Fault(fault).into()
    }
}

/// A loaded channel.
#[derive(Debug)]
pub(crate) struct Execution<'a> {
    pub(crate) shared: &'a Shared,
    pbdma: u8,
    pub(crate) job: Job,
    pub(crate) state: HostState,
    space: AddressSpace,
    /// Fetched words of the current segment that are still to be executed.
    pub(crate) words: std::vec::IntoIter<u32>,
    slice_end: Instant,
    steps: u32,
    /// Engines that this stay has got.
    taken: EngineSet,
    /// GP_GET as the driver sees it, once written.
    pub(crate) published: Option<u32>,
}

impl<'a> Execution<'a> {
    /// Loads a channel from its instance block.
    pub(crate) fn load(shared: &'a Shared, pbdma: u8, job: Job) -> Result<Self, Ending> {
        let hardware = &shared.hardware;
        let host_fault = |reason| MmuFault {
            channel: Some(job.channel),
            unit: FaultUnit::Host,
            address: GpuVa(0),
            access: AccessKind::Read,
            reason,
        };
        let block = read_instance(hardware, job.instance).ok_or(host_fault(FaultReason::NoChannel))?;
        let mut execution = Self {
            shared,
            pbdma,
            job,
            state: HostState::load(&block, hardware.chip),
            space: hardware.mmu.address_space(&block),
            words: Vec::new().into_iter(),
            slice_end: Instant::now() + TIMESLICE,
            steps: 0,
            taken: EngineSet::empty(),
            published: None,
        };
        if !execution.state.signed {
            return Err(execution.host_error(pbdma_intr::SIGNATURE, None));
        }
        execution.read_put()?;
        Ok(execution)
    }

    pub(crate) fn job(&self) -> Job {
        self.job
    }

    /// Takes a new end of the ring's valid entries from USERD.
    pub(crate) fn read_put(&mut self) -> Result<(), Ending> {
        self.state.gp_put = self.read_userd(USERD_GP_PUT)?;
        Ok(())
    }

    /// Writes the state back to RAMFC.
    pub(crate) fn save(&self) {
        let Job { channel, instance, .. } = self.job;
        let ramfc = self.state.save();
        self.shared.hardware.ledger.check(Actor::Firmware, Some(channel), instance, ramfc.len() as u64);
        let saved = self.shared.hardware.memory.write(instance, &ramfc);
        if let Err(missed) = saved {
            log::debug!("softgpu: RAMFC of channel {channel} is gone: {missed}");
        }
    }

    pub(crate) fn client(&self) -> Client<'_> {
        let hardware = &self.shared.hardware;
        let channel = Some(self.job.channel);
        Client { hardware, space: &self.space, channel, unit: FaultUnit::Host, privileged: false }
    }

    fn userd(&self, offset: u64) -> PhysicalAddress {
        let userd = self.state.userd;
        let target = PhysicalAddress { address: userd.address.saturating_add(offset), ..userd };
        self.shared.hardware.ledger.check(Actor::Work, Some(self.job.channel), target, 4);
        target
    }

    fn userd_fault(&self, access: AccessKind) -> Ending {
        let fault = MmuFault {
            channel: Some(self.job.channel),
            unit: FaultUnit::Host,
            address: GpuVa(self.state.userd.address),
            access,
            reason: FaultReason::UnsupportedAperture,
        };
        fault.into()
    }

    fn read_userd(&self, offset: u64) -> Result<u32, Ending> {
        let word = self.shared.hardware.memory.read_u32(self.userd(offset));
        word.map_err(|_| self.userd_fault(AccessKind::Read))
    }

    pub(crate) fn write_userd(&self, offset: u64, word: u32) -> Result<(), Ending> {
        let written = self.shared.hardware.memory.write(self.userd(offset), &word.to_le_bytes());
        written.map_err(|_| self.userd_fault(AccessKind::Write))
    }

    /// The channel stops because the host unit refuses something.
    pub(crate) fn host_error(&self, status: u32, method: Option<Method>) -> Ending {
        let error = HostError {
            channel: self.job.channel,
            pbdma: self.pbdma,
            status,
            method: method.map_or(0, Method::address_word),
            data: method.map_or(0, |method| method.data),
        };
        Report::Host(error).into()
    }

    /// Executes until the channel must leave.
    pub(crate) fn run(&mut self) -> Ending {
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
        if self.state.semaphore.pending {
            return self.acquire();
        }
        if self.state.operation_pending {
            let Some(engine) = self.engine_of(self.state.current_engine) else {
                self.state.operation_pending = false;
                return Ok(());
            };
            return self.engine(engine, Operation::Resume);
        }
        if let Some(method) = self.state.cached.take() {
            return self.execute(method);
        }
        if self.state.get < self.state.end {
            let word = self.fetch()?;
            return if self.state.header.remaining > 0 { self.data(word) } else { self.header(word) };
        }
        self.next_entry()
    }

    /// Leaves if the driver no longer wants the channel to run.
    fn check_admission(&mut self) -> Result<(), Ending> {
        self.taken = EngineSet::empty();
        let fifo = self.shared.fifo();
        let same = |entry: &crate::fifo::Channel| entry.generation == self.job.generation;
        let stays = fifo.may_run(self.job.channel)
            && fifo.pbdma_enabled(self.pbdma)
            && fifo.channel(self.job.channel).is_some_and(same);
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

    pub(crate) fn execute(&mut self, method: Method) -> Result<(), Ending> {
        if method.method == host::SET_OBJECT {
            self.shared.hardware.chip.host.bind(self, method)?;
        } else if method.method < host::ENGINE_METHODS {
            return self.shared.hardware.chip.host.method(self, method);
        }
        let number = self.bound(method.subchannel);
        match self.engine_of(number) {
            Some(engine) => {
                self.state.current_engine = number;
                self.engine(engine, Operation::Method(method))
            }
            None if method.method == host::SET_OBJECT => Ok(()),
            None => Err(self.host_error(pbdma_intr::EMPTY_SUBCHANNEL, Some(method))),
        }
    }

    /// The engine with this number, if the chip has it.
    pub(crate) fn engine_of(&self, number: u8) -> Option<Engine> {
        let engines = self.shared.hardware.chip.engines.iter().copied();
        engines.into_iter().find(|engine| engine_number(*engine) == number)
    }

    /// The engine number that a subchannel is bound to.
    pub(crate) fn bound(&self, subchannel: u8) -> u8 {
        self.state.engines.get(usize::from(subchannel)).copied().unwrap_or(host::ENGINE_SOFTWARE)
    }

    /// Gives an operation to an engine.
    fn engine(&mut self, engine: Engine, operation: Operation) -> Result<(), Ending> {
        let keep = |state: &mut HostState| {
            if let Operation::Method(method) = operation {
                state.cached = Some(method);
            }
        };
        if !self.taken.contains(engine.into()) {
            if !self.shared.fifo().take_engine(engine, self.job.channel) {
                keep(&mut self.state);
                return Err(Departure::NoEngine(engine).into());
            }
            self.taken |= engine.into();
        }
        let Some(unit) = self.shared.unit(engine) else { return Ok(()) };
        let hardware = &self.shared.hardware;
        let owner = Owner {
            channel: Some(self.job.channel),
            generation: self.job.generation,
            instance: self.job.instance,
        };
        let attention = self.shared.attention(self.pbdma);
        let control = Control {
            attention,
            abort: unit.abort(),
            slice_end: self.slice_end,
            preemption: hardware.preemption(),
        };
        match unit.execute(hardware, owner, &self.space, control, operation) {
            Ok(Executed::Switched(switch)) => {
                keep(&mut self.state);
                switch.tell(hardware);
                Ok(())
            }
            Ok(Executed::NotNow) => {
                keep(&mut self.state);
                Ok(())
            }
            Ok(Executed::Ran(progress, effects)) => {
                self.state.operation_pending = progress == Progress::Paused;
                self.tell_effects(engine, effects);
                if progress == Progress::Paused { self.check_slice() } else { Ok(()) }
            }
            Err(refusal) => {
                self.state.operation_pending = false;
                Err(self.refused(engine, operation, refusal))
            }
        }
    }

    fn tell_effects(&self, engine: Engine, effects: Effects) {
        if effects.released {
            self.shared.released();
        }
        if effects.interrupt {
            self.shared.hardware.tell(|events| events.non_stall(engine));
        }
    }

    fn refused(&self, engine: Engine, operation: Operation, refusal: Refusal) -> Ending {
        let method = match operation {
            Operation::Method(method) => method,
            Operation::Resume => Method { subchannel: 0, method: 0, data: 0 },
        };
        match refusal {
            Refusal::Fault(fault) => fault.into(),
            Refusal::Aborted => Departure::Stopped.into(),
            Refusal::Illegal => {
                log::debug!("softgpu: {engine:?} refuses method {:#x} = {:#x}", method.method, method.data);
                self.host_error(pbdma_intr::ILLEGAL_METHOD, Some(method))
            }
            Refusal::Robust(code) => {
                log::debug!("softgpu: {engine:?} refuses method {:#x} = {:#x}", method.method, method.data);
                Report::Channel(ChannelError { channel: self.job.channel, code }).into()
            }
            Refusal::Graphics { status, class } => {
                let error = GraphicsError {
                    channel: self.job.channel,
                    status,
                    subchannel: method.subchannel,
                    class,
                    method: method.method,
                    data: method.data,
                };
                Report::Graphics(error).into()
            }
        }
    }
}
