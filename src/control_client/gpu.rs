//! Status of the physical GPU.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figures::{Times, Word};

/// State of the physical GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuStatus {
    /// Name of the chip.
    pub chip: String,
    /// How the physical GPU is reached (`soft`).
    pub backend: String,
    /// VRAM for tenants, in bytes.
    pub vram: u64,
    /// Largest partition that could be had now, in bytes.
    pub vram_free: u64,
    /// Channels for tenants.
    pub channels: u16,
    /// Number of channels that are not granted.
    pub channels_free: u16,
    /// Name of the scheduling policy.
    pub policy: Word,
    /// Length of a turn in microseconds, if it is set.
    pub slice_us: Option<u64>,
    /// Period of credit in microseconds, if it is set.
    pub period_us: Option<u64>,
    /// Costs of the card's use, if the GPU is a card that the aggregator programs itself.
    pub card: Option<CardStatus>,
    /// How VRAM is zeroed.
    pub scrub: ScrubStatus,
    /// How late looks at engines and ends of turns came, in nanoseconds, since the policy was set.
    pub late_ns: Times,
    /// How long the thread that owns the GPU was at each kind of thing at a time.
    pub steps: StepTable,
    /// Number of protocol violations of unadmitted connections, which were refused.
    pub strangers_refused: u64,
    /// An operator admits no more VMs.
    pub draining: bool,
    /// VMs that may be admitted, if the GPU's file lists them.
    pub vms: Option<Vec<GuestStatus>>,
    /// Processes that were turned away at the aggregator's sockets, because `allow_users` does not name their
    /// user.
    pub refused_peers: u64,
    /// Hellos that were refused.
    pub refused_hellos: u64,
    /// Sizes of VMs, and how many of each could be had now.
    pub types: Vec<TypeStatus>,
    /// True when the device is gone.
    pub lost: bool,
}

/// A size of VMs, in the words of mediated devices. Any other size can be had as well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeStatus {
    /// Chip and VRAM: `GF100-256M`.
    pub name: String,
    /// VRAM in bytes.
    pub vram: u64,
    /// How many could be connected now, if nothing else is.
    pub available_instances: u64,
    /// Description of the type, in words.
    pub description: String,
}

/// Costs of a card's use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CardStatus {
    /// Loads from BARs and configuration space so far.
    pub reads: u64,
    /// Stores to them so far.
    pub writes: u64,
    /// Bytes of the host's memory that the card reaches now.
    pub reached: u64,
}

/// How VRAM is zeroed, and what is known of tenants that are gone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubStatus {
    /// By whom, and how fast; absent where the driver does not count.
    #[serde(flatten)]
    pub figures: Option<ScrubFigures>,
    /// Engine accesses of the host's own channels that met a tenant's memory, where hardware can tell (must
    /// be 0).
    pub foreign_accesses: Option<u64>,
    /// Tenants that are gone.
    pub departures: Departures,
}

/// Figures of zeroing since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFigures {
    /// Who zeroes now: `copy engine` or `processor`.
    pub by: Word,
    /// Bytes that the copy engine zeroed.
    #[serde(default)]
    pub engine_bytes: u64,
    /// Time that it had for them, waiting for other channels included, in nanoseconds.
    #[serde(default)]
    pub engine_ns: u64,
    /// Bytes a second of the copy engine; 0 before it did anything.
    #[serde(default)]
    pub engine_bytes_per_second: u64,
    /// Bytes that the processor zeroed.
    #[serde(default)]
    pub processor_bytes: u64,
    /// Time that it took, in nanoseconds.
    #[serde(default)]
    pub processor_ns: u64,
    /// Bytes that were untouched since they were zero.
    #[serde(default)]
    pub untouched_bytes: u64,
    /// Places that were marked before the copy engine worked, and read back afterwards.
    #[serde(default)]
    pub checked_places: u64,
    /// Pieces that were not zero then; the processor zeroed them again.
    #[serde(default)]
    pub failed_checks: u64,
    /// Pieces that the processor had to zero because the copy engine could not.
    #[serde(default)]
    pub fallbacks: u64,
    /// Why the last time.
    #[serde(default)]
    pub fallback_reason: Option<String>,
}

/// Tenants that are gone: how long they took from the end of their process until everything of theirs was
/// free again, and zero, and for how long the GPU had had work of theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Departures {
    /// Number of them so far.
    pub count: u64,
    /// VRAM of the last one, in bytes.
    pub last_bytes: u64,
    /// Time of the last one, in milliseconds.
    pub last_ms: u64,
    /// The longest, in milliseconds.
    pub longest_ms: u64,
    /// Time in which they had unfinished work for an engine, summed over all of them, in microseconds. The
    /// present tenants' numbers do not include it, though they had to share the GPU with these.
    pub wanted_us: u64,
}

/// How long the thread that owns the GPU was at things of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepTimes {
    /// Number of times.
    pub count: u64,
    /// How many took longer than 20 us.
    pub over_20us: u64,
    /// How many took longer than 0.2 ms.
    pub over_200us: u64,
    /// How many took longer than 2 ms.
    pub over_2ms: u64,
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
}

/// Times of all kinds, by name.
pub type StepTable = BTreeMap<Word, StepTimes>;

/// A VM that may come, for operators and for `gpuvmk apply`: also what `vm.allow` takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestStatus {
    /// Its name.
    pub name: String,
    /// Whose back end may be it, if it is a user's.
    pub uid: Option<u32>,
    /// True if it has its own socket.
    #[serde(default)]
    pub own_socket: bool,
    /// Most VRAM, in bytes.
    pub vram: u64,
    /// Limit of channels.
    pub channels: u16,
    /// Its part of the GPU's time, as `gpuvmk set` takes it.
    #[serde(default)]
    pub share: Vec<String>,
    /// Most host memory for page tables.
    pub page_tables: Option<u64>,
    /// Most pages mapped.
    pub mappings: Option<u64>,
    /// Most doorbells a second.
    pub doorbells: Option<u32>,
    /// Most of the aggregator's thread, in percent.
    pub thread_time: Option<u8>,
    /// Most pieces of memory.
    pub memory_ranges: Option<u32>,
}
