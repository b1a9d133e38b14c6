//! The additional calls of a back for a chip whose driver asks firmware for its channels.

use super::Backend;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::{Engine, EngineSet, PhysicalAddress, TextureClusters};

/// A channel as a driver asks the GPU's firmware (GSP) for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GspChannel {
    /// Page directory of its address space.
    pub page_directory: PhysicalAddress,
    /// Virtual address of its GPFIFO ring.
    pub gpfifo: GpuVa,
    /// log2 of the ring's entries.
    pub gpfifo_entries_log2: u8,
    /// VRAM address of its USERD (512 bytes).
    pub userd: u64,
    /// Engines that it can use; the first is the one whose runlist it is on.
    pub engines: EngineSet,
    /// A channel with whose graphics context it works too, as the channels of a group do that share one: what
    /// launches need is set up by any of them for all.
    pub context_of: Option<GuestChannel>,
}

/// Why the back cannot have a channel or an object. The driver gets a status, and goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ChannelRefusal {
    /// No channel, address space or memory left.
    #[error("no resources are left")]
    Exhausted,
    /// An address outside this function's memory, or a number that is not in use or in use already.
    #[error("the request names what is not there")]
    Invalid,
    /// The class or engine is not offered.
    #[error("the class or engine is not offered")]
    Unsupported,
    /// The back does not serve this function any more, see [`EngineEvents::lost`](super::EngineEvents::lost).
    #[error("the back is gone")]
    Lost,
}

/// The back of a chip whose driver asks firmware for channels (GH100 and its GSP). Channel numbers are slots
/// that the face chooses, below [`GspBackend::channels`]; the face keeps the driver's own names of its
/// channels.
pub trait GspBackend: Backend {
    /// Number of channel slots.
    fn channels(&self) -> u16;

    /// Engines that channels can be made for. Copy engine 0 sits on the graphics runlist (the "GRCE").
    fn engines(&self) -> EngineSet;

    /// What the graphics engine has, where that is less than its chip has, as on any card.
    fn texture_clusters(&self) -> Option<TextureClusters>;

    /// A new channel in a free slot, disabled, with its address space synchronised.
    ///
    /// # Errors
    /// See [`ChannelRefusal`]; the slot stays free.
    fn create_channel(&self, slot: GuestChannel, channel: GspChannel) -> Result<(), ChannelRefusal>;

    /// An object of `class` for `engine` on a channel. An object of a class that the channel has is the same
    /// one.
    ///
    /// # Errors
    /// See [`ChannelRefusal`].
    fn create_object(&self, slot: GuestChannel, class: u32, engine: Engine) -> Result<(), ChannelRefusal>;

    /// Lets a channel run, or holds it back.
    ///
    /// # Errors
    /// See [`ChannelRefusal`].
    fn schedule_channel(&self, slot: GuestChannel, scheduled: bool) -> Result<(), ChannelRefusal>;

    /// Takes a channel away. An empty slot stays empty.
    fn destroy_channel(&self, slot: GuestChannel);

    /// How many objects the driver has now, for operators.
    fn note_objects(&self, usage: ObjectUsage);

    /// For how long engines have worked for this GPU's driver; `None` where nobody counts that.
    fn engine_time(&self) -> Option<EngineTime>;
}

/// For how long engines have worked for a driver since its GPU was made, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineTime {
    /// The graphics engine.
    pub graphics: u64,
    /// All copy engines together.
    pub copies: u64,
}

/// How far a driver is from its limit of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectUsage {
    /// Objects that it may have.
    pub limit: u32,
    /// Objects that it has.
    pub used: u32,
    /// Objects that were refused for lack of room, since the last call.
    pub refused: u32,
}
