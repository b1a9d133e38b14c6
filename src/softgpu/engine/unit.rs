//! An engine as the rest of the GPU sees it: who is resident, what it does now, switching and reset.
//!
//! Whoever switches it or has it execute takes what it is made of from its [`Seat`], at most until the next
//! point where it can pause, and holds no lock meanwhile. Nothing is told to the register face by then
//! either: patches are returned and told by the caller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::context::{Image, Patch};
use super::control::Control;
use super::crew::Crew;
use super::kept::Kept;
use super::model::{Effects, Model, Progress, Refusal, Run};
use super::not_executed::NotExecuted;
use super::owner::Owner;
use super::seat::Seat;
use super::shared_image::SharedImage;
use super::work_time::WorkTime;
use crate::events::Events;
use crate::mmu::AddressSpace;
use crate::mmu::client::Client;
use crate::mmu::instance::{INSTANCE_READ, read_instance};
use crate::mmu::system::MemorySystem;
use gpuvmk_backend::EngineStatus;
use gpuvmk_chip::addr::{GuestChannel, HostChannel};
use gpuvmk_chip::channel_event::{FaultUnit, MmuFault};
use gpuvmk_chip::stream::Method;
use gpuvmk_chip::{AccessKind, Engine, FaultReason, PhysicalAddress};

/// What an engine is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// A method.
    Method(Method),
    /// The operation that paused, to be continued.
    Resume,
}

/// A change of context, for the caller to tell once it holds no lock.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    /// What the patch list of the new context asks for.
    pub(crate) patches: Vec<Patch>,
    /// The old context could not be saved; whose it was.
    pub(crate) unsaved: Option<(Option<HostChannel>, MmuFault)>,
}

impl Switch {
    pub(crate) fn tell(&self, events: &Events) {
        if let Some((channel, fault)) = self.unsaved {
            events.fault(channel, fault);
        }
        for patch in &self.patches {
            events.tell(|events| events.patch_register(patch.register, patch.value));
        }
    }
}

/// Result of an operation.
#[derive(Debug)]
pub(crate) enum Executed {
    /// The context was switched first. The operation is to be given again.
    Switched(Switch),
    /// Nothing was begun, because the channel may have to leave. The operation is to be given again.
    NotNow,
    /// It ran. What paused on the host unit's thread is for the engine's own to go on with.
    Ran(Progress, Effects),
}

#[derive(Debug)]
struct Resident {
    owner: Owner,
    image: SharedImage,
}

/// What is taken out of the seat for work: the engine's state and its owner.
#[derive(Debug)]
struct Parts {
    model: Box<dyn Model>,
    resident: Option<Resident>,
}

/// An engine of the GPU.
#[derive(Debug)]
pub(crate) struct Unit {
    engine: Engine,
    seat: Seat<Parts>,
    abort: AtomicBool,
    /// The channel that its thread works for may have to leave.
    attention: AtomicBool,
    /// It has begun something that its thread is to go on with, or goes on with.
    long_work: AtomicBool,
    /// Resident channel plus 1; 0: none.
    channel: AtomicU32,
    work: WorkTime,
    switching: AtomicBool,
    /// What contexts have that their images do not hold.
    kept: Kept,
    not_executed: NotExecuted,
    crew: Arc<Crew>,
}

/// Tells that nothing is resident and nothing goes on, after work that ended by a panic.
struct Cleared<'a>(&'a Unit);

impl Drop for Cleared<'_> {
    fn drop(&mut self) {
        let Self(unit) = self;
        if unit.work.under_way() {
            unit.work.end();
        }
        unit.end_of_long_work();
        unit.channel.store(0, Ordering::Release);
        unit.switching.store(false, Ordering::Release);
    }
}

impl Unit {
    /// An engine as after power-on, and after work that ended by a mistake of ours: what `model` makes. The
    /// crew helps it.
    pub(crate) fn new(engine: Engine, model: fn() -> Box<dyn Model>, crew: &Arc<Crew>) -> Self {
        Self {
            engine,
            seat: Seat::new(move || Parts { model: model(), resident: None }),
            abort: AtomicBool::new(false),
            attention: AtomicBool::new(false),
            long_work: AtomicBool::new(false),
            channel: AtomicU32::new(0),
            work: WorkTime::default(),
            switching: AtomicBool::new(false),
            kept: Kept::default(),
            not_executed: NotExecuted::default(),
            crew: Arc::clone(crew),
        }
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine
    }

