//! An engine as the rest of the GPU sees it: who is resident, what it does now, switching and reset.
//!
//! Locks: the engine's own is held while it switches or executes, at most until the next point where it can
//! pause. Nothing is told to the register face meanwhile: patches are returned and told by the caller.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::context::{Image, Patch};
use super::control::Control;
use super::model::{Effects, Model, Progress, Refusal, Run};
use super::work_time::WorkTime;
use crate::events::Events;
use crate::mmu::AddressSpace;
use crate::mmu::client::Client;
use crate::mmu::instance::{INSTANCE_READ, read_instance};
use crate::mmu::system::MemorySystem;
use gpuvmk_chip::addr::{GuestChannel, HostChannel};
use gpuvmk_chip::channel_event::{FaultUnit, MmuFault};
use gpuvmk_chip::stream::Method;
use gpuvmk_chip::{AccessKind, Engine, FaultReason, PhysicalAddress};
use gpuvmk_units::backend::EngineStatus;

/// Whose context an engine holds. A rebound channel is somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// `None` for a context that the driver made current by hand.
    pub(crate) channel: Option<HostChannel>,
    pub(crate) generation: u64,
    pub(crate) instance: PhysicalAddress,
}

/// What an engine is to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    /// A method.
    Method(Method),
    /// What it paused in.
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

/// What came of an operation.
#[derive(Debug)]
pub(crate) enum Executed {
    /// The context was switched first. The operation is to be given again.
    Switched(Switch),
    /// Nothing was begun, because the channel may have to leave. The operation is to be given again.
    NotNow,
    /// It ran.
    Ran(Progress, Effects),
}

#[derive(Debug)]
struct Resident {
    owner: Owner,
    image: Image,
}

#[derive(Debug)]
struct Inner {
    model: Box<dyn Model>,
    resident: Option<Resident>,
}

/// One engine.
#[derive(Debug)]
pub(crate) struct Unit {
    engine: Engine,
    inner: Mutex<Inner>,
    abort: AtomicBool,
    /// Resident channel plus 1; 0: none.
    channel: AtomicU32,
    work: WorkTime,
    switching: AtomicBool,
}

impl Unit {
    pub(crate) fn new(engine: Engine, model: Box<dyn Model>) -> Self {
        Self {
            engine,
            inner: Mutex::new(Inner { model, resident: None }),
            abort: AtomicBool::new(false),
            channel: AtomicU32::new(0),
            work: WorkTime::default(),
            switching: AtomicBool::new(false),
        }
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine
    }

