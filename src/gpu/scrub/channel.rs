//! The state of the channel that zeroes VRAM.

use std::time::{Duration, Instant};

use super::commands::CommandFormat;
use super::rig::Rig;
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::HostVram;

/// How long the processor does the work after the engine failed.
pub const REST: Duration = Duration::from_secs(2);

/// State of the channel.
#[derive(Debug)]
pub(super) enum Channel {
    /// There is one.
    Ready(Rig),
    /// It failed; it is made anew then.
    Resting(Instant),
    /// There is none, and will be none.
    None,
    /// It could not be cut off from memory: the memory that it worked at is lost to tenants for good.
    Stuck,
}

/// How the channel is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub dialect: CommandFormat,
    pub engine: Engine,
    pub own: HostVram,
}
