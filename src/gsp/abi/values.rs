//! Values that driver and firmware exchange, independent of the version: the model reads and writes these.
//!
//! A version's module makes them of the bytes that a driver sent, and bytes of them for it. Handles, numbers
//! of controls and classes, and addresses are the driver's own.

mod display;
mod gpu;

use super::object_type::Type;
use gpuvmk_chip::addr::Chid;
use gpuvmk_chip::{AccessKind, Engine, EngineSet, PhysicalAddress};
use serde::{Deserialize, Serialize};

pub use display::{ChannelPush, DisplayChannel, DisplayChannelParameters, InstanceMemory, Monitor};
pub use gpu::{Graphics, Host, Identity, MemoryInfo, MemoryUnits, Multiprocessor, Names, PciIdentity};

/// An object's full name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Handle of its client.
    pub client: u32,
    /// Its own handle.
    pub handle: u32,
}

/// Where the queues lie, from the boot arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueArguments {
    /// Bus address of the shared memory's page table.
    pub shared_memory: u64,
    /// Entries of that table.
    pub pages: u32,
    /// Offset of the command queue in shared memory.
    pub command_queue: u64,
    /// Offset of the message queue in shared memory.
    pub message_queue: u64,
}

/// A range of VRAM in the description for drivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// First byte.
    pub base: u64,
    /// Last byte.
    pub limit: u64,
    /// Drivers may allocate from it.
    pub usable: bool,
}

/// The description of the GPU that a driver asks GSP for first (GET_GSP_STATIC_INFO).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticInfo<'a> {
    /// Marketing name, ASCII.
    pub name: &'a str,
    /// Chip name, ASCII.
    pub short_name: &'a str,
    /// Bytes of VRAM.
    pub vram: u64,
    /// Ranges of VRAM.
    pub regions: &'a [MemoryRegion],
    /// Graphics processing clusters, a bit each; at most 32.
    pub gpc_mask: u32,
    /// Texture processing clusters of each of them, a bit each; 0 for clusters that there are not.
    pub tpc_masks: [u32; 32],
    /// VRAM address of BAR1's top page table.
    pub bar1_root: u64,
    /// VRAM address of BAR2's top page table.
    pub bar2_root: u64,
    /// Handles of the client, device and subdevice that firmware made for the driver.
    pub internal: [u32; 3],
    /// Offset of the heap outside the protected region.
    pub non_wpr_heap: u64,
    /// Offset of the firmware runtime services region.
    pub frts: u64,
    /// What tells this GPU from the machine's others.
    pub identity: [u8; 16],
    /// The engines.
    pub engines: EngineSet,
    /// Subsystem vendor and device id.
    pub subsystem: [u16; 2],
    /// A multiprocessor.
    pub multiprocessor: Multiprocessor,
    /// What VRAM is made of.
    pub memory: MemoryUnits,
}

/// A channel that was stopped (the event RC_TRIGGERED).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RcTriggered {
    /// `NV2080_ENGINE_TYPE_*`.
    pub engine_type: u32,
    /// Channel number.
    pub chid: Chid,
    /// `ROBUST_CHANNEL_*`.
    pub except_type: u32,
    /// Faulting address, for MMU faults.
    pub address: u64,
    /// Fault type, for MMU faults.
    pub fault_type: u32,
    /// It concerns all channels of the group that the channel is in.
    pub of_group: bool,
}

/// What a driver's log is to say of an error (the event OS_ERROR_LOG).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorLog {
    /// `ROBUST_CHANNEL_*`, the Xid.
    pub except_type: u32,
    /// Runlist of the channel.
    pub runlist: u16,
    /// Its number there.
    pub chid: Chid,
    /// The words, ASCII.
    pub text: String,
}

/// The MMU fault that ended a channel's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultOfChannel {
    /// `NV_PFAULT_FAULT_TYPE_*`.
    pub fault_type: u32,
    /// What was tried.
    pub access: AccessKind,
}

/// The parameters of an object's allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameters {
    /// A device.
    Device,
    /// A subdevice.
    Subdevice,
    /// An address space.
    AddressSpace(AddressSpaceParameters),
    /// A channel.
    Channel(ChannelParameters),
    /// An object of a copy engine; none where no engine has the number that was given.
    Copy(Option<Engine>),
    /// An object of the graphics engine.
    Graphics,
    /// The display engine.
    Display,
    /// A channel of the display engine.
    DisplayChannel(DisplayChannelParameters),
    /// An event.
    Event {
        /// What it is about.
        index: u32,
    },
    /// A group of channels.
    ChannelGroup {
        /// Handle of its address space; 0: it has none of its own.
        space: u32,
        /// The engine of its channels; none where no engine has the number that was given.
        engine: Option<Engine>,
    },
    /// A share of a group's contexts.
    ContextShare {
        /// Handle of its address space; 0: it has none of its own.
        space: u32,
    },
    /// An object that carries nothing.
    Plain(Type),
}

