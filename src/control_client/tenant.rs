//! Status of one tenant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::figures::{Times, Word};

/// State of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantStatus {
    /// Name of the VM.
    pub name: String,
    /// Process of its device backend, while it is connected.
    pub pid: Option<i32>,
    /// User of its device backend.
    pub uid: u32,
    /// True if the name is more than the back end's word: the GPU's file, or the aggregator's own user, says
    /// whose it is.
    pub vouched: bool,
    /// `preparing`, `active`, `resetting`, `leaving` or `withheld`.
    pub state: Word,
    /// An operator paused it: its work waits.
    pub paused: bool,
    /// Why it is not served, if it is not.
    pub fail_safe: Option<FailSafeStatus>,
    /// Times that it was not.
    pub fail_safe_count: u64,
    /// Its limits, by name.
    pub limits: LimitTable,
    /// VRAM in bytes.
    pub vram: u64,
    /// Channels that exist.
    pub channels: usize,
    /// Number of granted channels.
    pub channel_limit: u16,
    /// Share of the engine time that present tenants used, 0 to 1.
    pub gpu_share: f64,
    /// Engine time used, in milliseconds, by sampling.
    pub busy_ms: u64,
    /// Time in which it had work that was not done, in milliseconds: what it used, and what it waited for
    /// others.
    pub wanting_ms: u64,
    /// Its granted share.
    pub share: Option<ShareStatus>,
    /// Its use and waits, by engine.
    pub engines: Vec<EngineStatus>,
    /// Engine accesses that left the tenant's own memory, where hardware can tell (must be 0).
    pub foreign_accesses: Option<u64>,
    /// Number of doorbells.
    pub submissions: u64,
    /// Bytes that its copies wrote, on all engines, by its backend's report.
    pub copied_bytes: u64,
    /// Ring entries whose commands the backend did not parse for copies, by its report.
    pub unread_entries: u64,
    /// Accesses of the guest to its function that the backend answered, by its report.
    pub trapped: u64,
    /// How long they took from the device backend to the physical GPU, in nanoseconds.
    pub doorbell_ns: Times,
    /// Faults and errors of its channels.
    pub faults: u64,
    /// Channels that were taken off because they made no progress, or did not leave their engine.
    pub hangs: u64,
    /// Engines that were reset for them.
    pub engine_resets: u64,
    /// How long it had to wait for its hangs, in milliseconds.
    pub hang_penalty_ms: u64,
    /// Times that its doorbells had to wait because there were too many.
    pub throttled: u64,
    /// Wake-ups and answers that took so long, because of those who wait for them, that it was slowed down.
    pub dear_wakeups: u64,
    /// Function resets that were carried out: by its guest, and between two QEMUs.
    pub resets: u64,
    /// Number of refused requests.
    pub refusals: u64,
    /// Pages that pointed outside the tenant's own.
    pub bad_pages: u64,
    /// Times that memory of the tenant's own could not be mapped: for reading only, cut off, or not to be
    /// pinned.
    pub unmappable: u64,
    /// Pages of its memory that were missing or not allocated when an engine accessed them.
    pub lost_pages: u64,
    /// Number of address-space updates.
    pub updates: u64,
    /// How long one took the driver of the physical GPU, in nanoseconds.
    pub update_ns: Times,
    /// Pages mapped now.
    pub mapped_pages: u64,
    /// Page-table memory used, in bytes.
    pub table_bytes: u64,
    /// Guest memory that the GPU can reach, in bytes.
    pub memory: u64,
    /// Private memory of its device backend, in bytes. The aggregator leaves it out: `gpuvmk status` looks,
    /// and adds it where its user may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend_private_memory: Option<u64>,
}

/// A VM's account on one engine. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineStatus {
    /// `graphics`, `copy0` ...
    pub engine: String,
    /// Time in which the engine ran it, by sampling.
    pub used_us: u64,
    /// Time in which it had work that could go on, and had to wait for its turn.
    pub waiting_us: u64,
    /// Time in which it had work that could go on.
    pub wanting_us: u64,
    /// Number of doorbells.
    pub submissions: u64,
    /// Bytes that its copies wrote, by its backend's report.
    pub copied_bytes: u64,
    /// Times that the engine was given to it alone.
    pub switches: u64,
    /// Ring entries that hardware had not fetched when it was last looked.
    pub queue_depth: u64,
    /// How long doorbells waited for their turn, in nanoseconds.
    pub wait_ns: Times,
    /// Time in which the engine ran it in truth, where hardware can tell (the software GPU's ledger).
    pub true_us: Option<u64>,
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
    /// The reason.
    pub reason: Word,
    /// Who decided it.
    pub decided_by: DecidedBy,
    /// For how long, in milliseconds.
    pub for_ms: u32,
    /// How long the decision took after its cause, in microseconds.
    pub decided_us: u32,
}

/// How far a VM is from a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitStatus {
    /// The limit; `None` where there is none.
    pub limit: Option<u64>,
    /// What is used now; of a rate, what was asked for since the VM came.
    pub used: u64,
    /// Times that the limit was met: refused, or made to wait.
    pub hits: u64,
}

/// All limits of a VM, by name.
pub type LimitTable = BTreeMap<Word, LimitStatus>;

/// A VM's part of the GPU's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShareStatus {
    /// Weight among VMs with work.
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
