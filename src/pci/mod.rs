//! A PCI function seen from outside: the one trait that the software GPU, a real card and a guest's vGPU
//! implement, and that front ends and the register driver use.
//!
//! A function knows regions and offsets, never where they are mapped. It owns its configuration space. DMA
//! reaches memory through mappings that the front end (or the driver's host side) announces. Interrupts leave
//! through an [`InterruptSink`]; the function decides between INTx and MSI by its own configuration space.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod address;
pub mod config_space;
pub mod dma;
pub mod header;
pub mod mapping;
pub mod vbios;

pub use self::address::{NoPciAddress, PciAddress};
pub use self::dma::DmaBacking;
pub use gpuvmk_control_client::CardUse;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use vmm_sys_util::eventfd::EventFd;

/// A region of a PCI function, in the numbering of VFIO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Region {
    /// Base address register 0 to 5.
    Bar(u8),
    /// Expansion ROM.
    Rom,
    /// Configuration space.
    Config,
}

impl Region {
    /// All regions, in the order of their VFIO index.
    pub const ALL: [Self; 8] = [
        Self::Bar(0),
        Self::Bar(1),
        Self::Bar(2),
        Self::Bar(3),
        Self::Bar(4),
        Self::Bar(5),
        Self::Rom,
        Self::Config,
    ];

    /// The region with VFIO index `index`.
    pub fn from_index(index: u32) -> Option<Self> {
        usize::try_from(index).ok().and_then(|i| Self::ALL.get(i).copied())
    }

    /// VFIO index (`VFIO_PCI_BAR0_REGION_INDEX` and following).
    pub const fn index(self) -> u32 {
        match self {
            Self::Bar(n) => n as u32,
            Self::Rom => 6,
            Self::Config => 7,
        }
    }
}

/// The kind of a region, for the code that sizes and places it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// The function has no such region (or it is the upper half of a 64-bit BAR).
    Absent,
    /// Memory BAR below 4 GiB.
    Memory32,
    /// Prefetchable 64-bit memory BAR; takes the next BAR's register too.
    Memory64Prefetch,
    /// I/O port BAR.
    Io,
    /// Expansion ROM.
    Rom,
    /// Configuration space.
    Config,
}

/// Size and kind of one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfo {
    /// Its kind.
    pub kind: RegionKind,
    /// Bytes; 0 for an absent region.
    pub size: u64,
}

impl RegionInfo {
    /// A region that the function does not have.
    pub const ABSENT: Self = Self { kind: RegionKind::Absent, size: 0 };
}

/// The regions of a function by VFIO index.
pub type RegionTable = [RegionInfo; 8];

/// Why an access was refused. The function's state is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The function has no such region.
    #[error("Region {0:?} does not exist")]
    NoRegion(Region),
    /// The access leaves its region.
    #[error("Access of {size} bytes at {offset:#x} leaves region {region:?} of {limit:#x} bytes")]
    OutOfRange {
        /// The region that was accessed.
        region: Region,
        /// Offset of the first byte.
        offset: u64,
        /// Size in bytes.
        size: usize,
        /// Size of the region.
        limit: u64,
    },
    /// The device does not answer any more.
    #[error("The device is lost")]
    DeviceLost,
}

/// Memory that the other side offers for DMA at `[iova, iova + size)`.
#[derive(Debug)]
pub struct DmaMapping {
    /// First bus address.
    pub iova: u64,
    /// Size in bytes.
    pub size: u64,
    /// True when the device may write.
    pub writable: bool,
    /// The memory: a file and the offset of the first byte. `None` for ranges that can be named but not
    /// reached (ROMs that QEMU maps without a file): accesses to them fault.
    pub backing: Option<DmaBacking>,
    /// Whose memory it is, where several VMs share the function. `None`: the function's only user's.
    pub owner: Option<dma::MemoryOwner>,
}

