//! What the aggregator knows of one tenant: its partition, memory, address spaces, channels and counters.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::dma_map::DmaMap;
use super::limit::Limit;
use super::machine::guests::Holder;
use super::machine::{Job, Owed, ThreadAccount};
use super::partition::Partition;
use super::protocol::{RefusalKind, SpaceId};
use super::report::{FailSafeNow, FailSafeReason};
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{GuestChannel, HostChannel, HostVram, TenantId};
use gpuvmk_gpu::{GpuError, SpaceHandle};
use gpuvmk_host::reaper::Account;
use gpuvmk_observe::latency::Latency;
use gpuvmk_pci::dma::MemoryOwner;

/// An address space of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Its shadow tree.
    pub handle: SpaceHandle,
}

/// What became of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelState {
    /// Created; hardware has never seen its start bit.
    New,
    /// Hardware may have loaded it.
    Used,
    /// Stopped by a fault or an error: off the runlist until the guest destroys it.
    Faulted,
    /// Forced off the hardware after a preemption that did not end: the host channel is gone.
    Dead,
}

/// A channel of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Channel {
    /// Its number on the physical GPU (meaningless once it is dead).
    pub host: HostChannel,
    /// Its address space.
    pub space: SpaceId,
    /// Engines that it has contexts for.
    pub engines: EngineSet,
    /// The start bit.
    pub enabled: bool,
    /// What became of it.
    pub state: ChannelState,
    /// The guest waits for a preemption; when it must be over.
    pub preempt_by: Option<Duration>,
}

/// Where a tenant is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantState {
    /// Its partition is being zeroed before it gets it.
    Preparing {
        /// Bytes zeroed so far.
        scrub_from: u64,
    },
    /// Served.
    Active,
    /// Its reset is being carried out; the answer follows.
    Resetting {
        /// Bytes of the partition still to be zeroed: from this offset on.
        scrub_from: u64,
    },
    /// It is gone; its resources are being taken back.
    Leaving {
        /// True while its process may still have the partition mapped.
        peer_alive: bool,
        /// Bytes of the partition zeroed so far.
        scrub_from: u64,
        /// Bytes of the partition that nobody else has any more.
        renew_from: u64,
        /// Somebody has kept its memory, which nobody else gets for as long; when to look again.
        held: Option<Duration>,
    },
}

/// What is counted for a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests refused.
    pub refusals: u64,
    /// Pages that pointed outside the tenant's own.
    pub bad_pages: u64,
    /// Times that memory of its own could not be mapped: for reading only, cut off, or not to be held in
    /// place.
    pub unmappable: u64,
    /// Address-space updates.
    pub updates: u64,
    /// Faults and errors of its channels.
    pub faults: u64,
    /// Times that its doorbells had to wait because there were too many.
    pub throttled: u64,
    /// Fail-safe states that the aggregator decided.
    pub fail_safe: u64,
    /// Function resets that were carried out.
    pub resets: u64,
    /// Bytes of its memory that were zeroed.
    pub zeroed: u64,
    /// Pages of its system memory that could not be had.
    pub lost_pages: u64,
    /// Times that a limit was met, by [`Limit`].
    limits: [u64; Limit::ALL.len()],
}

impl Counters {
    /// A limit was met.
    pub fn met(&mut self, limit: Limit) {
        if let Some(count) = self.limits.get_mut(limit as usize) {
            *count = count.saturating_add(1);
        }
    }

    /// How often a limit was met.
    pub fn times_met(&self, limit: Limit) -> u64 {
        self.limits.get(limit as usize).copied().unwrap_or(0)
    }
}

/// A tenant.
#[derive(Debug)]
pub struct Tenant {
    /// Number.
    pub id: TenantId,
    /// Name of the VM.
    pub name: String,
    /// Whose settings, penalties and accounts its are.
    pub holder: Holder,
    /// User of its back end.
    pub uid: u32,
    /// Process of its back end.
    pub pid: i32,
    /// Its VRAM.
    pub partition: Partition,
    /// Guest channel numbers are below this.
    pub channel_limit: u16,
    /// Address-space numbers are below this.
    pub space_limit: u16,
    /// Host memory that all its page tables may take.
    pub table_quota: u64,
    /// Pages that may be mapped in all its address spaces.
    pub mapping_quota: u64,
    /// Doorbells a second.
    pub doorbell_rate: u32,
    /// Its part of the aggregator's thread.
    pub thread: ThreadAccount,
    /// Its system memory.
    pub memory: DmaMap,
    /// The same as this process has it mapped.
    pub owner: MemoryOwner,
    /// Pieces that its memory may be announced in.
    pub range_limit: usize,
    /// Its address spaces.
    pub spaces: BTreeMap<SpaceId, Space>,
    /// Its channels, by guest number.
    pub channels: Vec<Option<Channel>>,
    /// The channels that it wants to run.
    pub runlist: Vec<GuestChannel>,
    /// Notifications that it is told later.
    pub owed: Option<Owed>,
    /// Engines on which work ended while it had no channel there, as far as it had said.
    pub unnamed: EngineSet,
    /// Where it is in its life.
    pub state: TenantState,
    /// The pieces of its partition that are being zeroed.
    pub scrubbing: VecDeque<(HostVram, u64)>,
    /// When it left.
    pub leaving_since: Duration,
    /// When it left, or when its process was last seen alive after that.
    pub left: Duration,
    /// A long request that is being carried out.
    pub job: Option<Job>,
    /// All its channels and address spaces are being taken from it.
    pub stripping: bool,
    /// Hardware failed it: its resources are never given to anybody else.
    pub quarantined: bool,
    /// The aggregator does not serve it until it asks for a reset.
    pub fail_safe: Option<FailSafeNow>,
    /// Requests since its last reset that no honest backend sends.
    pub violations: u32,
    /// In whose name its files and mappings are closed.
    pub account: Account,
    /// Counters.
    pub counters: Counters,
    /// How long its doorbells took.
    pub doorbells: Latency,
    /// How long changes of its page tables took the driver.
    pub updates: Latency,
}

