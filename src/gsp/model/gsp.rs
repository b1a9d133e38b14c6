//! The virtual GSP: the firmware that a driver loads, boots and talks to, played here.
//!
//! A pure state machine over the function's memory and its back. Who holds it calls [`Gsp::boot`] when FSP
//! was told where the boot arguments are, [`Gsp::commands`] when the driver rang, and [`Gsp::stopped`] when
//! the back stopped a channel, and carries out the [`Effect`]s.

use super::config::GspConfig;
use super::counters::{Counters, Note};
use super::effect::Effect;
use super::error::{BootError, Refused, SavedError};
use super::events::Event;
use super::kernel_channels::KernelWork;
use super::message::{Assembled, Assembly, Request};
use super::queue::{Queues, Record, Unsent};
use super::refusals::Refusals;
use super::rm::Rm;
use super::robust_channel::RobustChannelError;
use super::token::{DoorbellTarget, Token};
use super::{boot, events, kernel_channels, rpc, saved};
use crate::abi::status::Status;
use crate::abi::{self, Abi};
use gpuvmk_backend::{GspBackend, ObjectUsage};
use gpuvmk_chip::addr::{Chid, GuestChannel};
use gpuvmk_chip::channel_event::ChannelStop;

/// What GSP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not booted, or unloaded.
    Off,
    /// Reads its queue.
    Running,
    /// Unloaded by a driver that will come back: objects and queues are kept.
    Suspended,
}

/// The virtual GSP of one function.
#[derive(Debug)]
pub struct Gsp {
    pub(super) state: State,
    pub(super) queues: Option<Queues>,
    pub(super) assembly: Assembly,
    pub(super) rm: Rm,
    /// The checksum of what was written into the guest's memory, while GSP is still as it was then.
    pub(super) kept: Option<u64>,
}

impl Gsp {
    /// A GSP that was not booted.
    pub fn new(config: GspConfig) -> Self {
        Self::with_abi(config, abi::usual())
    }

    /// A GSP that speaks a certain version of the message ABI, until a driver says that it speaks another.
    pub fn with_abi(config: GspConfig, abi: &'static Abi) -> Self {
        Self {
            state: State::Off,
            queues: None,
            assembly: Assembly::default(),
            rm: Rm::new(config, abi),
            kept: None,
        }
    }

    /// Boots with the arguments at a bus address. 0 wakes a GSP that was suspended without memory to be kept
    /// in.
    ///
    /// # Errors
    /// See [`BootError`].
    pub fn boot(&mut self, back: &impl GspBackend, libos_arguments: u64) -> Result<Vec<Effect>, BootError> {
        let back: &dyn GspBackend = back;
        if libos_arguments == 0 {
            if self.state != State::Suspended || self.kept.is_some() {
                return Err(BootError::Arguments(
                    "there are none, and nothing was suspended without memory for it",
                ));
            }
        } else {
            let queues = boot::queues(back, libos_arguments)?;
            self.rm.clear(back);
            self.rm
                .make_internal()
                .map_err(|_| BootError::Arguments("the firmware's own objects exist already"))?;
            self.assembly = Assembly::default();
            self.queues = Some(queues);
        }
        Ok(self.run(back, libos_arguments != 0))
    }

    /// Where a driver that lays out VRAM itself has put the heap outside of the protected region, from the
    /// description of the image that it boots.
    pub fn set_non_wpr_heap(&mut self, offset: u64) {
        self.rm.non_wpr_heap = offset;
    }

    /// Bytes of memory that a driver must provide for a suspension.
    pub fn saved_room(&self) -> u64 {
        saved::room(&self.rm.config)
    }

    /// Ends at once, as the unit's reset ends firmware that runs. What is suspended stays.
    pub fn stop(&mut self, back: &impl GspBackend) -> Vec<Effect> {
        if self.state != State::Running {
            return Vec::new();
        }
        self.rm.clear(back);
        self.rm.effects.clear();
        self.assembly = Assembly::default();
        (self.state, self.queues) = (State::Off, None);
        vec![Effect::Halted { suspend: false }]
    }

    /// True when what lies at a bus address names memory in which a GSP is suspended: [`Gsp::resume`] takes
    /// it.
    pub fn is_suspended_at(back: &impl GspBackend, description: u64) -> bool {
        saved::is_named_at(back, description)
    }

