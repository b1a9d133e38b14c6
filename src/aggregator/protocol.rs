//! Requests of a device backend to the aggregator, and the events that come back. They have guest terms only:
//! guest channel numbers, offsets in the sender's partition, guest-physical addresses. The aggregator checks
//! each against the sender's partition; nothing here can name another tenant.
//!
//! Requests go one at a time over a SOCK_SEQPACKET socket and are answered with one [`Reply`]; doorbells
//! ([`super::doorbells`]) and events ([`super::event_ring`]) go through shared memory and are not answered.

use super::chip_name::ChipName;
use gpuvmk_chip::addr::{Gpa, GpuVa, GuestChannel, GuestVram};
use gpuvmk_chip::channel_event::{ChannelStop, MmuFault};
use gpuvmk_chip::{Engine, EngineSet, TextureClusters};
use gpuvmk_scheduler::share::Share;

/// Version of the requests, replies and ring records; both sides must speak the same.
pub const PROTOCOL_VERSION: u32 = 11;

/// Number of an address space, chosen by the backend, below [`Welcome::spaces`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpaceId(pub u16);

/// Most mappings and unmappings in one [`Request::UpdateSpace`].
pub const MAX_UPDATE_RUNS: usize = 1024;

/// First request of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`PROTOCOL_VERSION`] of the sender.
    pub version: u32,
    /// Name of the VM, for people; unique among the aggregator's tenants.
    pub name: String,
    /// Chip that the vGPU presents.
    pub chip: ChipName,
    /// VRAM wanted, in bytes.
    pub vram: u64,
    /// Number of channels that it asks for.
    pub channels: u16,
    /// The part of the GPU's time that is asked for.
    pub share: Share,
    /// Limits that the backend wants to be held to. The aggregator keeps the lower of these and its own.
    pub limits: TenantLimits,
}

/// Limits that the aggregator enforces for a VM. In a [`Hello`] they can only lower the configured ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantLimits {
    /// Host memory for page tables, in bytes.
    pub page_tables: u64,
    /// Pages mapped in all address spaces.
    pub mappings: u64,
    /// Doorbells a second.
    pub doorbells: u32,
    /// Share of the aggregator's thread, in percent.
    pub thread_time: u8,
    /// Pieces that its memory may be announced in.
    pub memory_ranges: u32,
}

impl Default for TenantLimits {
    /// The highest limits that the aggregator allows.
    fn default() -> Self {
        Self {
            page_tables: u64::MAX,
            mappings: u64::MAX,
            doorbells: u32::MAX,
            thread_time: 100,
            memory_ranges: u32::MAX,
        }
    }
}

/// The memory that a mapping points at, in the guest's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestTarget {
    /// VRAM of the partition.
    Vram(GuestVram),
    /// System memory of the sender's guest.
    System {
        /// Guest-physical address of the first byte.
        address: Gpa,
        /// True for snooped accesses.
        coherent: bool,
    },
}

impl GuestTarget {
    /// The target `bytes` further on.
    #[must_use]
    pub const fn ahead(self, bytes: u64) -> Self {
        match self {
            Self::Vram(GuestVram(at)) => Self::Vram(GuestVram(at.saturating_add(bytes))),
            Self::System { address: Gpa(at), coherent } => {
                Self::System { address: Gpa(at.saturating_add(bytes)), coherent }
            }
        }
    }
}

/// One run of equal pages as the guest's tables map it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestMapping {
    /// First virtual address; a multiple of the page size.
    pub va: GpuVa,
    /// Number of pages; virtual and target addresses advance together.
    pub pages: u32,
    /// log2 of the page size.
    pub page_shift: u8,
    /// Where it points.
    pub target: GuestTarget,
    /// True when stores fault.
    pub read_only: bool,
    /// Storage kind (0 is pitch-linear).
    pub kind: u8,
}

