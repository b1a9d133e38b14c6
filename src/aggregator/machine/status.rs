//! What operators may know: counters and sizes, no contents.

use std::time::Duration;

use serde::Serialize;

use super::Machine;
use super::admission::partition_percent;
use super::guests::{GuestStatus, Holder};
use super::memory::MOST_UNCLOSED;
use super::scrub::ScrubStatus;
use crate::DEFAULT_CHANNELS;
use crate::limit::{Limit, LimitStatus, LimitTable};
use crate::report::{DecidedBy, FailSafeStatus, Report};
use crate::steps::StepTable;
use crate::tenant::{Tenant, TenantState};
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_host::size::show_size;
use gpuvmk_scheduler::share::ShareStatus;

use gpuvmk_fifo_virt::CopiedBytes;
use gpuvmk_observe::latency::LatencySummary;
use gpuvmk_pci::CardUse;
use gpuvmk_scheduler::Account;

/// The smallest size that is told as a type.
const SMALLEST_TYPE: u64 = 64 << 20;

/// State of the aggregator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The physical GPU.
    pub gpu: GpuStatus,
    /// Tenants, by age.
    pub tenants: Vec<TenantStatus>,
}

/// State of the physical GPU.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GpuStatus {
    /// Chip name.
    pub chip: String,
    /// How the physical GPU is reached (`soft`).
    pub backend: String,
    /// VRAM for tenants, in bytes.
    pub vram: u64,
    /// Largest partition that could be had now, in bytes.
    pub vram_free: u64,
    /// Channels for tenants.
    pub channels: u16,
    /// Channels not granted to anybody.
    pub channels_free: u16,
    /// Scheduling policy.
    pub policy: &'static str,
    /// Length of a turn in microseconds, if it is set.
    pub slice_us: Option<u64>,
    /// Period of credit in microseconds, if it is set.
    pub period_us: Option<u64>,
    /// What it costs the card and the host, if the GPU is a card that the aggregator programs itself.
    pub card: Option<CardUse>,
    /// How VRAM is zeroed.
    pub scrub: ScrubStatus,
    /// How late looks at engines and ends of turns came, in nanoseconds, since the policy was set.
    pub late_ns: LatencySummary,
    /// How long the thread that owns the GPU was at each kind of thing at a time.
    pub steps: StepTable,
    /// What connections that are no VMs did that no honest device backend does: they were refused.
    pub strangers_refused: u64,
    /// An operator admits no more VMs.
    pub draining: bool,
    /// VMs that may come, if the GPU's file says.
    pub vms: Option<Vec<GuestStatus>>,
    /// Processes that were turned away at the aggregator's sockets, because `allow_users` does not name their user.
    pub refused_peers: u64,
    /// Hellos that were refused.
    pub refused_hellos: u64,
    /// Sizes of VMs, and how many of each could be had now.
    pub types: Vec<TypeStatus>,
    /// True when the device is gone.
    pub lost: bool,
}

/// A size of VMs, in the words of mediated devices. Any other size can be had as well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TypeStatus {
    /// Chip and VRAM: `GF100-256M`.
    pub name: String,
    /// VRAM in bytes.
    pub vram: u64,
    /// How many could be connected now, if nothing else is.
    pub available_instances: u64,
    /// In words.
    pub description: String,
}