/// The parameters of an address space's allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressSpaceParameters {
    /// The driver keeps the page tables.
    pub external: bool,
    /// It is the one that the device has of itself.
    pub of_device: bool,
}

/// The parameters of a channel's allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelParameters {
    /// Handle of its address space.
    pub space: u32,
    /// The engine; none where no engine has the number that was given.
    pub engine: Option<Engine>,
    /// The number that it must have, if the driver chose one.
    pub chid: Option<Chid>,
    /// Virtual address of its ring; 0: it never runs.
    pub ring: u64,
    /// Entries of the ring.
    pub entries: u32,
    /// Where its USERD is; none where that is neither VRAM nor system memory.
    pub userd: Option<PhysicalAddress>,
    /// Handle of its share of a group's contexts, or 0.
    pub share: u32,
    /// It has its group's engine.
    pub inherits_engine: bool,
    /// Without an address space of its own it has that of its share, of its group or of its device.
    pub inherits: bool,
    /// It is for the driver's own work, and not a program's.
    pub is_drivers_own: bool,
    /// How far its ring was read and written is to be zero when it is made.
    pub clears_userd: bool,
    /// Where firmware says that an error has stopped it, if there.
    pub notifier: Option<PhysicalAddress>,
}

/// Where an address space's page tables are (SET_PAGE_DIRECTORY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageDirectory {
    /// Handle of the address space.
    pub space: u32,
    /// The directory.
    pub directory: PhysicalAddress,
}

/// How the memory system treats compressed pages (MEMSYS_GET_STATIC_CONFIG).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemorySystem {
    /// It keeps bits of compressed pages in VRAM.
    pub stores_compression_bits: bool,
    /// It compresses behind the L2 cache.
    pub compresses_behind_l2: bool,
    /// What it is made of.
    pub units: MemoryUnits,
}

/// A channel whose graphics context is given buffers (PROMOTE_CTX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromoteContext {
    /// Its client.
    pub client: u32,
    /// Its handle.
    pub channel: u32,
    /// It has no more buffers than there can be.
    pub is_whole: bool,
}

/// Where what a suspension keeps goes (FBSR_INIT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuspendMemory {
    /// Client of the list of pages for VRAM that firmware uses.
    pub client: u32,
    /// Its handle.
    pub list: u32,
    /// Bus address of what names the memory for everything else; 0: there is none.
    pub description: u64,
}

/// A piece of VRAM that a suspension keeps (FBSR_SEND_REGION_INFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuspendRegion {
    /// Client of the list of pages of VRAM.
    pub client: u32,
    /// Its handle.
    pub list: u32,
    /// Offset in those pages, in bytes.
    pub from: u64,
    /// Offset in the memory of [`SuspendMemory`], in bytes.
    pub to: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Something that raises interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptSource {
    /// GSP itself.
    Gsp,
    /// An engine.
    Engine(Engine),
    /// The display engine.
    Display,
    /// The display engine, for what can wait.
    DisplayLow,
    /// A doorbell of the driver's own, by which it tries interrupts out.
    CpuDoorbell,
    /// A fault that can be replayed.
    ReplayableFault,
    /// The buffer of such faults went wrong.
    ReplayableFaultError,
    /// A fault that cannot be replayed.
    NonReplayableFault,
    /// The buffer of such faults went wrong.
    NonReplayableFaultError,
    /// A fault that is in no buffer.
    InfoFault,
    /// Counts of accesses.
    AccessCounter,
}

/// The vectors of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterruptVectors {
    /// The source that raises them.
    pub source: InterruptSource,
    /// Raised where the source waits for the driver.
    pub stall: Option<u32>,
    /// Raised by notifications.
    pub non_stall: Option<u32>,
}

/// An engine as the table of devices has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its place among all.
    pub index: u32,
    /// The engine.
    pub engine: Engine,
    /// The runlist that it sits on.
    pub runlist: u16,
    /// Its place on that runlist.
    pub on_runlist: u32,
}

/// A page of the table of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Devices {
    /// The first that was asked for.
    pub base: u32,
    /// Those from there on.
    pub devices: Vec<Device>,
}