    /// What long operations must watch to be stopped by a reset.
    pub(crate) fn abort(&self) -> &AtomicBool {
        &self.abort
    }

    /// The flag that tells the engine's thread to look whether its channel must leave.
    pub(crate) fn attention(&self) -> &AtomicBool {
        &self.attention
    }

    /// Its thread has ended what it was given.
    pub(crate) fn end_of_long_work(&self) {
        self.long_work.store(false, Ordering::Release);
    }

    /// Launches that ended because this model does not execute them.
    pub(crate) fn not_executed(&self) -> u64 {
        self.not_executed.count()
    }

    /// What it does now; never waits for it.
    pub(crate) fn status(&self) -> EngineStatus {
        let channel = self.channel.load(Ordering::Acquire);
        EngineStatus {
            channel: channel.checked_sub(1).and_then(|channel| u16::try_from(channel).ok()).map(GuestChannel),
            busy: self.long_work.load(Ordering::Acquire) || self.work.under_way(),
            switching: self.switching.load(Ordering::Acquire),
        }
    }

    /// How long it has worked, up to now; never waits for it.
    pub(crate) fn busy_time(&self) -> Duration {
        self.work.sum()
    }

    /// Executes for `owner`, whose context is switched in first if it is not resident.
    pub(crate) fn execute(
        &self,
        system: &MemorySystem,
        owner: Owner,
        space: &AddressSpace,
        control: Control<'_>,
        operation: Operation,
    ) -> Result<Executed, Refusal> {
        self.work_with(|parts| self.execute_with(parts, system, owner, space, control, operation))
    }

    /// Waits until nobody works with the engine, and does `work`.
    fn work_with<R>(&self, work: impl FnOnce(&mut Parts) -> R) -> R {
        self.seat.with(|parts| self.watched(parts, work))
    }

    /// Does `work`. Should it panic, the engine counts as idle and empty before its fresh parts lie ready.
    fn watched<R>(&self, parts: &mut Parts, work: impl FnOnce(&mut Parts) -> R) -> R {
        let cleared = Cleared(self);
        let result = work(parts);
        std::mem::forget(cleared);
        result
    }

    fn execute_with(
        &self,
        parts: &mut Parts,
        system: &MemorySystem,
        owner: Owner,
        space: &AddressSpace,
        control: Control<'_>,
        operation: Operation,
    ) -> Result<Executed, Refusal> {
        if control.attention.load(Ordering::Acquire) {
            // Whoever is told to leave must not begin anything: a reset may have just passed.
            return Ok(Executed::NotNow);
        }
        if parts.resident.as_ref().is_none_or(|resident| resident.owner != owner) {
            let switch = self.switch(system, parts, Some(owner))?;
            return Ok(Executed::Switched(switch));
        }
        let client = Client {
            system,
            space,
            channel: owner.channel,
            unit: FaultUnit::Engine(self.engine),
            privileged: false,
        };
        let run = Run {
            memory: &client,
            clock: system.clock,
            control,
            crew: &self.crew,
            not_executed: &self.not_executed,
        };
        let mut effects = Effects::default();
        let before = self.work.begin();
        let result = match operation {
            Operation::Method(method) => parts.model.method(&run, method, &mut effects),
            Operation::Resume => parts.model.resume(&run, &mut effects),
        };
        let aborted = control.aborted();
        if !aborted && control.place.is_host_unit() && result == Ok(Progress::Paused) {
            // Busy without a gap, until its thread has done the rest.
            self.long_work.store(true, Ordering::Release);
        }
        system.ledger.worked(owner.channel, self.engine, self.work.end().saturating_sub(before));
        if aborted {
            return Err(Refusal::Aborted);
        }
        result.map(|progress| Executed::Ran(progress, effects))
    }

    /// Saves the resident context, and loads that of `next`.
    fn switch(
        &self,
        system: &MemorySystem,
        parts: &mut Parts,
        next: Option<Owner>,
    ) -> Result<Switch, MmuFault> {
        self.switching.store(true, Ordering::Release);
        let unsaved = self.save(system, parts).err();
        let patches = next.map_or(Ok(Vec::new()), |owner| self.load(system, parts, owner));
        self.switching.store(false, Ordering::Release);
        Ok(Switch { patches: patches?, unsaved })
    }

