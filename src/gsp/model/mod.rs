//! What the virtual GSP does: a state machine over the function's memory and its back ([`Gsp`]), with the
//! resource manager that it runs.

mod alloc;
mod boot;
mod channel;
mod config;
mod control;
mod counters;
mod display;
mod effect;
mod engines;
mod error;
mod events;
mod gsp;
mod heads;
mod kernel_channels;
mod message;
mod notifiers;
mod objects;
mod queue;
mod refusals;
mod rm;
mod robust_channel;
mod rpc;
mod saved;
mod shared;
mod shared_data;
mod state;
mod static_info;
mod token;

#[cfg(test)]
mod tests;

pub use config::GspConfig;
pub use counters::{Call, Counters, Note};
pub use display::DisplayEngine;
pub use effect::Effect;
pub use error::{BootError, Refused, SavedError};
pub use gsp::Gsp;
pub use kernel_channels::KernelWork;
pub use objects::ObjectLimits;
pub use refusals::Refusals;
pub use state::{GspPhase, GspState};
pub use token::DoorbellTarget;

/// The states of what GSP has, parts of [`GspState`].
pub mod saved_state {
    pub use super::channel::{ChannelState, ChannelsState, Phase, PositionState, RingState};
    pub use super::display::DisplayBufferState;
    pub use super::kernel_channels::{KernelChannelsState, OwnState};
    pub use super::message::WaitingState;
    pub use super::notifiers::NotifiersState;
    pub use super::objects::{DeviceSpaceState, KindState, ObjectState};
    pub use super::queue::{QueueRingState, QueuesState};
    pub use super::shared_data::SharedDataState;
}