/// A run of virtual pages that the guest's tables no longer map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuestRange {
    /// First virtual address.
    pub va: GpuVa,
    /// Number of pages.
    pub pages: u32,
    /// log2 of the page size.
    pub page_shift: u8,
}

/// A request. A backend sends the next one when the last one is answered.
///
/// All numbers are the sender's own. [`Request::DmaMap`] comes with one file descriptor, and so does a
/// [`Request::MessageEvent`] that gives an eventfd; a descriptor with any other request is a violation of the
/// protocol. Each is answered with [`Reply::Done`] unless its comment says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Become a tenant. It is the first request of a connection, and refused once that is a tenant. The
    /// answer is [`Reply::Welcome`], which may wait until the partition is zero.
    Hello(Hello),
    /// The guest got memory, which comes as a file. It must not overlap memory that is announced already.
    DmaMap {
        /// First guest-physical address.
        gpa: Gpa,
        /// Size in bytes.
        size: u64,
        /// Offset of the first byte in the file.
        offset: u64,
        /// True when the GPU may write.
        writable: bool,
    },
    /// The guest lost memory. Its mappings are faults when the answer comes, and no access to it is under
    /// way.
    DmaUnmap {
        /// First guest-physical address.
        gpa: Gpa,
        /// Size in bytes.
        size: u64,
    },
    /// Make an empty address space. Its number must be free and below [`Welcome::spaces`].
    CreateSpace(SpaceId),
    /// Drop an address space. It must have no channel. When the answer comes, engines reach nothing through
    /// it.
    DestroySpace(SpaceId),
    /// Change an address space: first unmap, then map, then flush the physical GPU's TLB. Pages that point
    /// outside the tenant's own memory become faults, the others are mapped, and the answer is
    /// [`RefusalKind::OutsidePartition`]. If a quota ends before the request does, the answer is
    /// [`RefusalKind::Quota`], and runs after that place are not mapped.
    UpdateSpace {
        /// The space's number.
        space: SpaceId,
        /// Runs to unmap, at most [`MAX_UPDATE_RUNS`] together with `map`.
        unmap: Vec<GuestRange>,
        /// Runs to map.
        map: Vec<GuestMapping>,
    },
    /// Make a channel. Its start bit is clear, and it runs when it is enabled and on the runlist.
    CreateChannel {
        /// Its number in the guest.
        channel: GuestChannel,
        /// Its address space.
        space: SpaceId,
        /// Virtual address of its GPFIFO ring.
        gpfifo: GpuVa,
        /// log2 of the ring's entries.
        gpfifo_entries_log2: u8,
        /// Its USERD page.
        userd: GuestVram,
        /// Engines that it gets contexts for.
        engines: EngineSet,
        /// A channel of the same tenant with whose graphics context it works too.
        context_of: Option<GuestChannel>,
    },
    /// Give a channel up. Its number is free at once; hardware lets it go later, and until then it counts
    /// against [`Welcome::channels`].
    DestroyChannel(GuestChannel),
    /// Change the engines of a channel, whose start bit must be clear.
    SetEngines {
        /// The channel's number.
        channel: GuestChannel,
        /// Engines that it gets contexts for.
        engines: EngineSet,
    },
    /// Make an object of a class on a channel. Only a GPU that manages its channels itself needs that. A
    /// second object of one class is the first one again.
    CreateObject {
        /// The channel's number.
        channel: GuestChannel,
        /// NVIDIA's class number.
        class: u32,
        /// Engine that executes its methods.
        engine: Engine,
    },
    /// Set or clear a channel's start bit. A channel that a fault stopped stays stopped.
    EnableChannel {
        /// The channel's number.
        channel: GuestChannel,
        /// The start bit.
        enabled: bool,
    },
    /// Replace the list of channels that the guest wants to run, in its order. None may be on it twice.
    SetRunlist(Vec<GuestChannel>),
    /// Take a channel off the hardware. [`Event::Preempted`] follows, half a second later at worst.
    Preempt(GuestChannel),
    /// Give the eventfd that sends the vGPU's message to the driver, or take it back. With one, the
    /// aggregator sends the message itself where the end of work is nothing else to the driver
    /// ([`gpuvmk_backend::InterruptInterest::Message`]).
    MessageEvent {
        /// True: the request comes with an eventfd. False: there is none any more.
        given: bool,
    },
    /// Function reset. All channels and address spaces go; guest memory stays announced. It ends a fail-safe
    /// state. The answer comes when no channel of the tenant is on hardware, and the partition is zero where
    /// that was asked for.
    Reset {
        /// True: zero the partition too.
        scrub: bool,
    },
}