/// State of one tenant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TenantStatus {
    /// Its number, for whoever adds what its backend reports.
    #[serde(skip)]
    pub id: TenantId,
    /// Name of the VM.
    pub name: String,
    /// Process of its device backend, while it is connected.
    pub pid: Option<i32>,
    /// User of its device backend.
    pub uid: u32,
    /// Whether the name is more than the back end's word: the GPU's file, or the aggregator's own user, says whose it is.
    pub vouched: bool,
    /// `preparing`, `active`, `resetting` or `leaving`.
    pub state: &'static str,
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
    /// Channels granted.
    pub channel_limit: u16,
    /// Share of the engine time that present tenants used, 0 to 1.
    pub gpu_share: f64,
    /// Engine time used, in milliseconds, by sampling.
    pub busy_ms: u64,
    /// Time in which it had work that was not done, in milliseconds: what it used, and what it waited for others.
    pub wanting_ms: u64,
    /// What it was granted.
    pub share: Option<ShareStatus>,
    /// What it got and waited for, by engine.
    pub engines: Vec<EngineStatus>,
    /// Engine accesses that left the tenant's own memory, where hardware can tell (must be 0).
    pub foreign_accesses: Option<u64>,
    /// Doorbells.
    pub submissions: u64,
    /// Bytes that its copies wrote, on all engines, by what its backend says.
    pub copied_bytes: u64,
    /// Ring entries whose commands the backend did not look through for copies, by what it says.
    pub unread_entries: u64,
    /// Accesses of the guest to its function that the backend answered, by what it says.
    pub trapped: u64,
    /// How long they took from the device backend to the physical GPU, in nanoseconds.
    pub doorbell_ns: LatencySummary,
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
    /// Requests refused.
    pub refusals: u64,
    /// Pages that pointed outside the tenant's own.
    pub bad_pages: u64,
    /// Times that memory of the tenant's own could not be mapped: for reading only, cut off, or not to be pinned.
    pub unmappable: u64,
    /// Pages of its memory that could not be had, or that nobody had filled, when an engine met them.
    pub lost_pages: u64,
    /// Address-space updates.
    pub updates: u64,
    /// How long one took the driver of the physical GPU, in nanoseconds.
    pub update_ns: LatencySummary,
    /// Pages mapped now.
    pub mapped_pages: u64,
    /// Page-table memory used, in bytes.
    pub table_bytes: u64,
    /// Guest memory that the GPU can reach, in bytes.
    pub memory: u64,
}

/// A VM's account on one engine. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineStatus {
    /// `graphics`, `copy0` ...
    pub engine: String,
    /// Time in which the engine ran it, by sampling.
    pub used_us: u64,
    /// Time in which it had work that could go on, and had to wait for its turn.
    pub waiting_us: u64,
    /// Time in which it had work that could go on.
    pub wanting_us: u64,
    /// Doorbells.
    pub submissions: u64,
    /// Bytes that its copies wrote, by what its backend says.
    pub copied_bytes: u64,
    /// Times that the engine was given to it alone.
    pub switches: u64,
    /// Ring entries that hardware had not fetched when it was last looked.
    pub queue_depth: u64,
    /// How long doorbells waited for their turn, in nanoseconds.
    pub wait_ns: LatencySummary,
    /// Time in which the engine ran it in truth, where hardware can tell (the software GPU's ledger).
    pub true_us: Option<u64>,
}

impl TenantStatus {
    /// Adds what the tenant's backend says of itself.
    pub fn add_report(&mut self, report: &Report) {
        let by_backend = report.fail_safe.map(|now| FailSafeStatus::new(now, DecidedBy::Backend));
        self.fail_safe = self.fail_safe.or(by_backend);
        self.fail_safe_count = self.fail_safe_count.saturating_add(report.fail_safe_count.into());
        for (limit, usage) in &report.limits {
            // What the aggregator counts itself is not for a backend to say.
            self.limits.entry(limit.name()).or_insert_with(|| (*usage).into());
        }
    }

    /// Adds what the tenant's backend says of its copies.
    pub fn add_copied(&mut self, copied: &CopiedBytes) {
        self.unread_entries = copied.unread_entries;
        for (engine, bytes) in copied.by_engine().filter(|(_, bytes)| *bytes > 0) {
            self.copied_bytes = self.copied_bytes.saturating_add(bytes);
            let engine = engine.to_string();
            if let Some(status) = self.engines.iter_mut().find(|status| status.engine == engine) {
                status.copied_bytes = bytes;
                continue;
            }
            // Hardware has not been seen at it.
            self.engines.push(EngineStatus { engine, copied_bytes: bytes, ..EngineStatus::default() });
        }
    }
}

