//! Status of the physical GPU.

use std::collections::BTreeMap;

use gpuvmk_counters::counters;
use serde::{Deserialize, Serialize};

use crate::figures::{Times, Word};

counters! {
    /// State of the physical GPU.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct GpuStatus {
        /// Name of the chip.
        pub chip: String = (fact),
        /// How the physical GPU is reached (`soft`).
        pub backend: String = (fact),
        /// VRAM for tenants.
        pub vram: u64 = (gauge Bytes "vram" { "state": "total" } "VRAM for VMs"),
        /// Largest partition that could be had now.
        pub vram_free: u64 = (gauge Bytes "vram" { "state": "largest_free" }),
        /// Channels for tenants.
        pub channels: u16 = (gauge Number "channels" { "state": "total" } "Channels for VMs"),
        /// Channels that are not granted.
        pub channels_free: u16 = (gauge Number "channels" { "state": "free" }),
        /// Name of the scheduling policy.
        pub policy: Word = (fact),
        /// Length of a turn in microseconds, if it is set.
        pub slice_us: Option<u64> = (fact),
        /// Period of credit in microseconds, if it is set.
        pub period_us: Option<u64> = (fact),
        /// Costs of the card's use, if the GPU is a card that the aggregator programs itself.
        pub card: Option<CardUse> = (part "card"),
        /// How VRAM is zeroed.
        pub scrub: ScrubStatus = (part "scrub"),
        /// Launches of shaders that the software GPU does not execute.
        ///
        /// Its own gaps, each told in the log. Absent on a card.
        pub launches_not_executed: Option<u64> = (counter Number "launches_not_executed"),
        /// How late looks at engines and ends of turns came, since the policy was set.
        pub late_ns: Times = (part "scheduler_lateness" "How late decisions came"),
        /// How long the thread that owns the GPU was at each kind of thing at a time.
        pub steps: StepTable = (each "step" ""),
        /// Refusals of connections that are no VMs.
        ///
        /// For protocol violations: no honest device backend commits them.
        pub strangers_refused: u64 = (counter Number "strangers_refused"),
        /// Whether no more VMs are admitted.
        ///
        /// An operator said so.
        pub draining: bool = (gauge Flag "draining"),
        /// VMs that may be admitted, if the GPU's file lists them.
        pub vms: Option<Vec<GuestStatus>> = (fact),
        /// Processes that were turned away at the aggregator's sockets, because `allow_users` does not name
        /// their user.
        pub refused_peers: u64 = (
            counter Number "refused" { "state": "socket" } "Processes turned away at a socket, and hellos refused"
        ),
        /// Hellos that were refused.
        pub refused_hellos: u64 = (counter Number "refused" { "state": "hello" }),
        /// Sizes of VMs, and how many of each could be had now.
        pub types: Vec<TypeStatus> = (fact),
        /// Whether the device is gone.
        pub lost: bool = (gauge Flag "lost"),
    }
}

/// A size of VMs, in the words of mediated devices. Any other size can be had as well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeStatus {
    /// Chip and VRAM: `GF100-256M`.
    pub name: String,
    /// VRAM in bytes.
    pub vram: u64,
    /// Chips that a VM of this size can be shown here.
    pub chips: Vec<String>,
    /// How many could be connected now, if nothing else is.
    pub available_instances: u64,
    /// Description of the type, in words.
    pub description: String,
}

counters! {
    /// What the use of a card costs.
    ///
    /// Each access takes the time of the bus; memory that the card reaches is locked in RAM.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct CardUse {
        /// Loads from a card by its aggregator.
        ///
        /// From its BARs and its configuration space.
        pub reads: u64 = (counter Number "reads"),
        /// Stores to a card by its aggregator.
        pub writes: u64 = (counter Number "writes"),
        /// Host memory that a card reaches.
        pub reached: u64 = (gauge Bytes "reach"),
    }
}

