//! The seam to a GF100's register face: what its FIFO's registers ask for.

use std::time::Duration;

use super::Mediator;
use crate::fermi::FermiChannels;
use gpuvmk_backend::{EngineBackend, EngineStatus, FifoState};
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress};

impl EngineBackend for Mediator<FermiChannels> {
    fn set_fifo_state(&self, state: FifoState) {
        self.serve(|control, host| control.set_fifo_state(state, host));
    }

    fn bind_channel(&self, channel: GuestChannel, instance: Option<PhysicalAddress>) {
        self.serve(|control, host| control.bind(channel, instance, host));
    }

    fn enable_channel(&self, channel: GuestChannel, enabled: bool) {
        self.serve(|control, host| control.enable(channel, enabled, host));
    }

    fn commit_runlist(&self, list: PhysicalAddress, count: u32) {
        self.serve(|control, host| control.commit_runlist(list, count, host));
    }

    fn preempt_channel(&self, channel: GuestChannel) {
        self.serve(|control, host| control.preempt(channel, host));
    }

    fn preempt_pending(&self) -> bool {
        self.connection().events.live.preemption_pending()
    }

    /// Stays virtual: hardware only ever gets context images of our own. The guest's golden image keeps what
    /// its driver wrote.
    fn bind_graphics_context(&self, _instance: Option<PhysicalAddress>) {}

    /// Stays virtual, see [`Self::bind_graphics_context`].
    fn save_graphics_context(&self, _instance: PhysicalAddress) {}

    /// Only counted. The guest resets an engine at start-up, when it has no channels, and after a fault, when
    /// the host has stopped the channel already; others' work on the engine must go on.
    fn reset_engines(&self, _engines: EngineSet) {
        self.counters.engine_resets.one();
    }

    /// Idle: contexts of this guest are on and off the engines as the aggregator decides, and a driver that
    /// waits for an engine has preempted its channel or waited for its work already.
    fn engine_status(&self, _engine: Engine) -> EngineStatus {
        EngineStatus::default()
    }

    /// Always zero, because engines work for other VMs too, whose load must stay hidden.
    fn engine_busy_time(&self, _engine: Engine) -> Duration {
        Duration::ZERO
    }

    fn block_runlist(&self, blocked: bool) {
        self.serve(|control, host| control.block(blocked, host));
    }
}
