//! Counters and state of a vGPU, for people and for the control socket.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use gpuvmk_aggregator::link::LinkError;
use gpuvmk_aggregator::protocol::RefusalKind;
use gpuvmk_aggregator::report::{FailSafeReason, FailSafeState};
use gpuvmk_counters::counters;
use gpuvmk_fifo_virt::CopiedBytes;
use gpuvmk_observe::latency::{Latency, Times};

/// Why a vGPU stopped serving its guest. Only this vGPU: other VMs do not notice. A function reset ends it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailSafe {
    /// The aggregator, or its physical GPU, is gone.
    #[error("The aggregator is gone: {0}")]
    AggregatorLost(String),
    /// The aggregator refused something that this side had checked.
    #[error("The aggregator refused a checked request: {0}")]
    ProtocolViolation(String),
    /// The guest asked for more than a VM may have.
    #[error("A quota is exhausted: {0}")]
    QuotaExceeded(String),
    /// The physical GPU failed.
    #[error("The physical GPU failed: {0}")]
    HardwareFailed(String),
    /// The guest's page tables point at too much that is not the guest's.
    #[error("The guest's GPU page tables point outside its memory: {0}")]
    ForeignMemory(String),
    /// A page of the guest's memory was not there when it was needed.
    #[error("A page of the guest's memory could not be had: {0}")]
    MemoryLost(String),
}

impl FailSafe {
    /// The reason without its details.
    pub const fn reason(&self) -> FailSafeReason {
        match self {
            Self::AggregatorLost(_) => FailSafeReason::AggregatorLost,
            Self::ProtocolViolation(_) => FailSafeReason::ProtocolViolation,
            Self::QuotaExceeded(_) => FailSafeReason::QuotaExceeded,
            Self::HardwareFailed(_) => FailSafeReason::HardwareFailed,
            Self::ForeignMemory(_) => FailSafeReason::ForeignMemory,
            Self::MemoryLost(_) => FailSafeReason::MemoryLost,
        }
    }
}

/// Fail-safe states of a vGPU, over its resets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailSafeRecord {
    /// The present one.
    pub now: Option<FailSafeState>,
    /// How many there were.
    pub count: u32,
}

impl From<LinkError> for FailSafe {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Lost(reason) => Self::AggregatorLost(reason),
            LinkError::Refused { kind, message } => match kind {
                RefusalKind::Exhausted | RefusalKind::Quota => Self::QuotaExceeded(message),
                RefusalKind::Hardware => Self::HardwareFailed(message),
                RefusalKind::MemoryLost => Self::MemoryLost(message),
                RefusalKind::Protocol
                | RefusalKind::Version
                | RefusalKind::Name
                | RefusalKind::OutsidePartition
                | RefusalKind::BadId
                | RefusalKind::Chip
                | RefusalKind::Class => Self::ProtocolViolation(message),
            },
        }
    }
}

/// Whether a vGPU serves its guest.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// It serves its guest.
    #[default]
    Running,
    /// It does not: requests are dropped until a function reset.
    FailSafe(FailSafe),
}

