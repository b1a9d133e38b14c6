//! The way back: what the aggregator tells becomes what the register face shows.
//!
//! The link's thread calls in here while a front-end thread may be inside a request, or (in process) on that very
//! thread. So this side takes no lock of the mediator: what both sides must know of a channel is a set of atomic
//! flags, and the front-end side folds them in at its next request.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::status::Counters;
use crate::addr::GuestChannel;
use crate::aggregator::link::EventHandler;
use crate::aggregator::protocol::Event;
use crate::units::backend::EngineEvents;

/// The register face, once it is connected.
pub(super) type Face = Arc<OnceLock<Arc<dyn EngineEvents>>>;

/// The host has this channel.
const LIVE: u8 = 1 << 0;
/// A preemption was started and is not complete.
const PREEMPTING: u8 = 1 << 1;
/// Hardware stopped the channel; the front-end side does not know yet.
const FAULTED: u8 = 1 << 2;

/// The receiver of one connection's events, and what it shares with the front-end side.
pub(super) struct EventPath {
    face: Face,
    counters: Arc<Counters>,
    /// False once the connection was replaced: what comes late is dropped.
    armed: AtomicBool,
    channels: Box<[AtomicU8]>,
    preempting: AtomicUsize,
    lost: AtomicBool,
    lost_reason: Mutex<String>,
    told: AtomicBool,
}

impl EventPath {
    pub fn new(face: Face, counters: Arc<Counters>, channels: u16) -> Self {
        Self {
            face,
            counters,
            armed: AtomicBool::new(true),
            channels: (0..channels).map(|_| AtomicU8::new(0)).collect(),
            preempting: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            lost_reason: Mutex::new(String::new()),
            told: AtomicBool::new(false),
        }
    }

    fn flags(&self, channel: u16) -> Option<&AtomicU8> {
        self.channels.get(usize::from(channel))
    }

    /// True when the host has the channel.
    pub fn is_live(&self, channel: u16) -> bool {
        self.flags(channel).is_some_and(|flags| flags.load(Ordering::Acquire) & LIVE != 0)
    }

    /// The host has the channel from now on.
    pub fn set_live(&self, channel: u16) {
        if let Some(flags) = self.flags(channel) {
            flags.store(LIVE, Ordering::Release);
        }
    }

    /// The host does not have the channel any more; what was pending for it is over.
    pub fn clear_live(&self, channel: u16) {
        self.end_preemption(channel);
        if let Some(flags) = self.flags(channel) {
            flags.store(0, Ordering::Release);
        }
    }

    /// True, once, when hardware stopped the channel.
    pub fn take_fault(&self, channel: u16) -> bool {
        self.flags(channel).is_some_and(|flags| flags.fetch_and(!FAULTED, Ordering::AcqRel) & FAULTED != 0)
    }

    /// Notes that a preemption begins, before the request is sent: the event may be faster than the reply.
    pub fn begin_preemption(&self, channel: u16) {
        if let Some(flags) = self.flags(channel)
            && flags.fetch_or(PREEMPTING, Ordering::AcqRel) & PREEMPTING == 0
        {
            self.preempting.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Notes that the preemption is over.
    pub fn end_preemption(&self, channel: u16) {
        if let Some(flags) = self.flags(channel)
            && flags.fetch_and(!PREEMPTING, Ordering::AcqRel) & PREEMPTING != 0
        {
            self.preempting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// True while a preemption is not complete.
    pub fn preemption_pending(&self) -> bool {
        self.preempting.load(Ordering::Acquire) != 0
    }

    /// Forgets all channels.
    pub fn clear_all(&self) {
        for channel in 0..u16::try_from(self.channels.len()).unwrap_or(u16::MAX) {
            self.clear_live(channel);
        }
    }

    /// Nothing that comes from now on is passed on.
    pub fn disarm(&self) {
        self.armed.store(false, Ordering::Release);
    }

    /// Why the aggregator is gone, if it is.
    pub fn loss(&self) -> Option<String> {
        let reason = || self.lost_reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.lost.load(Ordering::Acquire).then(reason)
    }

    /// Tells the guest's driver, once, that the vGPU is gone. No lock may be held.
    pub fn tell_lost(&self, reason: &str) {
        if !self.told.swap(true, Ordering::AcqRel)
            && let Some(face) = self.face.get()
        {
            face.lost(reason);
        }
    }

    /// The vGPU is back: the next loss is told again.
    pub fn rearm_loss(&self) {
        self.told.store(false, Ordering::Release);
    }

    /// Marks the channel of an error as stopped. False when the event is not for the guest any more.
    fn stop(&self, channel: u16) -> bool {
        let live = self.flags(channel).is_some_and(|flags| {
            let mark = |flags: u8| (flags & LIVE != 0).then_some(flags | FAULTED);
            flags.fetch_update(Ordering::AcqRel, Ordering::Acquire, mark).is_ok()
        });
        if !live {
            self.counters.events_stale.one();
        }
        live
    }
}

impl EventHandler for EventPath {
    fn event(&self, event: Event) {
        if !self.armed.load(Ordering::Acquire) {
            self.counters.events_stale.one();
            return;
        }
        let Some(face) = self.face.get() else { return };
        match event {
            Event::NonStall(engine) => {
                self.counters.events_non_stall.one();
                face.non_stall(engine);
            }
            Event::Fault(fault) => {
                self.counters.events_fault.one();
                if fault.channel.is_none_or(|channel| self.stop(channel)) {
                    face.mmu_fault(fault);
                }
            }
            Event::HostError(error) => {
                self.counters.events_host_error.one();
                if self.stop(error.channel) {
                    face.host_error(error);
                }
            }
            Event::GraphicsError(error) => {
                self.counters.events_graphics_error.one();
                if self.stop(error.channel) {
                    face.graphics_error(error);
                }
            }
            Event::Preempted(GuestChannel(channel)) => {
                self.counters.events_preempted.one();
                self.end_preemption(channel);
            }
            Event::Lost => EventHandler::lost(self, "the physical GPU is gone"),
        }
    }

    fn lost(&self, reason: &str) {
        if !self.armed.load(Ordering::Acquire) {
            return;
        }
        reason.clone_into(&mut self.lost_reason.lock().unwrap_or_else(PoisonError::into_inner));
        self.lost.store(true, Ordering::Release);
        // Nobody will complete them: a driver that polls must not wait for ever.
        self.clear_all();
        self.tell_lost(reason);
    }
}