/// Why a DMA mapping was refused.
#[derive(Debug, thiserror::Error)]
pub enum DmaError {
    /// The range overlaps a present one.
    #[error("DMA range {iova:#x}+{size:#x} overlaps one that is mapped")]
    Overlap {
        /// First bus address.
        iova: u64,
        /// Size in bytes.
        size: u64,
    },
    /// Empty, unaligned or wrapping range, or one beyond what the device can address.
    #[error("DMA range {iova:#x}+{size:#x} is invalid: {why}")]
    Invalid {
        /// First bus address.
        iova: u64,
        /// Size in bytes.
        size: u64,
        /// The allowed values.
        why: &'static str,
    },
    /// No such mapping.
    #[error("DMA range {iova:#x}+{size:#x} is not mapped")]
    NotMapped {
        /// First bus address.
        iova: u64,
        /// Size in bytes.
        size: u64,
    },
    /// Too many mappings.
    #[error("More than {0} DMA ranges")]
    TooMany(usize),
    /// The file is smaller than claimed, or cannot be mapped.
    #[error("DMA range {iova:#x}+{size:#x} cannot be reached")]
    Backing {
        /// First bus address.
        iova: u64,
        /// Size in bytes.
        size: u64,
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The far side that would use the memory is gone.
    #[error("The device is lost")]
    DeviceLost,
}

/// Where a function's interrupts go. Calls never block.
pub trait InterruptSink: Send + Sync {
    /// Sets the level of the INTx line.
    fn set_intx(&self, asserted: bool);
    /// Sends one message of the MSI vector.
    fn fire_msi(&self, vector: u16);
    /// Counts a message of the vector that another process sent through its eventfd (see
    /// [`MessageOwner::connect_message`]).
    fn message_sent(&self, vector: u16);
}

/// Memory behind a part of a region, to be mapped by another process.
#[derive(Debug)]
pub struct SharedMemory {
    /// The file.
    pub fd: OwnedFd,
    /// Offset in the file of the first byte.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Memory behind part of a region.
#[derive(Debug)]
pub struct PlainMemory {
    /// Where in the region it begins.
    pub offset: u64,
    /// The memory.
    pub memory: SharedMemory,
}

/// Where the bytes of a part of a region are now.
#[derive(Clone, Copy, Debug)]
pub enum Backing<'a> {
    /// In a file.
    File {
        /// Which. The same one has the same number until [`RegionWatcher::replaced`] is called.
        fd: BorrowedFd<'a>,
        /// Offset of the first byte.
        offset: u64,
    },
    /// In the guest's memory, at that bus address.
    Bus(u64),
}

/// A part of a region where an access is nothing but a load or a store of memory.
#[derive(Clone, Copy, Debug)]
pub struct DirectWindow<'a> {
    /// Where in the region it begins: whole pages.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// False where only loads are: a store does something else.
    pub writable: bool,
    /// The memory.
    pub backing: Backing<'a>,
}

/// A front end that maps regions into the guest.
///
/// The function calls it when a region shows other memory, before the access that caused the change ends.
/// When the call returns, the front end must no longer show the old memory to the guest.
///
/// The function holds none of the locks that [`DirectMap::show`] takes, so the call may use that method.
pub trait RegionWatcher: Send + Sync {
    /// A region may show other memory than before.
    fn changed(&self, region: Region);

    /// All regions may show other memory, in other files.
    fn replaced(&self);

    /// The answer of [`DirectMap::coalescable_writes`] may have changed.
    fn coalescable_writes_changed(&self);
}

/// A write of 32 bits to a region that may be carried out some time after the guest made it, and once instead
/// of several times: a doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoalescableWrite {
    /// The region.
    pub region: Region,
    /// Where in it.
    pub offset: u64,
    /// The value. Writes of other values must be trapped.
    pub value: u32,
}

/// A PCI function.
///
/// Every method may be called from any thread, and none blocks on the GPU's work. Abilities that only some
/// functions have are reached through [`Self::direct_map`], [`Self::message_owner`], [`Self::queue_events`]
/// and [`Self::shared_regions`]. No method has a default, so a wrapper must decide about each.
pub trait PciFunction: Send + Sync {
    /// The regions, fixed for the function's life.
    fn regions(&self) -> RegionTable;

    /// Reads `data.len()` bytes (at most 8 outside configuration space and ROM) at `offset` of `region`.
    ///
    /// # Errors
    /// The access leaves the region, or the device is lost.
    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError>;

    /// Writes `data` at `offset` of `region`.
    ///
    /// # Errors
    /// The access leaves the region, or the device is lost.
    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError>;

    /// Makes memory reachable for the function's DMA.
    ///
    /// # Errors
    /// The range overlaps, is invalid, or its backing cannot be mapped. Nothing changed then.
    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError>;

    /// Removes the mappings, and parts of mappings, in `[iova, iova + size)`. Unmapped addresses in the range
    /// are no error. After the return no new access reaches the memory, and none is under way. The exception
    /// is an owner that does not wait ([`dma::MemoryOwner::deferring`]): its accesses may still be under way.
    ///
    /// # Errors
    /// The range is invalid, or the device is lost.
    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError>;

    /// Takes every mapping away.
    fn dma_unmap_all(&self);

    /// The limit of mappings at a time; adjacent ones that can be joined count as one. [`dma::MAX_MAPPINGS`]
    /// where nothing else limits them. Front ends report it to the user before it is reached.
    fn most_dma_ranges(&self) -> usize;

