//! Status of one tenant.

use std::collections::BTreeMap;

use gpuvmk_counters::{Figure, Named, counters};
use serde::{Deserialize, Serialize};

use crate::driver::DriverCounters;
use crate::figures::{Times, Word};

counters! {
    /// What the aggregator counts of a tenant, requests and pages above all, since it came.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct TenantCounters {
        /// Times that it was not served any more.
        ///
        /// The aggregator adds those that its device backend decided.
        pub fail_safe_count: u64 = (counter Number "fail_safes"),
        /// Faults and errors of its channels.
        pub faults: u64 = (counter Number "faults"),
        /// Times that doorbells had to wait because there were too many.
        pub throttled: u64 = (counter Number "throttles"),
        /// Function resets.
        ///
        /// Those that were carried out: by its guest, and between two QEMUs.
        pub resets: u64 = (counter Number "resets"),
        /// Requests refused.
        pub refusals: u64 = (counter Number "refusals"),
        /// Pages that pointed outside of its own memory.
        pub bad_pages: u64 = (counter Number "bad_pages"),
        /// Times that memory of its own could not be mapped for the GPU.
        ///
        /// For reading only, cut off, or not to be held in place.
        pub unmappable: u64 = (counter Number "unmappable"),
        /// Pages of its memory that could not be had when an engine met them.
        ///
        /// They were missing, or not allocated.
        pub lost_pages: u64 = (counter Number "lost_pages"),
        /// Address-space updates.
        pub updates: u64 = (counter Number "updates"),
    }
}

counters! {
    /// State of one tenant.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct TenantStatus {
        /// Name of the VM.
        pub name: String = (fact),
        /// Process of its device backend, while it is connected.
        pub pid: Option<i32> = (fact),
        /// User of its device backend.
        pub uid: u32 = (fact),
        /// True if the name is more than the back end's word: the GPU's file, or the aggregator's own user,
        /// says whose it is.
        pub vouched: bool = (fact),
        /// `preparing`, `active`, `resetting`, `leaving` or `withheld`.
        pub state: Word = (fact),
        /// Whether an operator paused it.
        ///
        /// Its work waits.
        pub paused: bool = (gauge Flag "paused"),
        /// Whether it is not served.
        ///
        /// And why.
        pub fail_safe: Option<FailSafeStatus> = (gauge Flag "fail_safe"),
        /// What the aggregator counts.
        #[serde(flatten)]
        pub counters: TenantCounters = (flat),
        /// Its limits, by name.
        pub limits: LimitTable = (each "limit" "limit"),
        /// VRAM of the VM.
        pub vram: u64 = (gauge Bytes "vram"),
        /// Channels that exist.
        pub channels: usize = (gauge Number "channels"),
        /// Number of granted channels.
        pub channel_limit: u16 = (fact),
        /// Share of the engine time that present tenants used.
        pub gpu_share: f64 = (gauge Ratio only "vm_gpu has it for any time"),
        /// Engine time used, by sampling.
        pub busy_ms: u64 = (counter Millis only "vm_gpu has it by engine"),
        /// Time in which it had work that was not done.
        ///
        /// What it used, and what it waited for others.
        pub wanting_ms: u64 = (counter Millis only "vm_wanting has it by engine"),
        /// Its granted share.
        pub share: Option<ShareStatus> = (fact),
        /// Its use and waits, by engine.
        pub engines: Vec<EngineStatus> = (each "engine" ""),
        /// Engine accesses that left its own memory (must be 0).
        ///
        /// Absent where hardware cannot tell.
        pub foreign_accesses: Option<u64> = (counter Number "foreign_accesses"),
        /// Doorbells.
        pub submissions: u64 = (counter Number "submissions"),
        /// Written by copies, as its backend says.
        ///
        /// On all engines.
        pub copied_bytes: u64 = (counter Bytes "copied"),
        /// Ring entries that its backend did not parse for copies, by its report.
        pub unread_entries: u64 = (counter Number "unread_entries"),
        /// Accesses to its function that its backend answered.
        ///
        /// By its report.
        pub trapped: u64 = (counter Number "trapped_accesses"),
        /// What its backend counts of its driver, by its report.
        pub driver: DriverCounters = (part ""),
        /// How long doorbells took from the device backend to the physical GPU.
        pub doorbell_ns: Times = (part "doorbell" "How long doorbells took to the physical GPU"),
        /// Channels that were taken off because they made no progress.
        ///
        /// Or because they did not leave their engine.
        pub hangs: u64 = (counter Number "hangs"),
        /// Engines that were reset for them.
        pub engine_resets: u64 = (counter Number "engine_resets"),
        /// Time that it had to wait for its hangs.
        pub hang_penalty_ms: u64 = (counter Millis "hang_penalty"),
        /// Wake-ups that took so long that it was slowed down.
        ///
        /// And answers, because of those who wait for them.
        pub dear_wakeups: u64 = (counter Number "dear_wakeups"),
        /// How long an address-space update took the driver of the physical GPU.
        pub update_ns: Times = (part "update" "How long the driver took for address-space updates"),
        /// Pages mapped now.
        pub mapped_pages: u64 = (gauge Number "mapped_pages"),
        /// Shadow page tables of the VM.
        pub table_bytes: u64 = (gauge Bytes "page_tables"),
        /// Guest memory that the GPU can reach.
        pub memory: u64 = (gauge Bytes "memory"),
        /// Private memory of its device backend, in bytes. The aggregator leaves it out: `gpuvmk status`
        /// looks, and adds it where its user may see it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub backend_private_memory: Option<u64> = (fact),
    }
}