    /// What long operations must watch to be stopped by a reset.
    pub(crate) fn abort(&self) -> &AtomicBool {
        &self.abort
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it does now; never waits for it.
    pub(crate) fn status(&self) -> EngineStatus {
        let channel = self.channel.load(Ordering::Acquire);
        EngineStatus {
            channel: channel.checked_sub(1).and_then(|channel| u16::try_from(channel).ok()).map(GuestChannel),
            busy: self.work.under_way(),
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
        let mut inner = self.lock();
        if control.attention.load(Ordering::Acquire) {
            // Whoever is told to leave must not begin anything: a reset may have just passed.
            return Ok(Executed::NotNow);
        }
        if inner.resident.as_ref().is_none_or(|resident| resident.owner != owner) {
            let switch = self.switch(system, &mut inner, Some(owner))?;
            return Ok(Executed::Switched(switch));
        }
        let client = Client {
            system,
            space,
            channel: owner.channel,
            unit: FaultUnit::Engine(self.engine),
            privileged: false,
        };
        let run = Run { memory: &client, clock: system.clock, control };
        let mut effects = Effects::default();
        let before = self.work.begin();
        let result = match operation {
            Operation::Method(method) => inner.model.method(&run, method, &mut effects),
            Operation::Resume => inner.model.resume(&run, &mut effects),
        };
        system.ledger.worked(owner.channel, self.engine, self.work.end().saturating_sub(before));
        if control.aborted() {
            return Err(Refusal::Aborted);
        }
        result.map(|progress| Executed::Ran(progress, effects))
    }

    /// Saves the resident context, and loads that of `next`.
    fn switch(
        &self,
        system: &MemorySystem,
        inner: &mut Inner,
        next: Option<Owner>,
    ) -> Result<Switch, MmuFault> {
        self.switching.store(true, Ordering::Release);
        let unsaved = self.save(system, inner).err();
        let patches = next.map_or(Ok(Vec::new()), |owner| self.load(system, inner, owner));
        self.switching.store(false, Ordering::Release);
        Ok(Switch { patches: patches?, unsaved })
    }

    /// Saves the resident context, if there is one. The error says whose it was.
    fn save(&self, system: &MemorySystem, inner: &mut Inner) -> Result<(), (Option<HostChannel>, MmuFault)> {
        self.channel.store(0, Ordering::Release);
        let Some(resident) = inner.resident.take() else { return Ok(()) };
        let saved = resident.image.write(system, inner.model.image_offset(), &inner.model.save());
        inner.model.reset();
        saved.map_err(|fault| (resident.owner.channel, fault))
    }

    fn load(&self, system: &MemorySystem, inner: &mut Inner, owner: Owner) -> Result<Vec<Patch>, MmuFault> {
        let Owner { channel, instance, .. } = owner;
        let block = read_instance(&system.memory, instance).ok_or(MmuFault {
            unit: FaultUnit::Engine(self.engine),
            address: gpuvmk_chip::addr::GpuVa(0),
            access: AccessKind::Read,
            reason: FaultReason::NoChannel,
        })?;
        let image = Image::of(system, self.engine, channel, &block)?;
        let mut bytes = vec![0; inner.model.image_size()];
        image.read(system, inner.model.image_offset(), &mut bytes)?;
        let patches = match self.engine {
            Engine::Graphics => image.patches(system)?,
            Engine::Copy(_) => Vec::new(),
        };
        inner.model.load(&bytes);
        inner.resident = Some(Resident { owner, image });
        self.channel.store(channel.map_or(0, |channel| u32::from(channel.0) + 1), Ordering::Release);
        Ok(patches)
    }

    /// Makes a context current by hand (the driver's FECS command), or drops the current one.
    pub(crate) fn bind(&self, system: &MemorySystem, owner: Option<Owner>) -> Result<Switch, MmuFault> {
        let mut inner = self.lock();
        if owner.is_some() {
            return self.switch(system, &mut inner, owner);
        }
        self.drop_resident(&mut inner);
        Ok(Switch::default())
    }

    /// Saves the current context to the image of `instance`, and unloads it.
    pub(crate) fn save_to(&self, system: &MemorySystem, instance: PhysicalAddress) -> Result<(), MmuFault> {
        let mut inner = self.lock();
        let block = read_instance(&system.memory, instance).unwrap_or([0; INSTANCE_READ]);
        let image = Image::of(system, self.engine, None, &block)?;
        let saved = image.write(system, inner.model.image_offset(), &inner.model.save());
        self.drop_resident(&mut inner);
        saved
    }

    fn drop_resident(&self, inner: &mut Inner) {
        self.channel.store(0, Ordering::Release);
        inner.resident = None;
        inner.model.reset();
    }

    /// Takes the context of a channel out, saved or dropped, if it is resident. The channel is on no PBDMA,
    /// so the engine does not execute for it.
    pub(crate) fn evict(&self, system: &MemorySystem, channel: HostChannel, save: bool) -> Switch {
        let mut switch = Switch::default();
        // The engine may work for others, for long: it is only locked while the channel is the resident one.
        while self.channel.load(Ordering::Acquire) == u32::from(channel.0) + 1 {
            let mut inner = match self.inner.try_lock() {
                Ok(inner) => inner,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    // Somebody switches it out right now.
                    std::thread::yield_now();
                    continue;
                }
            };
            if inner.resident.as_ref().is_some_and(|resident| resident.owner.channel == Some(channel)) {
                if save {
                    switch.unsaved = self.save(system, &mut inner).err();
                } else {
                    self.drop_resident(&mut inner);
                }
            }
        }
        switch
    }

    /// Drops work and context. Waits until the engine is where it can be stopped.
    pub(crate) fn reset(&self) {
        self.abort.store(true, Ordering::Release);
        let mut inner = self.lock();
        self.drop_resident(&mut inner);
        self.abort.store(false, Ordering::Release);
    }
}
