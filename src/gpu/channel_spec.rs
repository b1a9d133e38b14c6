//! The parts of a channel.

use super::{GpuError, SpaceHandle};
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram};

/// The parts of a host channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelSpec {
    /// Address space that its ring, pushbuffers and engines use.
    pub space: SpaceHandle,
    /// Virtual address of the GPFIFO ring.
    pub gpfifo: GpuVa,
    /// log2 of its entries.
    pub gpfifo_entries_log2: u8,
    /// Page with GP_PUT and GP_GET (the guest's own, inside its partition).
    pub userd: HostVram,
    /// Engines that it gets contexts for.
    pub engines: EngineSet,
    /// A channel with whose graphics context it works too: what launches need is set up by any of them for
    /// all.
    pub context_of: Option<HostChannel>,
}

impl ChannelSpec {
    /// For drivers that give each channel a context of its own.
    ///
    /// # Errors
    /// It is to share one.
    pub fn has_own_context(&self) -> Result<(), GpuError> {
        if self.context_of.is_some() { Err(GpuError::NoSharedContext) } else { Ok(()) }
    }
}