    /// Writes what a suspension keeps into the memory that is named at bus address `description`: some
    /// versions' drivers say where that is after they have unloaded GSP, when its processor stops.
    ///
    /// # Errors
    /// Nothing is suspended, or the memory cannot take it. GSP stays suspended as it is: it can go on in this
    /// process, before a reset.
    pub fn keep(&mut self, back: &impl GspBackend, description: u64) -> Result<(), SavedError> {
        let back: &dyn GspBackend = back;
        if self.state != State::Suspended {
            return Err(SavedError::NoState);
        }
        if self.kept.is_some() && self.rm.saved_at == Some(description) {
            return Ok(());
        }
        let Some(queues) = &self.queues else { return Err(SavedError::NoState) };
        match saved::save(&self.rm, back, queues.spot(), description) {
            Ok(sum) => {
                (self.kept, self.rm.saved_at) = (Some(sum), Some(description));
                Ok(())
            }
            Err(error) => {
                self.rm.not_saved(error);
                Err(error)
            }
        }
    }

    /// Goes on after a suspension, with what the driver hands over: `description` is the bus address of what
    /// names the memory.
    ///
    /// # Errors
    /// [`BootError::Saved`]. Nothing is left of what GSP had.
    pub fn resume(&mut self, back: &impl GspBackend, description: u64) -> Result<Vec<Effect>, BootError> {
        let back: &dyn GspBackend = back;
        if let Err(error) = self.take_back(back, description) {
            self.rm.clear(back);
            self.rm.effects.clear();
            (self.state, self.queues, self.kept) = (State::Off, None, None);
            self.rm.counters.restores_refused = self.rm.counters.restores_refused.saturating_add(1);
            return Err(error.into());
        }
        Ok(self.run(back, false))
    }

    /// Brings everything to where it was.
    fn take_back(&mut self, back: &dyn GspBackend, description: u64) -> Result<(), SavedError> {
        let state = saved::read(&self.rm.config, back, description)?;
        if self.state == State::Suspended && self.kept == Some(state.checksum) {
            return Ok(());
        }
        self.rm.clear(back);
        self.rm.effects.clear();
        self.rm.make_internal().map_err(|_| SavedError::NoState)?;
        self.assembly = Assembly::default();
        self.queues = Some(saved::restore(&mut self.rm, back, &state)?);
        if self.rm.abi.resume_runs_channels { Err(SavedError::Vram) } else { Ok(()) }
    }

    /// Runs, from the first command in the queue; `anew`: after a boot, not after a suspension.
    fn run(&mut self, back: &dyn GspBackend, anew: bool) -> Vec<Effect> {
        self.state = State::Running;
        self.kept = None;
        if self.rm.abi.resume_runs_channels && self.rm.channels.is_held() {
            // A back that cannot let channels run is gone, and tells so itself.
            let _ = saved::let_run(&mut self.rm, back);
        }
        let mut effects = vec![Effect::Running];
        effects.extend(self.drain(back));
        if anew && self.rm.config.hal.cpu_sequencer {
            // No interrupt: the driver takes it while it polls for the next one.
            let _ = self.post(back, &events::run_cpu_sequencer());
        }
        // No interrupt: the driver polls for this one. In a resume its handler is in place already, and would
        // take the event out of the queue before the poll sees it.
        let _ = self.post(back, &events::init_done());
        self.tell_lost(back);
        effects.append(&mut self.rm.effects);
        effects
    }

    /// Carries out what is in the command queue. `now` is the time.
    pub fn commands(&mut self, back: &impl GspBackend, now: u64) -> Vec<Effect> {
        // What programs read without asking is up to date when they hear an answer.
        self.rm.now = now;
        self.rm.shared_data.look(back, now);
        self.drain(back)
    }

    /// A doorbell for a channel of the driver's kernel, which [`Gsp::kernel_work`] carries out. False: its
    /// token names no such channel.
    pub fn kernel_doorbell(&mut self, (runlist, chid): (u16, Chid)) -> bool {
        self.rm.kernel_channels.ring(Token { runlist, chid })
    }

    /// Carries out a piece of what channels of the driver's kernel were told, and looks whether waits are
    /// over. `now` is the time.
    pub fn kernel_work(&mut self, back: &impl GspBackend, now: u64) -> Vec<Effect> {
        self.carry_out_kernels(back, now)
    }

    /// Whether there are such channels.
    pub fn has_kernel_channels(&self) -> bool {
        !self.rm.kernel_channels.is_empty()
    }