/// What the aggregator limits of a tenant that has so many pages and bytes of tables.
fn limits(tenant: &Tenant, pages: u64, table_bytes: u64, submissions: u64) -> LimitTable {
    let of = |limit: Limit, most: Option<u64>, used: u64| {
        (limit.name(), LimitStatus { limit: most, used, hits: tenant.counters.times_met(limit) })
    };
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let millis = u64::try_from(tenant.thread.used.as_millis()).unwrap_or(u64::MAX);
    let rate = Some(tenant.doorbell_rate.into());
    let doorbells = LimitStatus { limit: rate, used: submissions, hits: tenant.counters.throttled };
    let channels = count(tenant.live_channels().count());
    [
        of(Limit::PageTables, Some(tenant.table_quota), table_bytes),
        of(Limit::Mappings, Some(tenant.mapping_quota).filter(|most| *most != u64::MAX), pages),
        of(Limit::Channels, Some(tenant.channel_limit.into()), channels),
        of(Limit::Spaces, Some(tenant.space_limit.into()), count(tenant.spaces.len())),
        (Limit::Doorbells.name(), doorbells),
        of(Limit::ThreadTime, Some(tenant.thread.most_percent.into()), millis),
        of(Limit::Cleanups, None, tenant.counters.zeroed),
        of(Limit::MemoryRanges, Some(count(tenant.range_limit)), count(tenant.memory.len())),
        of(Limit::Unclosed, Some(count(MOST_UNCLOSED)), count(tenant.account.backlog())),
    ]
    .into()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Machine {
    fn engine_accounts(&self, tenant: TenantId) -> Vec<EngineStatus> {
        let truth = self.ledger.as_ref().map(|ledger| ledger.engine_time(tenant)).unwrap_or_default();
        let status = |(engine, account): (Engine, &Account)| EngineStatus {
            engine: engine.to_string(),
            used_us: micros(account.used),
            waiting_us: micros(account.waiting),
            wanting_us: micros(account.wanting),
            submissions: account.submissions,
            // Its backend's to say, like the tenant's.
            copied_bytes: 0,
            switches: account.switches,
            queue_depth: account.depth,
            wait_ns: account.wait_summary(),
            true_us: truth.iter().find(|(other, _)| *other == engine).map(|(_, time)| micros(*time)),
        };
        self.scheduler.accounts(tenant).map(status).collect()
    }

    /// The state now. `backend` says how the physical GPU is reached.
    pub fn status(&self, backend: &str) -> Status {
        let all = self.scheduler.used_by_all().as_secs_f64();
        let tenants = self.tenants.values().map(|tenant| {
            let used = self.scheduler.used(tenant.id);
            let hangs = self.hangs.record(tenant.id);
            let (pages, table_bytes) = self
                .spaces_of(tenant.id)
                .into_iter()
                .filter_map(|space| self.driver.space_usage(space).ok())
                .fold((0_u64, 0_u64), |(pages, bytes), usage| {
                    (pages.saturating_add(usage.pages), bytes.saturating_add(usage.table_bytes))
                });
            TenantStatus {
                id: tenant.id,
                fail_safe: tenant.fail_safe.map(|now| FailSafeStatus::new(now, DecidedBy::Aggregator)),
                fail_safe_count: tenant.counters.fail_safe,
                limits: limits(tenant, pages, table_bytes, self.scheduler.submissions(tenant.id)),
                name: tenant.name.clone(),
                // Known to whoever serves its connection.
                pid: None,
                uid: tenant.uid,
                vouched: !matches!(tenant.holder, Holder::User(_)),
                state: match tenant.state {
                    TenantState::Preparing { .. } => "preparing",
                    TenantState::Active => "active",
                    TenantState::Resetting { .. } => "resetting",
                    TenantState::Leaving { held: Some(_), .. } => "withheld",
                    TenantState::Leaving { .. } => "leaving",
                },
                paused: self.is_paused(tenant.id),
                vram: tenant.partition.size(),
                channels: tenant.live_channels().count(),
                channel_limit: tenant.channel_limit,
                gpu_share: if all > 0.0 { used.as_secs_f64() / all } else { 0.0 },
                share: self.scheduler.share(tenant.id).map(Into::into),
                engines: self.engine_accounts(tenant.id),
                busy_ms: u64::try_from(used.as_millis()).unwrap_or(u64::MAX),
                wanting_ms: u64::try_from(self.scheduler.wanting(tenant.id).as_millis()).unwrap_or(u64::MAX),
                foreign_accesses: self.ledger.as_ref().map(|ledger| ledger.foreign_accesses(tenant.id)),
                submissions: self.scheduler.submissions(tenant.id),
                copied_bytes: 0,
                unread_entries: 0,
                trapped: 0,
                doorbell_ns: tenant.doorbells.summary(),
                faults: tenant.counters.faults,
                hangs: hangs.hangs,
                engine_resets: hangs.resets,
                hang_penalty_ms: u64::try_from(hangs.penalty.as_millis()).unwrap_or(u64::MAX),
                throttled: tenant.counters.throttled,
                dear_wakeups: 0,
                resets: tenant.counters.resets,
                refusals: tenant.counters.refusals,
                bad_pages: tenant.counters.bad_pages,
                unmappable: tenant.counters.unmappable,
                lost_pages: tenant.counters.lost_pages,
                updates: tenant.counters.updates,
                update_ns: tenant.updates.summary(),
                mapped_pages: pages,
                table_bytes,
                memory: tenant.memory.bytes(),
            }
        });
        let (_, settings) = self.scheduler.settings();
        Status {
            gpu: GpuStatus {
                chip: self.info.chip.clone(),
                backend: backend.to_owned(),
                vram: self.info.tenant_vram_size,
                vram_free: self.vram.largest(),
                channels: self.info.channels,
                channels_free: self.info.channels.saturating_sub(self.granted_channels),
                policy: self.scheduler.policy(),
                slice_us: settings.slice.map(micros),
                period_us: settings.period.map(micros),
                card: self.driver.card_use(),
                scrub: self.scrub_status(),
                late_ns: self.scheduler.lateness(),
                steps: self.steps.table(),
                // Known to whoever serves connections.
                strangers_refused: 0,
                draining: self.draining,
                vms: self
                    .guests
                    .list()
                    .map(|list| list.iter().map(|(name, guest)| GuestStatus::new(name, guest)).collect()),
                // Known to whoever has the socket.
                refused_peers: 0,
                refused_hellos: 0,
                types: self.types(),
                lost: self.lost,
            },
            tenants: tenants.collect(),
        }
    }

    /// Powers of two of VRAM, as far as there is any.
    fn types(&self) -> Vec<TypeStatus> {
        let sizes = (0..u64::BITS).map(|bits| SMALLEST_TYPE.saturating_mul(1 << bits));
        let channels_left = self.info.channels.saturating_sub(self.granted_channels);
        let by_channels = u64::from(channels_left / DEFAULT_CHANNELS);
        sizes
            .take_while(|size| *size <= self.info.tenant_vram_size)
            .map(|vram| TypeStatus {
                name: format!("{}-{}", self.info.chip, show_size(vram)),
                vram,
                available_instances: if self.draining {
                    0
                } else {
                    self.vram.count_of(vram).min(by_channels)
                },
                description: format!(
                    "vram {}, channels {DEFAULT_CHANNELS}, {} percent of the GPU where parts go by VRAM",
                    show_size(vram),
                    partition_percent(vram, self.info.tenant_vram_size)
                ),
            })
            .collect()
    }
}