counters! {
    /// Counts since the vGPU began.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Counts kept as Counters with {
        /// How long walks take that map and that unmap.
        pub walk_times: WalkTimes,
    } {
        /// TLB invalidations by the guest.
        pub flushes: u64 = (counter Number only "the device back end logs it at its end"),
        /// Those whose page directory no channel uses; they cost nothing.
        pub flushes_unused: u64 = (counter Number only "the device back end logs it at its end"),
        /// Walks of an address space.
        pub walks: u64 = (counter Number only "the device back end logs it at its end"),
        /// Time spent in walks, requests to the aggregator included, in nanoseconds.
        pub walk_nanos: u64 = (counter Nanos only "the device back end logs it at its end"),
        /// Time of them that was spent waiting for the aggregator, in nanoseconds.
        pub update_nanos: u64 = (counter Nanos only "the device back end logs it at its end"),
        /// Pages of guest page tables that were compared.
        pub table_pages: u64 = (counter Number only "the device back end logs it at its end"),
        /// Pages of guest page tables that are not in the guest's memory.
        pub tables_unreadable: u64 = (counter Number only "the device back end logs it at its end"),
        /// Number of runs that were mapped.
        pub runs_mapped: u64 = (counter Number only "the device back end logs it at its end"),
        /// Pages in them.
        pub pages_mapped: u64 = (counter Number only "the device back end logs it at its end"),
        /// Number of runs that were unmapped.
        pub runs_unmapped: u64 = (counter Number only "the device back end logs it at its end"),
        /// Pages in them.
        pub pages_unmapped: u64 = (counter Number only "the device back end logs it at its end"),
        /// Pages left unmapped because their target is not the guest's memory, counted at each walk.
        pub pages_withheld: u64 = (counter Number only "the device back end logs it at its end"),
        /// Runs left unmapped because the physical GPU has no such virtual addresses.
        pub runs_unreachable: u64 = (counter Number only "the device back end logs it at its end"),
        /// Pages that moved into BAR3's memory or out of it.
        pub bar3_pages_moved: u64 = (counter Number only "the device back end logs it at its end"),
        /// Pages that the guest's tables show in BAR3 and that it cannot show, each time that was found.
        pub bar3_pages_not_shown: u64 = (counter Number only "the device back end logs it at its end"),
        /// Doorbells passed on.
        pub doorbells: u64 = (counter Number only "the device back end logs it at its end"),
        /// Doorbells of channels that do not exist on the host.
        pub doorbells_dropped: u64 = (counter Number only "the device back end logs it at its end"),
        /// Requests to the aggregator.
        pub requests: u64 = (counter Number only "the device back end logs it at its end"),
        /// Requests that it refused.
        pub refusals: u64 = (counter Number only "the device back end logs it at its end"),
        /// Instance blocks that were refused here.
        pub bad_instances: u64 = (counter Number only "the device back end logs it at its end"),
        /// Channel numbers that were not granted.
        pub bad_channels: u64 = (counter Number only "the device back end logs it at its end"),
        /// Channels that got work although the host did not have them, and whose end was reported to the
        /// guest.
        pub channels_refused: u64 = (counter Number only "the device back end logs it at its end"),
        /// Channels and objects that firmware's part refused the driver.
        pub refused_to_guest: u64 = (counter Number only "the device back end logs it at its end"),
        /// Number of committed runlists.
        pub runlists: u64 = (counter Number only "the device back end logs it at its end"),
        /// Entries dropped from them.
        pub runlist_entries_dropped: u64 = (counter Number only "the device back end logs it at its end"),
        /// Engine resets by the guest.
        pub engine_resets: u64 = (counter Number only "the device back end logs it at its end"),
        /// Requests of the guest that were dropped in fail-safe state.
        pub dropped_in_fail_safe: u64 = (counter Number only "the device back end logs it at its end"),
        /// Number of function resets.
        pub resets: u64 = (counter Number only "the device back end logs it at its end"),
        /// Connections made anew after the aggregator was gone.
        pub reconnects: u64 = (counter Number only "the device back end logs it at its end"),
        /// Messages that the aggregator sent the guest's driver itself.
        pub messages_posted: u64 = (counter Number only "the device back end logs it at its end"),
        /// Notifications of completed work.
        pub events_non_stall: u64 = (counter Number only "the device back end logs it at its end"),
        /// Number of MMU faults.
        pub events_fault: u64 = (counter Number only "the device back end logs it at its end"),
        /// Channels stopped by the host unit.
        pub events_host_error: u64 = (counter Number only "the device back end logs it at its end"),
        /// Channels stopped by the graphics engine.
        pub events_graphics_error: u64 = (counter Number only "the device back end logs it at its end"),
        /// Channels stopped by the physical GPU's own manager.
        pub events_channel_error: u64 = (counter Number only "the device back end logs it at its end"),
        /// Channels taken off because they made no progress.
        pub events_hung: u64 = (counter Number only "the device back end logs it at its end"),
        /// Number of completed preemptions.
        pub events_preempted: u64 = (counter Number only "the device back end logs it at its end"),
        /// Events that came for a channel that is gone.
        pub events_stale: u64 = (counter Number only "the device back end logs it at its end"),
    }
}

/// A vGPU at a glance.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Whether it serves its guest.
    pub state: State,
    /// Its fail-safe states.
    pub fail_safe: FailSafeRecord,
    /// VRAM in bytes.
    pub vram: u64,
    /// Channel numbers that the guest bound.
    pub channels_bound: usize,
    /// Channels that exist on the host.
    pub channels_placed: usize,
    /// Address spaces that are shadowed.
    pub spaces: usize,
    /// Guest page tables that are followed.
    pub tables: usize,
    /// Bytes of snapshots of them.
    pub snapshot_bytes: usize,
    /// Values of the counters.
    pub counts: Counts,
    /// How long changes of page tables took, requests to the aggregator included.
    pub walks: WalkSummary,
    /// Bytes that its channels copied, by their commands.
    pub copied: CopiedBytes,
}

/// Times of walks that found changes. A walk that found both kinds counts as one that maps.
#[derive(Debug, Default)]
pub struct WalkTimes {
    maps: Mutex<Latency>,
    unmaps: Mutex<Latency>,
}

/// Times of walks at a glance, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WalkSummary {
    /// Of walks that map.
    pub maps: Times,
    /// Of walks that only unmap.
    pub unmaps: Times,
}

impl WalkTimes {
    /// Counts a walk by what it changed.
    pub fn note(&self, mapped: bool, unmapped: bool, nanos: u64) {
        let times = match (mapped, unmapped) {
            (true, _) => &self.maps,
            (false, true) => &self.unmaps,
            (false, false) => return,
        };
        times.lock().unwrap_or_else(PoisonError::into_inner).note_nanos(nanos);
    }

    /// All so far.
    pub fn read(&self) -> WalkSummary {
        let summary = |times: &Mutex<Latency>| times.lock().unwrap_or_else(PoisonError::into_inner).summary();
        WalkSummary { maps: summary(&self.maps), unmaps: summary(&self.unmaps) }
    }
}

/// `name=value`.
impl fmt::Display for WalkSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { maps, unmaps } = self;
        write!(f, "maps={} map_p50_ns={} map_p99_ns={} ", maps.count, maps.p50, maps.p99)?;
        write!(f, "unmaps={} unmap_p50_ns={} unmap_p99_ns={}", unmaps.count, unmaps.p50, unmaps.p99)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_count_by_what_they_changed() {
        let times = WalkTimes::default();
        times.note(true, true, 100);
        times.note(false, true, 50);
        times.note(false, false, 10);

        let text = times.read().to_string();
        assert_eq!(text, "maps=1 map_p50_ns=100 map_p99_ns=100 unmaps=1 unmap_p50_ns=50 unmap_p99_ns=50");
    }

    #[test]
    fn counts_that_are_not_zero_are_shown_by_name() {
        let counts = Counts { walks: 7, walk_nanos: 1200, ..Counts::default() };
        assert_eq!(counts.to_string(), "walks=7 walk_nanos=1200");
    }
}