    /// What they have left to do.
    pub fn kernel_left(&self) -> KernelWork {
        self.rm.kernel_channels.left()
    }

    /// Tells the driver that a channel was stopped.
    pub fn stopped(&mut self, back: &impl GspBackend, stop: ChannelStop<GuestChannel>) -> Vec<Effect> {
        let Some(token) = self.rm.channels.stopped(stop.channel) else {
            return Vec::new();
        };
        self.rm.counters.channels_stopped = self.rm.counters.channels_stopped.saturating_add(1);
        self.tell_stopped(back, token, stop.cause.into()).into_iter().collect()
    }

    /// The channel of a doorbell token.
    pub fn doorbell_target(&self, runlist: u16, chid: Chid) -> Option<DoorbellTarget> {
        self.rm.channels.doorbell_target(Token { runlist, chid })
    }

    /// VRAM address of BAR1's top page table, which the driver fills in itself.
    pub fn bar1_root(&self) -> u64 {
        self.rm.config.bar1_root()
    }

    /// VRAM address by which the driver names BAR2's page directory in TLB invalidations.
    pub fn bar2_root(&self) -> u64 {
        self.rm.config.bar2_root()
    }

    /// What happened since the function was reset.
    pub fn counters(&self) -> Counters {
        self.rm.counters
    }

    /// Calls that were answered with an error, since this was made.
    pub fn refusals(&self) -> Refusals {
        self.rm.refusals
    }

    /// What a log should say, since the last call of this.
    pub fn take_notes(&mut self) -> Vec<Note> {
        self.rm.notes.take()
    }

    /// Objects that the driver has, the three that firmware made for it included.
    pub fn objects(&self) -> usize {
        self.rm.objects.len()
    }

    /// How far the driver is from its limit of objects.
    pub fn take_object_usage(&mut self) -> ObjectUsage {
        self.rm.objects.take_usage()
    }

    /// Carries out what was in the command queue when it was looked at. What the driver adds meanwhile has a
    /// doorbell of its own, so a driver that never stops cannot keep us here.
    fn drain(&mut self, back: &dyn GspBackend) -> Vec<Effect> {
        let mut left = match self.queues.as_ref().map(|queues| queues.available(back)) {
            Some(Ok(available)) => available,
            Some(Err(refused)) if self.state == State::Running => {
                self.refuse(refused);
                0
            }
            Some(Err(_)) | None => 0,
        };
        while self.state == State::Running && left > 0 {
            let Some(queues) = self.queues.as_mut() else { break };
            match queues.receive(back, &mut left, self.rm.abi.parameters_follow) {
                Ok(record) => self.take(back, record),
                Err(refused) => {
                    self.refuse(refused);
                    if let Refused::Checksum { function, sequence } = refused {
                        // The driver waits for something; only what it is may be wrong.
                        self.reply(
                            back,
                            &Request { function, sequence, body: Vec::new() },
                            Status::InvalidData.code(),
                        );
                    }
                }
            }
        }
        std::mem::take(&mut self.rm.effects)
    }

    /// Carries out what channels of the driver's kernel were told. One that goes no further is told of.
    fn carry_out_kernels(&mut self, back: &dyn GspBackend, now: u64) -> Vec<Effect> {
        let Rm { kernel_channels, objects, channels, config, .. } = &mut self.rm;
        let done = kernel_channels.run((objects, channels), (back, config.hal.mmu), now);
        let mut effects: Vec<_> = done.notified.engines().map(Effect::NonStall).collect();
        for (token, engine, refusal) in done.refused {
            self.rm.channels.stop(token);
            self.rm.counters.channels_stopped = self.rm.counters.channels_stopped.saturating_add(1);
            self.rm.note(Note::KernelChannel { doorbell: token.doorbell(), refusal });
            effects.extend(self.tell_stopped(back, token, kernel_channels::error(engine, refusal)));
        }
        effects
    }

    /// Counts a record that was not taken.
    fn refuse(&mut self, refused: Refused) {
        self.rm.counters.records_refused = self.rm.counters.records_refused.saturating_add(1);
        self.rm.note(Note::Record(refused));
    }

