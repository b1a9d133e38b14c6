//! Keeps the core's reports until the driver's owner takes them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::events::hardware_number;
use gpuvmk_backend::EngineEvents;
use gpuvmk_chip::addr::{GuestChannel, HostChannel};
use gpuvmk_chip::channel_event::{ChannelStop, MmuFault};
use gpuvmk_chip::{Engine, EngineSet};
use gpuvmk_gpu::GpuEvent;

#[derive(Debug, Default)]
struct Waiting {
    /// Notifications are told once, however many there were: they say "look", not what happened.
    non_stall: EngineSet,
    /// The number of channels bounds this list: a stopped channel reports nothing more.
    events: Vec<GpuEvent>,
}

/// The outbox. Its descriptor is readable while something waits.
#[derive(Debug)]
pub(super) struct Outbox {
    waiting: Mutex<Waiting>,
    wake: OwnedFd,
}

impl Outbox {
    pub(super) fn new() -> std::io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { waiting: Mutex::default(), wake })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn put(&self, put: impl FnOnce(&mut Waiting)) {
        put(&mut self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        // It fails only when the counter is full, and then the owner is being woken already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn event(&self, event: GpuEvent) {
        self.put(|waiting| waiting.events.push(event));
    }

    /// Drops what waits of a channel that is gone: its number may soon be another's.
    pub(super) fn forget(&self, channel: HostChannel) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.events.retain(|event| event.channel() != Some(channel));
    }

    /// Moves everything into `events`.
    pub(super) fn take(&self, events: &mut Vec<GpuEvent>) {
        // Cleared before looking, so that nothing that comes later goes unnoticed. Nothing to clear is an
        // error.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        events.extend(waiting.events);
        events.extend(waiting.non_stall.engines().map(GpuEvent::NonStall));
    }
}

impl EngineEvents for Outbox {
    fn monitor(&self, _size: Option<(u16, u16)>) {}

    fn non_stall(&self, engine: Engine) {
        self.put(|waiting| waiting.non_stall |= engine.into());
    }

    fn message_delivered(&self, engines: EngineSet) {
        self.put(|waiting| waiting.non_stall |= engines);
    }

    /// Engines send no message.
    fn unsent(&self) {}

    fn stopped(&self, stop: ChannelStop<GuestChannel>) {
        // A hang is never reported here: hardware does not know what takes too long.
        self.event(GpuEvent::Stopped(stop.of(hardware_number(stop.channel))));
    }

    fn fault(&self, fault: MmuFault) {
        self.event(GpuEvent::Fault(fault));
    }

    fn preempted(&self, channel: GuestChannel) {
        self.event(GpuEvent::Preempted(hardware_number(channel)));
    }

    fn patch_register(&self, offset: u32, value: u32) {
        // Context images are made by the executor, without a patch list.
        log::debug!("executor: a context image asks for {value:#x} in register {offset:#x}");
    }

    fn lost(&self, reason: &str) {
        log::error!("executor: {reason}");
        self.event(GpuEvent::Lost);
    }
}
