//! What the threads of PBDMAs and engines and the register face share.
//!
//! Locks, in the order in which they may be held together: the FIFO tables; the MMU in use; the tables of the
//! MMU, of DMA, of the ledger. An engine's lock is held alone, to take what the engine is made of and to put
//! it back: engines work without a lock, and never while the FIFO's is held. So is an inbox's, to put work in
//! and to take it. Events are told with none of them held, so that the receiver may call back; calls that
//! wait for PBDMAs and engines do not wait when one of them makes the call.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::long_work::Inbox;
use crate::Preemption;
use crate::engine::model::Effects;
use crate::engine::unit::Unit;
use crate::events::Events;
use crate::fifo::sleepers::{Pbdmas, bit};
use crate::fifo::{Fifo, Worker};
use crate::mmu::system::MemorySystem;
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostChannel;

thread_local! {
    /// True on the threads of PBDMAs and engines.
    static ON_UNIT: Cell<bool> = const { Cell::new(false) };
}

/// What the threads of PBDMAs and engines and the register face share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) system: MemorySystem,
    pub(crate) events: Events,
    /// Work leaves an engine between methods only.
    whole_methods: AtomicBool,
    fifo: Mutex<Fifo>,
    /// One condition for each PBDMA: a channel is ready for it.
    work: Vec<Condvar>,
    /// Condition: a channel has left its PBDMA or engine.
    left: Condvar,
    pub(crate) units: Vec<Unit>,
    /// For each engine, where its thread finds work.
    inboxes: Vec<Inbox>,
    /// One flag for each PBDMA: its channel may have to leave.
    attention: Vec<AtomicBool>,
}

impl Shared {
    /// Everything in reset, for so many PBDMAs.
    pub(crate) fn new(system: MemorySystem, fifo: Fifo, units: Vec<Unit>, pbdmas: u8) -> Self {
        Self {
            system,
            events: Events::default(),
            whole_methods: AtomicBool::new(false),
            fifo: Mutex::new(fifo),
            work: (0..pbdmas).map(|_| Condvar::new()).collect(),
            left: Condvar::new(),
            inboxes: units.iter().map(|_| Inbox::default()).collect(),
            units,
            attention: (0..pbdmas).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Where work leaves an engine that others want.
    pub(crate) fn preemption(&self) -> Preemption {
        if self.whole_methods.load(Ordering::Relaxed) { Preemption::Methods } else { Preemption::Anywhere }
    }

    /// Sets where work leaves an engine that others want.
    pub(crate) fn set_preemption(&self, preemption: Preemption) {
        self.whole_methods.store(preemption == Preemption::Methods, Ordering::Relaxed);
    }

    pub(crate) fn fifo(&self) -> MutexGuard<'_, Fifo> {
        self.fifo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn unit(&self, engine: Engine) -> Option<&Unit> {
        self.units.iter().find(|unit| unit.engine() == engine)
    }

    /// An engine, and where its thread finds work.
    pub(super) fn unit_and_inbox(&self, engine: Engine) -> Option<(&Unit, &Inbox)> {
        self.units.iter().zip(&self.inboxes).find(|(unit, _)| unit.engine() == engine)
    }

    /// Ends the threads of engines once they have nothing to do.
    pub(crate) fn close_inboxes(&self) {
        self.inboxes.iter().for_each(Inbox::close);
    }

    /// The engines that there are.
    pub(crate) fn engines(&self) -> impl Iterator<Item = Engine> {
        self.units.iter().map(Unit::engine)
    }

    /// The flag that tells a PBDMA to look whether its channel must leave.
    pub(crate) fn attention(&self, pbdma: u8) -> &AtomicBool {
        static NEVER: AtomicBool = AtomicBool::new(false);
        self.attention.get(usize::from(pbdma)).unwrap_or(&NEVER)
    }

    /// Makes the PBDMA or engine that has a channel check whether the channel must leave.
    pub(crate) fn alert(&self, worker: Worker) {
        match worker {
            Worker::Pbdma(pbdma) => self.attention(pbdma).store(true, Ordering::Release),
            Worker::Engine(engine) => {
                if let Some(unit) = self.unit(engine) {
                    unit.attention().store(true, Ordering::Release);
                }
            }
        }
    }

    /// Makes every PBDMA and every engine check whether its channel must leave.
    pub(crate) fn alert_all(&self) {
        for flag in self.attention.iter().chain(self.units.iter().map(Unit::attention)) {
            flag.store(true, Ordering::Release);
        }
    }

    /// Wakes as many sleeping PBDMAs as there are channels ready.
    pub(crate) fn wake(&self) {
        let called = self.fifo().call(Instant::now(), 0);
        self.wake_these(called);
    }

    /// Wakes PBDMAs that the FIFO has called. Called without its lock.
    pub(crate) fn wake_these(&self, called: Pbdmas) {
        let wanted = |(pbdma, _): &(u8, &Condvar)| called & bit(*pbdma) != 0;
        (0..).zip(&self.work).filter(wanted).for_each(|(_, work)| work.notify_one());
    }

    /// Who gave a channel back has told all that there was to tell of it.
    pub(crate) fn told(&self, channel: HostChannel) {
        self.fifo().end_telling(channel);
        self.left.notify_all();
    }

    pub(crate) fn tell_left(&self) {
        self.left.notify_all();
    }

    /// A report was written: acquires that wait look again.
    pub(crate) fn released(&self) {
        if self.fifo().retry_semaphores(Instant::now()) {
            self.wake();
        }
    }

    /// Tells what an engine did beside its work.
    pub(super) fn tell_effects(&self, engine: Engine, effects: Effects) {
        if effects.released {
            self.released();
        }
        if effects.interrupt {
            self.events.tell(|events| events.non_stall(engine));
        }
    }

    /// Sleeps until it is woken, or until `until`. Called with the FIFO locked, after [`Fifo::lie_down`].
    pub(crate) fn sleep<'a>(
        &self,
        fifo: MutexGuard<'a, Fifo>,
        pbdma: u8,
        until: Option<Instant>,
    ) -> MutexGuard<'a, Fifo> {
        // Every thread of a PBDMA has one.
        let Some(work) = self.work.get(usize::from(pbdma)) else { return fifo };
        match until {
            None => work.wait(fifo).unwrap_or_else(PoisonError::into_inner),
            Some(until) => {
                let time = until.saturating_duration_since(Instant::now());
                work.wait_timeout(fifo, time).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Waits until no PBDMA and no engine has the channel, or has yet to tell how its stay ended (without a
    /// number: until none has any channel). One that calls back from an event does not wait: two of them
    /// would wait for each other.
    pub(crate) fn wait_left<'a>(
        &self,
        fifo: MutexGuard<'a, Fifo>,
        channel: Option<HostChannel>,
    ) -> MutexGuard<'a, Fifo> {
        if ON_UNIT.get() {
            return fifo;
        }
        let at_work = |fifo: &mut Fifo| match channel {
            None => fifo.any_at_work(),
            Some(channel) => fifo.is_busy(channel),
        };
        self.left.wait_while(fifo, at_work).unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a channel's contexts off the engines, saved to their images or dropped.
    pub(crate) fn evict(&self, channel: HostChannel, save: bool) {
        for unit in &self.units {
            unit.evict(&self.system, channel, save).tell(&self.events);
        }
    }
}

/// Marks the calling thread as a PBDMA's or an engine's, so that calls back from its events never wait for
/// itself.
pub(super) fn become_unit() {
    ON_UNIT.set(true);
}