    /// Saves the resident context, if there is one. The error says whose it was.
    fn save(&self, system: &MemorySystem, parts: &mut Parts) -> Result<(), (Option<HostChannel>, MmuFault)> {
        self.channel.store(0, Ordering::Release);
        let Some(resident) = parts.resident.take() else { return Ok(()) };
        let saved = resident.image.save(system, parts.model.as_ref());
        if let Some(work) = parts.model.take_out() {
            self.kept.put(resident.owner, work);
        }
        parts.model.reset();
        saved.map_err(|fault| (resident.owner.channel, fault))
    }

    fn load(&self, system: &MemorySystem, parts: &mut Parts, owner: Owner) -> Result<Vec<Patch>, MmuFault> {
        let Owner { channel, instance, .. } = owner;
        let block = read_instance(&system.memory, instance).ok_or(MmuFault {
            unit: FaultUnit::Engine(self.engine),
            address: gpuvmk_chip::addr::GpuVa(0),
            access: AccessKind::Read,
            reason: FaultReason::NoChannel,
        })?;
        let image = Image::of(system, self.engine, channel, &block)?;
        let patches = match self.engine {
            Engine::Graphics => image.patches(system)?,
            _ => Vec::new(),
        };
        let image = SharedImage::of(system, image, parts.model.as_ref())?;
        image.load(system, parts.model.as_mut())?;
        if let Some(work) = self.kept.take(owner) {
            parts.model.put_back(work);
        }
        parts.resident = Some(Resident { owner, image });
        self.channel.store(channel.map_or(0, |channel| u32::from(channel.0) + 1), Ordering::Release);
        Ok(patches)
    }

    /// Makes a context current by hand (the driver's FECS command), or drops the current one.
    pub(crate) fn bind(&self, system: &MemorySystem, owner: Option<Owner>) -> Result<Switch, MmuFault> {
        self.work_with(|parts| {
            if owner.is_some() {
                return self.switch(system, parts, owner);
            }
            self.drop_resident(parts);
            Ok(Switch::default())
        })
    }

    /// Saves the current context to the image of `instance`, and unloads it.
    pub(crate) fn save_to(&self, system: &MemorySystem, instance: PhysicalAddress) -> Result<(), MmuFault> {
        self.work_with(|parts| {
            let block = read_instance(&system.memory, instance).unwrap_or([0; INSTANCE_READ]);
            let image = Image::of(system, self.engine, None, &block)?;
            let saved =
                SharedImage::of(system, image, parts.model.as_ref())?.save(system, parts.model.as_ref());
            self.drop_resident(parts);
            saved
        })
    }

    fn drop_resident(&self, parts: &mut Parts) {
        self.channel.store(0, Ordering::Release);
        parts.resident = None;
        parts.model.reset();
    }

    /// Takes the context of a channel out, saved or dropped, if it is resident. The channel is on no PBDMA,
    /// so the engine does not execute for it.
    pub(crate) fn evict(&self, system: &MemorySystem, channel: HostChannel, save: bool) -> Switch {
        let mut switch = Switch::default();
        if !save {
            self.kept.forget(channel);
        }
        // The engine may work for others, for long: it is only waited for while the channel is the resident
        // one, and while somebody switches, for it may be this one that is being saved.
        let wanted = || {
            let resident = self.channel.load(Ordering::Acquire) == u32::from(channel.0) + 1;
            resident || self.switching.load(Ordering::Acquire)
        };
        let evict = |parts: &mut Parts| {
            if parts.resident.as_ref().is_none_or(|resident| resident.owner.channel != Some(channel)) {
                return;
            }
            if save {
                switch.unsaved = self.save(system, parts).err();
            } else {
                self.drop_resident(parts);
            }
        };
        self.seat.with_if(wanted, |parts| self.watched(parts, evict));
        switch
    }

    /// Drops work and context. Waits until the engine is where it can be stopped. Whoever comes to the engine
    /// from now on meets it when all is over.
    pub(crate) fn reset(&self) {
        self.seat.with_first(
            || self.abort.store(true, Ordering::Release),
            |parts| {
                self.watched(parts, |parts| self.drop_resident(parts));
                self.abort.store(false, Ordering::Release);
            },
        );
    }
}

#[cfg(test)]
mod tests;
