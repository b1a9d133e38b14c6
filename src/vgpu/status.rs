//! Counters and state of a vGPU, for people and for the control socket.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gpuvmk_aggregator::link::LinkError;
use gpuvmk_aggregator::protocol::RefusalKind;
use gpuvmk_aggregator::report::{FailSafeReason, FailSafeState};
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

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the vGPU began, as they are kept.
        #[derive(Debug, Default)]
        pub struct Counters {
            /// How long walks take that map and that unmap.
            pub walk_times: WalkTimes,
            $($(#[$doc])* pub $name: Counter,)*
        }

        /// Counts since the vGPU began.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// `name=count`, for those that are not 0.
        impl fmt::Display for Counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let all = [$((stringify!($name), self.$name),)*];
                let mut separator = "";
                for (name, count) in all.into_iter().filter(|(_, count)| *count != 0) {
                    write!(f, "{separator}{name}={count}")?;
                    separator = " ";
                }
                Ok(())
            }
        }

        impl Counters {
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// TLB invalidations by the guest.
    flushes,
    /// Those whose page directory no channel uses; they cost nothing.
    flushes_unused,
    /// Walks of an address space.
    walks,
    /// Time spent in walks, requests to the aggregator included, in nanoseconds.
    walk_nanos,
    /// Time of them that was spent waiting for the aggregator, in nanoseconds.
    update_nanos,
    /// Pages of guest page tables that were compared.
    table_pages,
    /// Pages of guest page tables that are not in the guest's memory.
    tables_unreadable,
    /// Number of runs that were mapped.
    runs_mapped,
    /// Pages in them.
    pages_mapped,
    /// Number of runs that were unmapped.
    runs_unmapped,
    /// Pages in them.
    pages_unmapped,
    /// Pages left unmapped because their target is not the guest's memory, counted at each walk.
    pages_withheld,
    /// Runs left unmapped because the physical GPU has no such virtual addresses.
    runs_unreachable,
    /// Pages that moved into BAR3's memory or out of it.
    bar3_pages_moved,
    /// Pages that the guest's tables show in BAR3 and that it cannot show, each time that was found.
    bar3_pages_not_shown,
    /// Doorbells passed on.
    doorbells,
    /// Doorbells of channels that do not exist on the host.
    doorbells_dropped,
    /// Requests to the aggregator.
    requests,
    /// Requests that it refused.
    refusals,
    /// Instance blocks that were refused here.
    bad_instances,
    /// Channel numbers that were not granted.
    bad_channels,
    /// Channels that got work although the host did not have them, and whose end was reported to the guest.
    channels_refused,
    /// Channels and objects that firmware's part refused the driver.
    refused_to_guest,
    /// Number of committed runlists.
    runlists,
    /// Entries dropped from them.
    runlist_entries_dropped,
    /// Engine resets by the guest.
    engine_resets,
    /// Requests of the guest that were dropped in fail-safe state.
    dropped_in_fail_safe,
    /// Number of function resets.
    resets,
    /// Connections made anew after the aggregator was gone.
    reconnects,
    /// Messages that the aggregator sent the guest's driver itself.
    messages_posted,
    /// Notifications of completed work.
    events_non_stall,
    /// Number of MMU faults.
    events_fault,
    /// Channels stopped by the host unit.
    events_host_error,
    /// Channels stopped by the graphics engine.
    events_graphics_error,
    /// Channels stopped by the physical GPU's own manager.
    events_channel_error,
    /// Channels taken off because they made no progress.
    events_hung,
    /// Number of completed preemptions.
    events_preempted,
    /// Events that came for a channel that is gone.
    events_stale,
}

/// A counter that several threads may increase.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn one(&self) {
        self.add(1);
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
