//! Reports events to the register face or driver above the core.

use std::sync::{Arc, OnceLock};

use gpuvmk_backend::EngineEvents;
use gpuvmk_chip::addr::{GuestChannel, HostChannel};
use gpuvmk_chip::channel_event::{ChannelStop, MmuFault};

/// The receiver of events.
#[derive(Default)]
pub(crate) struct Events {
    receiver: OnceLock<Arc<dyn EngineEvents>>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Sets the receiver. Only the first call counts.
    pub(crate) fn connect(&self, receiver: Arc<dyn EngineEvents>) {
        if self.receiver.set(receiver).is_err() {
            log::warn!("softgpu: a second receiver of events was refused");
        }
    }

    /// Tells of a channel that was stopped; see [`Self::tell`].
    pub(crate) fn stopped(&self, stop: ChannelStop<HostChannel>) {
        log::debug!("softgpu: a channel stops: {stop:x?}");
        self.tell(|events| events.stopped(stop.of(driver_number(stop.channel))));
    }

    /// Tells of an access that was refused: it stops its channel, or belongs to none; see [`Self::tell`].
    pub(crate) fn fault(&self, channel: Option<HostChannel>, fault: MmuFault) {
        match channel {
            Some(channel) => self.stopped(ChannelStop::new(channel, fault)),
            None => self.tell(|events| events.fault(fault)),
        }
    }

    /// Tells of a preemption that is complete; see [`Self::tell`].
    pub(crate) fn preempted(&self, channel: HostChannel) {
        self.tell(|events| events.preempted(driver_number(channel)));
    }

    /// Tells something. To be called without holding a lock of this room: the receiver may call back.
    pub(crate) fn tell(&self, event: impl FnOnce(&dyn EngineEvents)) {
        if let Some(receiver) = self.receiver.get() {
            event(receiver.as_ref());
        }
    }
}

/// The driver's number of a channel. It is hardware's own number, since nothing translates between the two.
pub(crate) const fn driver_number(HostChannel(number): HostChannel) -> GuestChannel {
    GuestChannel(number)
}

/// The channel that the driver means; see [`driver_number`].
pub(crate) const fn hardware_number(GuestChannel(number): GuestChannel) -> HostChannel {
    HostChannel(number)
}
