//! The parts of a channel.

use super::SpaceHandle;
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{GpuVa, HostVram};

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
}