impl Named for TenantStatus {
    fn name(&self) -> &str {
        &self.name
    }
}

counters! {
    /// A VM's account on one engine.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct EngineStatus {
        /// `graphics`, `copy0` ...
        pub engine: String = (fact),
        /// Time that an engine ran it.
        ///
        /// By sampling.
        pub used_us: u64 = (counter Micros "gpu"),
        /// Time that it waited for its turn.
        ///
        /// With work that could go on.
        pub waiting_us: u64 = (counter Micros "waiting"),
        /// Time in which it had work that could go on.
        pub wanting_us: u64 = (counter Micros "wanting"),
        /// Doorbells of an engine's channels.
        pub submissions: u64 = (counter Number "engine_submissions"),
        /// Written by an engine's copies, as its backend says.
        pub copied_bytes: u64 = (counter Bytes "engine_copied"),
        /// Times that an engine was given to it alone.
        pub switches: u64 = (counter Number "switches"),
        /// Ring entries not fetched at the last look.
        pub queue_depth: u64 = (gauge Number "queue_depth"),
        /// How long doorbells waited for their turn.
        pub wait_ns: Times = (part "wait" "How long doorbells waited for their turn"),
        /// Time in which the engine ran it in truth.
        ///
        /// Where hardware can tell: the software GPU's ledger.
        pub true_us: Option<u64> = (counter Micros only "hardware cannot tell: tests of sampling read it"),
    }
}

impl Named for EngineStatus {
    fn name(&self) -> &str {
        &self.engine
    }
}

/// The side that decided that a vGPU is in fail-safe state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecidedBy {
    /// Its device backend.
    Backend,
    /// The aggregator.
    Aggregator,
}

impl DecidedBy {
    /// The word that the status has for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Backend => "backend",
            Self::Aggregator => "aggregator",
        }
    }
}

/// A vGPU's fail-safe state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailSafeStatus {
    /// What the guest or the host did wrong, as a word.
    pub reason: Word,
    /// Who decided it.
    pub decided_by: DecidedBy,
    /// For how long, in milliseconds.
    pub for_ms: u32,
    /// How long the decision took after its cause, in microseconds.
    pub decided_us: u32,
}

/// It is a number only by being there.
impl Figure for FailSafeStatus {
    fn figure(&self) -> f64 {
        1.0
    }
}

counters! {
    /// How far a VM is from a limit.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct LimitStatus {
        /// The limit; `None` where there is none.
        pub limit: Option<u64> = (fact),
        /// What is used now; of a rate, what was asked for since the VM came.
        pub used: u64 = (gauge Number only "bytes, pages, channels or milliseconds, as the limit is"),
        /// Times that a limit was met.
        ///
        /// Something was refused, or made to wait.
        pub hits: u64 = (counter Number "hits"),
    }
}

/// All limits of a VM, by name.
pub type LimitTable = BTreeMap<Word, LimitStatus>;

/// A VM's part of the GPU's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShareStatus {
    /// Weight.
    pub weight: u32,
    /// Cap in percent.
    pub cap: Option<u8>,
    /// Fixed part in percent.
    pub fixed: Option<u8>,
    /// Period in microseconds.
    pub period_us: u64,
    /// Budget in microseconds.
    pub budget_us: u64,
}
