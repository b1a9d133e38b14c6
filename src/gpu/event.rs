//! What the physical GPU reports.

use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_units::backend::{ChannelError, GraphicsError, HostError, MmuFault};

/// Something that the physical GPU reported. Channel numbers inside faults and errors are host numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuEvent {
    /// Work on an engine asked for a notification.
    NonStall(Engine),
    /// A channel was stopped by an MMU fault.
    Fault(MmuFault),
    /// A channel was stopped by the host unit.
    HostError(HostError),
    /// A channel was stopped by the graphics engine.
    GraphicsError(GraphicsError),
    /// A channel was stopped by the GPU's own manager.
    ChannelError(ChannelError),
    /// A preemption that was started is complete.
    Preempted(HostChannel),
    /// The device is gone.
    Lost,
}

impl GpuEvent {
    /// The channel that it is about, if it is about one.
    pub fn channel(&self) -> Option<HostChannel> {
        match self {
            Self::Fault(fault) => fault.channel.map(HostChannel),
            Self::HostError(error) => Some(HostChannel(error.channel)),
            Self::GraphicsError(error) => Some(HostChannel(error.channel)),
            Self::ChannelError(error) => Some(HostChannel(error.channel)),
            Self::Preempted(channel) => Some(*channel),
            Self::NonStall(_) | Self::Lost => None,
        }
    }
}
