//! Reports of the physical GPU.

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_chip::channel_event::{ChannelStop, MmuFault};

/// Something that the physical GPU reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuEvent {
    /// Work on an engine asked for a notification.
    NonStall(Engine),
    /// A channel was stopped.
    Stopped(ChannelStop<HostChannel>),
    /// An access that belongs to no channel was refused.
    Fault(MmuFault),
    /// A preemption that was started is complete.
    Preempted(HostChannel),
    /// The device is gone.
    Lost,
}

impl GpuEvent {
    /// The channel that it is about, if it is about one.
    pub const fn channel(&self) -> Option<HostChannel> {
        match self {
            Self::Stopped(stop) => Some(stop.channel),
            Self::Preempted(channel) => Some(*channel),
            Self::NonStall(_) | Self::Fault(_) | Self::Lost => None,
        }
    }
}
