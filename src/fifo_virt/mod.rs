//! Guest channels: what a guest's instance blocks, runlists and channel-table writes say, read once, checked,
//! and turned into what the host side must do.
//!
//! Nothing that is read here reaches hardware: the host channel has its own instance block. Everything is
//! pure; the room above reads guest memory and talks to the aggregator.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod channel;
mod copied;
mod instance;
mod kernel_channel;
mod runlist;

pub use channel::{Channel, Effect, Input, NotPlaced, Placed};
pub use copied::{CopiedBytes, CopyMeter};
pub use instance::{CONTEXTS_START, INSTANCE_BYTES, InstanceBlock, InstanceError, engines_of};
pub use kernel_channel::{
    Budget, Invalidation, KernelChannel, KernelChannelState, KernelMemory, NotGuests, Outcome, Refusal,
    Target,
};
pub use runlist::Runlist;