/// The aggregator's answer to [`Request::Hello`]; carries, in this order, the doorbell board's memory, its
/// eventfd, the event ring's memory, the reading end of its pipe, and the files of the VRAM window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// VRAM granted, in bytes.
    pub vram: u64,
    /// Channels granted: guest numbers 0 to this, exclusive.
    pub channels: u16,
    /// Address spaces allowed.
    pub spaces: u16,
    /// Engines of the physical GPU.
    pub engines: EngineSet,
    /// Virtual addresses are below 2 to this.
    pub va_bits: u8,
    /// Page sizes of the physical GPU, as log2, smallest first.
    pub page_shifts: Vec<u8>,
    /// True when CPU reads of the VRAM window are slow.
    pub slow_vram_reads: bool,
    /// What the physical GPU's graphics engine has, where that is not all of its chip.
    pub texture_clusters: Option<TextureClusters>,
    /// Pieces of the VRAM window: offset in the respective file and bytes.
    pub window: Vec<(u64, u64)>,
}

/// Why a request was refused. The backend logs it, and chooses its guest's error by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum RefusalKind {
    /// Malformed, unknown, or not allowed in this state.
    Protocol = 1,
    /// The protocol versions of both sides differ.
    Version = 2,
    /// Name in use, or not acceptable.
    Name = 3,
    /// Not enough VRAM, channels, spaces or memory left.
    Exhausted = 4,
    /// An address outside the partition or the DMA map.
    OutsidePartition = 5,
    /// A channel or space number out of bounds, absent, or present already.
    BadId = 6,
    /// The chip does not match the physical GPU.
    Chip = 7,
    /// The physical GPU failed.
    Hardware = 8,
    /// A quota or rate limit.
    Quota = 9,
    /// A class that tenants are not offered.
    Class = 10,
    /// A page of the VM's memory is missing.
    MemoryLost = 11,
}

/// Answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The request was carried out.
    Done,
    /// The sender is a tenant now. Only after [`Request::Hello`].
    Welcome(Welcome),
    /// The request was not carried out, and nothing changed, except after [`Request::UpdateSpace`], and where
    /// hardware failed ([`RefusalKind::Hardware`]): a part may be done then.
    Refused {
        /// The class of refusal.
        kind: RefusalKind,
        /// A sentence: what was refused, where, and what is allowed.
        message: String,
    },
}

/// New work of a channel. Doorbells of one channel that come faster than they are taken merge into the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// Channel with new work.
    pub channel: GuestChannel,
    /// Its new GP_PUT.
    pub gp_put: u32,
}

/// An event for a tenant. Events come in order. Notifications of finished work are the exception: equal ones
/// may merge, and they may come after later events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Work on an engine asked for a notification.
    NonStall(Engine),
    /// A channel was stopped.
    Stopped(ChannelStop<GuestChannel>),
    /// An access that belongs to no channel was refused.
    Fault(MmuFault),
    /// A preemption is complete.
    Preempted(GuestChannel),
    /// The message that [`super::link::Deferred::sent`] reported could not be sent after all. The backend has
    /// to send it, and the aggregator has no eventfd any more.
    Unsent,
    /// An operator has plugged in a monitor that prefers that width and height, or none.
    Monitor(Option<(u16, u16)>),
    /// The physical GPU is gone. Every request is refused from now on.
    Lost,
}