    /// Connects the interrupt line and messages; `None` disconnects.
    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>);

    /// Function-level reset: configuration, registers and engines as after power-on. DMA has stopped when it
    /// returns. DMA mappings and the interrupt connection stay.
    fn reset(&self);

    /// The client that was given [`DirectMap::plain_memory`] is gone, but may have handed the memory to
    /// others. The next reset replaces that memory; until then none is given out.
    fn client_gone(&self);

    /// The costs of its use so far; `None` if it is no card.
    fn card_use(&self) -> Option<CardUse>;

    /// Accesses that need no trap, or no wait; `None`: every access must be trapped.
    fn direct_map(&self) -> Option<&dyn DirectMap>;

    /// The interface to let another process send its message; `None`: it sends its messages itself.
    fn message_owner(&self) -> Option<&dyn MessageOwner>;

    /// The interface to its queues, where somebody else serves them; `None`: each access is carried out.
    fn queue_events(&self) -> Option<&dyn QueueEvents>;

    /// The interface to share its memory with other processes; `None`: it cannot.
    fn shared_regions(&self) -> Option<&dyn SharedRegions>;
}

/// Accesses that a front end need not trap, or not wait for.
pub trait DirectMap: Send + Sync {
    /// Part of a region that is plain memory, in whole pages, for as long as the function lives. A front end
    /// may map it into the guest instead of trapping accesses to it. The function does not see those then.
    ///
    /// # Errors
    /// Out of descriptors.
    fn plain_memory(&self, region: Region) -> std::io::Result<Option<PlainMemory>>;

    /// Calls `visit` for the parts of `[offset, offset + size)` of a region, in order, where an access is a
    /// load or a store of memory at this moment and nothing else. A front end may map those. It traps the
    /// others.
    fn show(&self, region: Region, offset: u64, size: u64, visit: &mut dyn FnMut(DirectWindow<'_>));

    /// The writes that may be carried out late and merged, at this moment. A front end that does so may drop
    /// one that the guest made while it was named, and that came too late.
    fn coalescable_writes(&self) -> Vec<CoalescableWrite>;

    /// True if the guest need not wait for the end of a write of `size` bytes. It must not be able to tell
    /// whether the write has been carried out, unless by another access to this function. A doorbell is such
    /// a write.
    fn is_posted(&self, region: Region, offset: u64, size: usize) -> bool;

    /// Connects the watcher that is called when the answers of [`Self::show`] or [`Self::coalescable_writes`]
    /// change; `None` disconnects.
    fn watch(&self, watcher: Option<Arc<dyn RegionWatcher>>);
}

/// A function whose first MSI message another process can send, one that learns of the cause before the
/// function does.
pub trait MessageOwner: Send + Sync {
    /// Connects the eventfd that sends the message; `None` disconnects. After a disconnect returns, the
    /// eventfd is no longer signalled.
    fn connect_message(&self, event: Option<OwnedFd>);
}

/// A write of 16 bits that does nothing but signal an eventfd.
#[derive(Debug)]
pub struct SignalledWrite {
    /// The region.
    pub region: Region,
    /// Where in it.
    pub offset: u64,
    /// The value. Writes of other values must be trapped.
    pub value: u16,
    /// What it signals.
    pub event: EventFd,
}

/// A function whose queues another thread or process serves, which hears of requests by eventfds, and sends
/// messages (MSI-X) by eventfds.
pub trait QueueEvents: Send + Sync {
    /// The writes that need no trap, the same for the function's life.
    ///
    /// # Errors
    /// Out of descriptors.
    fn signalled_writes(&self) -> std::io::Result<Vec<SignalledWrite>>;

    /// Connects the eventfds that send the messages of vectors 0 and following; none disconnects. Who serves
    /// queues may signal an eventfd some time after it was disconnected.
    fn connect_messages(&self, events: Vec<EventFd>);
}

/// A function whose memory other processes may map, as VFIO does by dma-buf.
pub trait SharedRegions: Send + Sync {
    /// The files of the memory that `[offset, offset + size)` of a region shows at this moment.
    ///
    /// # Errors
    /// An error of kind `Unsupported` when that range cannot be shared.
    fn share(&self, region: Region, offset: u64, size: u64) -> std::io::Result<Vec<SharedMemory>>;

    /// Replaces the memory that `[offset, offset + size)` of a region shows at this moment by fresh memory,
    /// all zeros. Files and mappings of the old memory that other processes hold stay valid, and no longer
    /// show this region. The caller makes sure that no engine works in the range.
    ///
    /// # Errors
    /// An error of kind `Unsupported` when the function cannot do that. After any error, a part of the range
    /// may be renewed.
    fn renew(&self, region: Region, offset: u64, size: u64) -> std::io::Result<()>;
}