    /// Takes a record, and carries the RPC out that it completes.
    fn take(&mut self, back: &dyn GspBackend, record: Record) {
        let counters = &mut self.rm.counters;
        counters.sequence_gaps = counters.sequence_gaps.saturating_add(record.gap.into());
        let (assembled, given_up) = self.assembly.push(record);
        let lost = given_up || matches!(assembled, Assembled::Orphan | Assembled::TooLarge(_));
        counters.continuations_refused = counters.continuations_refused.saturating_add(lost.into());
        match assembled {
            Assembled::Whole(mut request) => {
                let held = self.rm.channels.is_held();
                let Some(result) = rpc::dispatch(&mut self.rm, back, &mut request) else { return };
                let result = match self.save(back, &request) {
                    Ok(()) => result,
                    Err(error) => {
                        // GSP runs on as before: the driver was not told that it may take the power away.
                        self.rm.effects.pop();
                        let _ = self.rm.channels.hold(back, held);
                        self.rm.not_saved(error).code()
                    }
                };
                self.reply(back, &request, result);
                self.note_state();
                self.tell_lost(back);
            }
            Assembled::TooLarge(request) => self.reply(back, &request, Status::InsufficientResources.code()),
            Assembled::Waiting | Assembled::Orphan => {}
        }
    }

    /// Writes what a suspension keeps, if this request began one, and the driver named memory for it.
    fn save(&mut self, back: &dyn GspBackend, request: &Request) -> Result<(), SavedError> {
        let suspends = matches!(self.rm.effects.last(), Some(Effect::Halted { suspend: true }));
        if let (true, Some(address), Some(queues)) = (suspends, self.rm.saved_at, &self.queues) {
            let spot = queues.spot_after(request.body.len());
            self.kept = Some(saved::save(&self.rm, back, spot, address)?);
        }
        Ok(())
    }

    /// Tells the driver of channels that did not survive a suspension.
    fn tell_lost(&mut self, back: &dyn GspBackend) {
        for (token, error) in std::mem::take(&mut self.rm.lost) {
            self.rm.counters.channels_stopped = self.rm.counters.channels_stopped.saturating_add(1);
            let effect = self.tell_stopped(back, token, error);
            self.rm.effects.extend(effect);
        }
    }

    /// Tells the driver that a channel was stopped. Who waits for it, or for one of its group, finds the
    /// error in memory before the event comes.
    fn tell_stopped(
        &mut self,
        back: &dyn GspBackend,
        token: Token,
        error: RobustChannelError,
    ) -> Option<Effect> {
        let group = self.rm.objects.group_of(token);
        let together = group.and_then(|group| self.rm.objects.channels_of(group).ok());
        self.rm.notifiers.write(back, together.as_deref().unwrap_or(&[token]), error);
        let log = events::error_log(self.rm.abi, token, error);
        let logged = log.and_then(|log| self.post(back, &log));
        let event = events::rc_triggered(self.rm.abi, token, error, together.is_some());
        self.post(back, &event).or(logged)
    }

    /// Follows the effects that end GSP's running.
    fn note_state(&mut self) {
        match self.rm.effects.last() {
            Some(Effect::Halted { suspend: true }) => self.state = State::Suspended,
            Some(Effect::Halted { suspend: false }) => {
                self.state = State::Off;
                self.queues = None;
            }
            _ => {}
        }
    }

    /// Answers a request.
    fn reply(&mut self, back: &dyn GspBackend, request: &Request, result: u32) {
        let Some(queues) = self.queues.as_mut() else { return };
        if let Err(unsent) = queues.send(back, request.function, request.sequence, result, &request.body) {
            self.rm.counters.replies_dropped = self.rm.counters.replies_dropped.saturating_add(1);
            self.unsent(unsent);
        }
    }

    /// Sends an event, if GSP runs.
    pub(super) fn post(&mut self, back: &dyn GspBackend, event: &Event) -> Option<Effect> {
        let Some(queues) = self.queues.as_mut().filter(|_| self.state == State::Running) else {
            self.rm.counters.events_dropped = self.rm.counters.events_dropped.saturating_add(1);
            return None;
        };
        match queues.send(back, event.function, 0, 0, &event.body) {
            Ok(()) => {
                self.rm.counters.events = self.rm.counters.events.saturating_add(1);
                Some(Effect::Interrupt)
            }
            Err(unsent) => {
                self.rm.counters.events_dropped = self.rm.counters.events_dropped.saturating_add(1);
                self.unsent(unsent);
                None
            }
        }
    }

    fn unsent(&mut self, unsent: Unsent) {
        self.rm.note(match unsent {
            Unsent::Full => Note::QueueFull,
            Unsent::NoMemory => Note::Record(Refused::NoMemory),
        });
    }
}
