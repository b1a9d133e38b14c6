//! The content of a trace: entries, each an event with its time.

use gpuvmk_pci::Region;

/// One entry of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Nanoseconds since the trace began (of an imported mmiotrace: since that machine's clock began).
    pub nanos: u64,
    /// The event.
    pub event: Event,
}

/// Which way an access went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// The guest read.
    Read,
    /// The guest wrote.
    Write,
}

/// Where an access went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// A region of the function; the offset counts from its start.
    Region(Region),
    /// No known region (imported traces): the offset is a physical address.
    Physical,
}

/// A read or write of at most eight bytes; longer ones are several entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read or write.
    pub direction: Direction,
    /// The region or memory that was accessed.
    pub place: Place,
    /// Bytes: 1 to 8.
    pub size: u8,
    /// Offset of the first byte.
    pub offset: u64,
    /// The value that was read or written, little-endian.
    pub value: u64,
    /// Duration in nanoseconds; the entry's time is its end. 0 where it was not measured.
    pub took: u64,
}

impl Access {
    /// The lower 32 bits of the value: all of it for registers.
    pub const fn word(&self) -> u32 {
        let [a, b, c, d, ..] = self.value.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// The kind, as filters name it.
    pub const fn kind(&self) -> Kind {
        match self.direction {
            Direction::Read => Kind::Read,
            Direction::Write => Kind::Write,
        }
    }
}

/// A change of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChannelChange {
    /// It was created on the physical GPU.
    Created,
    /// It may run.
    Enabled,
    /// It may not run.
    Disabled,
    /// The guest asked to take it off its engine.
    Preempted,
    /// It was stopped for an error.
    Failed,
    /// It is gone.
    Destroyed,
}

impl ChannelChange {
    /// All, in the order of their numbers in files.
    pub const ALL: [Self; 6] =
        [Self::Created, Self::Enabled, Self::Disabled, Self::Preempted, Self::Failed, Self::Destroyed];

    /// A word for people and for other formats.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
            Self::Preempted => "preempted",
            Self::Failed => "failed",
            Self::Destroyed => "destroyed",
        }
    }
}

/// An event of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A register, memory or configuration access.
    Access(Access),
    /// Function reset.
    Reset,
    /// The guest rang a channel's doorbell.
    Doorbell {
        /// The guest's number of the channel.
        channel: u32,
        /// How far its ring is filled (GP_PUT).
        gp_put: u32,
    },
    /// The guest flushed a TLB.
    Flush {
        /// The page directory that was named, as the guest wrote it; 0 if all were meant.
        directory: u64,
    },
    /// The shadow of an address space was brought up to date.
    Shadow {
        /// The space's number at the aggregator.
        space: u32,
        /// Runs of pages that were mapped.
        mapped: u32,
        /// Runs of pages that were unmapped.
        unmapped: u32,
    },
    /// A channel changed.
    Channel {
        /// The guest's number of the channel.
        channel: u32,
        /// What became of it.
        change: ChannelChange,
    },
    /// An interrupt was signalled to the guest.
    Interrupt {
        /// Number of the MSI vector.
        vector: u32,
    },
    /// An engine was given to another VM.
    Switch {
        /// The engine, by name.
        engine: String,
        /// The VM that has it now; empty if none.
        to: String,
    },
    /// How much of a VM's work an engine has before it.
    Depth {
        /// The engine, by name.
        engine: String,
        /// Name of the VM.
        vm: String,
        /// Ring entries that were not fetched yet.
        entries: u64,
    },
    /// Something that the guest did was refused.
    Refusal {
        /// The reason's short name, as in `gpuvmk status`.
        reason: String,
        /// Where: an offset, a channel or an address, by the reason.
        place: u64,
    },
    /// Entries that did not fit the ring.
    Lost {
        /// Number of lost entries.
        count: u64,
    },
    /// A remark; of imported traces, a line that is no access.
    Note(String),
    /// The common properties of the next accesses of an imported trace.
    Origin(Origin),
}

/// mmiotrace's facts about an access beside the access itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Number of the mapping.
    pub map: i64,
    /// The instruction's address.
    pub pc: u64,
    /// Id of the process.
    pub pid: i64,
}

impl Event {
    /// The kind, as filters name it.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Access(access) => access.kind(),
            Self::Reset => Kind::Reset,
            Self::Doorbell { .. } => Kind::Doorbell,
            Self::Flush { .. } => Kind::Flush,
            Self::Shadow { .. } => Kind::Shadow,
            Self::Channel { .. } => Kind::Channel,
            Self::Interrupt { .. } => Kind::Interrupt,
            Self::Switch { .. } => Kind::Switch,
            Self::Depth { .. } => Kind::Depth,
            Self::Refusal { .. } => Kind::Refusal,
            Self::Lost { .. } => Kind::Lost,
            Self::Note(_) => Kind::Note,
            Self::Origin(_) => Kind::Origin,
        }
    }
}

/// The kinds of events; the number is what files and filters use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// A read.
    Read = 0,
    /// A write.
    Write,
    /// A function reset.
    Reset,
    /// A doorbell.
    Doorbell,
    /// A TLB flush.
    Flush,
    /// A change of shadow page tables.
    Shadow,
    /// A channel event.
    Channel,
    /// An interrupt.
    Interrupt,
    /// A schedule switch.
    Switch,
    /// A refusal.
    Refusal,
    /// Lost entries.
    Lost,
    /// A remark.
    Note,
    /// Context of imported accesses.
    Origin,
    /// Work that waits.
    Depth,
}

impl Kind {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Read,
        Self::Write,
        Self::Reset,
        Self::Doorbell,
        Self::Flush,
        Self::Shadow,
        Self::Channel,
        Self::Interrupt,
        Self::Switch,
        Self::Refusal,
        Self::Lost,
        Self::Note,
        Self::Origin,
        Self::Depth,
    ];

    /// The kind's name in filters and other formats.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Reset => "reset",
            Self::Doorbell => "doorbell",
            Self::Flush => "flush",
            Self::Shadow => "shadow",
            Self::Channel => "channel",
            Self::Interrupt => "interrupt",
            Self::Switch => "switch",
            Self::Refusal => "refusal",
            Self::Lost => "lost",
            Self::Note => "note",
            Self::Origin => "origin",
            Self::Depth => "depth",
        }
    }
}
