//! A tenant's channels and address spaces: its own numbers' side of them.

use std::time::Duration;

use crate::protocol::SpaceId;
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_gpu::SpaceHandle;

/// An address space of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Its shadow tree.
    pub handle: SpaceHandle,
}

/// State of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// Created; hardware has never seen its start bit.
    New,
    /// Hardware may have loaded it.
    Used,
    /// Stopped by a fault or an error: off the runlist until the guest destroys it.
    Faulted,
    /// Forced off the hardware after a preemption that did not end: the host channel is gone.
    Dead,
}

/// A channel of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Its number on the physical GPU (meaningless once it is dead).
    pub host: HostChannel,
    /// Its address space.
    pub space: SpaceId,
    /// Engines that it has contexts for.
    pub engines: EngineSet,
    /// The start bit.
    pub enabled: bool,
    /// What became of it.
    pub state: ChannelState,
    /// The guest waits for a preemption; when it must be over.
    pub preempt_by: Option<Duration>,
}
