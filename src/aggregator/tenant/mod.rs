//! One tenant: its partition, memory, address spaces, channels and counters.

mod channel;
mod completions;
mod counters;
mod holder;
mod job;
mod refusal;
mod thread_account;

use std::collections::VecDeque;
use std::time::Duration;

pub use self::channel::{Channel, ChannelState, Space};
pub use self::completions::DelayedCompletions;
pub use self::counters::LimitCounters;
pub use self::holder::Holder;
pub use self::job::{ChannelShape, Job, Update, Withdrawal};
pub use self::refusal::Refusal;
pub use self::thread_account::ThreadAccount;
use crate::dma_map::DmaMap;
use crate::partition::Partition;
use crate::protocol::{RefusalKind, SpaceId};
use crate::report::{FailSafeReason, FailSafeState};
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{GuestChannel, HostChannel, HostVram, TenantId};
use gpuvmk_control_client::TenantCounters;
use gpuvmk_host::reaper::Account;
use gpuvmk_observe::latency::Latency;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::dma::MemoryOwner;

/// Files and mappings of a tenant that are given back and not closed yet, before no more are taken from it.
pub const MOST_UNCLOSED: usize = 1024;

/// Where a tenant is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TenantState {
    /// Its partition is being zeroed before it gets it.
    Preparing {
        /// Bytes zeroed so far.
        scrub_from: u64,
    },
    /// It is served.
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
        /// Bytes from the partition's start that were taken back from all processes.
        renew_from: u64,
        /// A process still has its memory, which is withheld for as long; the time of the next check.
        held: Option<Duration>,
    },
}

/// State of a tenant.
#[derive(Debug)]
pub struct Tenant {
    /// Its number for the scheduler.
    pub id: TenantId,
    /// Name of the VM.
    pub name: String,
    /// Whose settings, penalties and accounts its are.
    pub holder: Holder,
    /// User of its back end.
    pub uid: u32,
    /// Process of its back end.
    pub pid: i32,
    /// Its part of VRAM.
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
    pub spaces: OrderedMap<SpaceId, Space>,
    /// Its channels, by guest number.
    pub channels: Vec<Option<Channel>>,
    /// The channels that it wants to run.
    pub runlist: Vec<GuestChannel>,
    /// Notifications of finished work that are delayed.
    pub delayed: Option<DelayedCompletions>,
    /// Engines on which work ended while the tenant had named no channel there.
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
    /// Hardware failed it: its resources are never reused.
    pub quarantined: bool,
    /// The aggregator does not serve it until it asks for a reset.
    pub fail_safe: Option<FailSafeState>,
    /// Requests since its last reset that no honest backend sends.
    pub violations: u32,
    /// In whose name its files and mappings are closed.
    pub account: Account,
    /// Its counters.
    pub counters: TenantCounters,
    /// Counters of its limits.
    pub limits: LimitCounters,
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
            self.fail_safe = Some(FailSafeState::new(reason, took));
            self.counters.fail_safe_count = self.counters.fail_safe_count.saturating_add(1);
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