counters! {
    /// How VRAM is zeroed, and what is known of tenants that are gone.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct ScrubStatus {
        /// By whom, and how fast; absent where the driver does not count.
        #[serde(flatten)]
        pub figures: Option<ScrubReport> = (flat),
        /// Engine accesses of the host's own channels that met a tenant's memory (must be 0).
        ///
        /// Absent where hardware cannot tell.
        pub foreign_accesses: Option<u64> = (counter Number "foreign_accesses"),
        /// Tenants that are gone.
        pub departures: Departures = (part ""),
    }
}

counters! {
    /// Figures of zeroing since the start.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ScrubReport {
        /// Who zeroes now: `copy engine` or `processor`.
        pub by: Word = (fact),
        /// VRAM that the copy engine zeroed.
        #[serde(default)]
        pub engine_bytes: u64 = (counter Bytes "engine"),
        /// Time that the copy engine had for it, waiting for other channels included.
        #[serde(default)]
        pub engine_ns: u64 = (counter Nanos "engine"),
        /// What the copy engine zeroes in a second.
        ///
        /// 0 before it did anything.
        #[serde(default)]
        pub engine_bytes_per_second: u64 = (gauge BytesPerSecond only "the quotient of the two before it"),
        /// VRAM that the processor zeroed.
        #[serde(default)]
        pub processor_bytes: u64 = (counter Bytes "processor"),
        /// Time that the processor took for it.
        #[serde(default)]
        pub processor_ns: u64 = (counter Nanos "processor"),
        /// VRAM that was untouched since it was zero.
        #[serde(default)]
        pub untouched_bytes: u64 = (counter Bytes "untouched"),
        /// Places that were marked before the copy engine worked, and read back afterwards.
        #[serde(default)]
        pub checked_places: u64 = (counter Number "checked_places"),
        /// Pieces that were not zero when they were read back.
        ///
        /// The processor zeroed them again.
        #[serde(default)]
        pub failed_checks: u64 = (counter Number "failed_checks"),
        /// Pieces that the processor had to zero because the copy engine could not.
        #[serde(default)]
        pub fallbacks: u64 = (counter Number "fallbacks"),
        /// Why the last time.
        #[serde(default)]
        pub fallback_reason: Option<String> = (fact),
    }
}

counters! {
    /// Tenants that are gone: how long they took from the end of their process until everything of theirs was
    /// free again, and zero, and for how long the GPU had had work of theirs.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Departures {
        /// VMs that are gone.
        pub count: u64 = (counter Number "departures"),
        /// VRAM of the last VM that went.
        pub last_bytes: u64 = (gauge Bytes "last_departure"),
        /// Time until all of the last VM was free and zero.
        pub last_ms: u64 = (gauge Millis "last_departure"),
        /// Time until all of the slowest VM was free and zero.
        pub longest_ms: u64 = (gauge Millis "longest_departure"),
        /// Time in which VMs that are gone had work that was not done.
        ///
        /// For an engine, summed over all of them. The present tenants' numbers do not include it, though
        /// they had to share the GPU with these.
        pub wanted_us: u64 = (counter Micros "departed_wanting"),
    }
}

counters! {
    /// How long the thread that owns the GPU was at things of one kind.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct StepTimes {
        /// Steps of the GPU's thread.
        pub count: u64 = (counter Number "steps"),
        /// How many took longer than 20 us.
        pub over_20us: u64 = (
            counter Number "long_steps" { "over": "0.00002" } "Steps of the GPU's thread that took longer than that"
        ),
        /// How many took longer than 0.2 ms.
        pub over_200us: u64 = (counter Number "long_steps" { "over": "0.0002" }),
        /// How many took longer than 2 ms.
        pub over_2ms: u64 = (counter Number "long_steps" { "over": "0.002" }),
        /// The longest step of the GPU's thread.
        pub longest_ns: u64 = (gauge Nanos "step_longest"),
    }
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
    /// Most channels.
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