impl Tenant {
    /// The channel with this guest number.
    ///
    /// # Errors
    /// Out of bounds or absent.
    pub fn channel(&mut self, id: GuestChannel) -> Result<&mut Channel, Refusal> {
        let limit = self.channel_limit;
        self.channels.get_mut(usize::from(id.0)).and_then(Option::as_mut).ok_or_else(|| {
            Refusal::new(
                RefusalKind::BadId,
                format!("channel {} does not exist (numbers are 0 to {})", id.0, limit.saturating_sub(1)),
            )
        })
    }

    /// True while its partition is being zeroed before it gets it.
    pub const fn is_preparing(&self) -> bool {
        matches!(self.state, TenantState::Preparing { .. })
    }

    /// True while its reset is being carried out.
    pub const fn is_resetting(&self) -> bool {
        matches!(self.state, TenantState::Resetting { .. })
    }

    /// The address space with this number.
    ///
    /// # Errors
    /// Out of bounds or absent.
    pub fn space(&self, id: SpaceId) -> Result<Space, Refusal> {
        self.spaces.get(&id).copied().ok_or_else(|| {
            Refusal::new(
                RefusalKind::BadId,
                format!(
                    "address space {} does not exist (numbers are 0 to {})",
                    id.0,
                    self.space_limit.saturating_sub(1)
                ),
            )
        })
    }

    /// Its channels, with their guest numbers.
    pub fn live_channels(&self) -> impl Iterator<Item = (GuestChannel, &Channel)> {
        self.channels.iter().enumerate().filter_map(|(i, channel)| {
            let id = GuestChannel(u16::try_from(i).ok()?);
            channel.as_ref().map(|channel| (id, channel))
        })
    }

    /// Puts it into fail-safe state, if it is not in it.
    pub fn fail(&mut self, reason: FailSafeReason, took: Duration) {
        if self.fail_safe.is_none() {
            self.fail_safe = Some(FailSafeNow::new(reason, took));
            self.counters.fail_safe = self.counters.fail_safe.saturating_add(1);
        }
    }

    /// The host channels that may run now, in the guest's order.
    pub fn runnable(&self) -> Vec<HostChannel> {
        self.runlist
            .iter()
            .filter_map(|id| self.channels.get(usize::from(id.0)).and_then(Option::as_ref))
            .filter(|channel| matches!(channel.state, ChannelState::New | ChannelState::Used))
            .map(|channel| channel.host)
            .collect()
    }
}

/// A request that is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Class.
    pub kind: RefusalKind,
    /// What, where, what was allowed.
    pub message: String,
    /// The limit that was met, if it was one.
    pub limit: Option<Limit>,
}

impl Refusal {
    /// A refusal of a class, with its text.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), limit: None }
    }

    /// The same, because of a limit.
    pub fn met(limit: Limit, kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { limit: Some(limit), ..Self::new(kind, message) }
    }
}

impl From<GpuError> for Refusal {
    fn from(error: GpuError) -> Self {
        let kind = match &error {
            GpuError::Exhausted { .. } => RefusalKind::Exhausted,
            GpuError::NoClass { .. } => RefusalKind::Class,
            GpuError::Dma(_) | GpuError::Unmappable(_) => RefusalKind::OutsidePartition,
            GpuError::Rm(error) if error.is_shortage() => RefusalKind::Exhausted,
            GpuError::Rm(_)
            | GpuError::NoSuch { .. }
            | GpuError::Invalid(_)
            | GpuError::Timeout { .. }
            | GpuError::Io(_)
            | GpuError::Lost => RefusalKind::Hardware,
        };
        Self::new(kind, error.with_causes())
    }
}
