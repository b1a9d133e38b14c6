//! The events of the aggregator, passed to the register face.
//!
//! The link's thread calls in here while a front-end thread may be inside a request, or (in process) on that
//! very thread. So this side takes no lock of the mediator: what both sides must know of a channel is in
//! [`ChannelFlags`], and the front-end side folds it in at its next request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::channel_flags::ChannelFlags;
use super::status::Counters;
use gpuvmk_aggregator::link::EventHandler;
use gpuvmk_aggregator::protocol::Event;
use gpuvmk_backend::EngineEvents;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, MmuFault, StopCause};
use gpuvmk_chip::{AccessKind, EngineSet, FaultReason};
use gpuvmk_counters::Kept;

/// The register face, once it is connected.
pub(super) type Face = Arc<OnceLock<Arc<dyn EngineEvents>>>;

/// The receiver of one connection's events, and what it shares with the front-end side.
pub(super) struct EventPath {
    face: Face,
    counters: Arc<Counters>,
    /// False once the connection was replaced: what comes late is dropped.
    armed: AtomicBool,
    pub live: ChannelFlags,
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
            live: ChannelFlags::new(channels),
            lost: AtomicBool::new(false),
            lost_reason: Mutex::new(String::new()),
            told: AtomicBool::new(false),
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
    pub fn report_lost(&self, reason: &str) {
        if !self.told.swap(true, Ordering::AcqRel)
            && let Some(face) = self.face.get()
        {
            face.lost(reason);
        }
    }

    /// The vGPU is back: the next loss is reported again.
    pub fn rearm_loss(&self) {
        self.told.store(false, Ordering::Release);
    }

    /// Tells the guest's driver that a channel which it gave work to does not run. GF100 has no register that
    /// says how many channels there are: its driver takes 128 for granted, and would wait for this one for
    /// ever. A fault of the host unit is what it knows as the end of a channel. No lock may be held.
    pub fn report_refused(&self, channel: GuestChannel) {
        self.counters.channels_refused.one();
        if let Some(face) = self.face.get() {
            face.stopped(ChannelStop::new(
                channel,
                MmuFault {
                    unit: FaultUnit::Host,
                    address: GpuVa(0),
                    access: AccessKind::Read,
                    reason: FaultReason::NoChannel,
                },
            ));
        }
    }

    /// Work was finished on these engines, and the aggregator has sent the message for it.
    pub fn message_delivered(&self, engines: EngineSet) {
        if !self.armed.load(Ordering::Acquire) {
            self.counters.events_stale.one();
            return;
        }
        self.counters.messages_posted.one();
        self.counters.events_non_stall.add(engines.bits().count_ones().into());
        if let Some(face) = self.face.get() {
            face.message_delivered(engines);
        }
    }

    /// The counter of such a stop.
    fn stop_counter(&self, cause: &StopCause) -> &Kept {
        match cause {
            StopCause::Fault(_) => &self.counters.events_fault,
            StopCause::Host(_) => &self.counters.events_host_error,
            StopCause::Graphics(_) => &self.counters.events_graphics_error,
            StopCause::Manager(_) => &self.counters.events_channel_error,
            StopCause::Hang(_) => &self.counters.events_hung,
        }
    }

    /// Marks the channel of an error as stopped. False when the event is not for the guest any more.
    fn stop(&self, channel: GuestChannel) -> bool {
        let live = self.live.stop(channel);
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
            Event::Stopped(stop) => {
                self.stop_counter(&stop.cause).one();
                if self.stop(stop.channel) {
                    face.stopped(stop);
                }
            }
            Event::Fault(fault) => {
                self.counters.events_fault.one();
                face.fault(fault);
            }
            Event::Preempted(channel) => {
                self.counters.events_preempted.one();
                self.live.end_preemption(channel);
            }
            Event::Unsent => face.unsent(),
            Event::Monitor(size) => face.monitor(size),
            Event::Lost => EventHandler::lost(self, "the physical GPU is gone"),
        }
    }

    fn lost(&self, reason: &str) {
        if !self.armed.load(Ordering::Acquire) {
            return;
        }
        reason.clone_into(&mut self.lost_reason.lock().unwrap_or_else(PoisonError::into_inner));
        self.lost.store(true, Ordering::Release);
        // They will never complete: a driver that polls must not wait for ever.
        self.live.clear_all();
        self.report_lost(reason);
    }
}
