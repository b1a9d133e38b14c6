//! What operators may know: counters and sizes, no contents.

use std::time::Duration;

use gpuvmk_control_client::{
    DecidedBy, DriverCounters, EngineStatus, GpuStatus, LimitStatus, LimitTable, ShareStatus, Status,
    TenantStatus, TypeStatus,
};

use super::hardware::SpacesUsage;
use super::resources::partition_percent;
use super::state::Machine;
use crate::limit::Limit;
use crate::report::Report;
use crate::tenant::{Holder, MOST_UNCLOSED, Tenant, TenantState};
use crate::vm_entry::DEFAULT_CHANNELS;
use gpuvmk_backend::EngineTime;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_chip::{Chip, Engine};
use gpuvmk_host::size::show_size;
use gpuvmk_scheduler::share::Share;

use gpuvmk_fifo_virt::CopiedBytes;
use gpuvmk_scheduler::Account;

/// The smallest size that is listed as a type.
const SMALLEST_TYPE: u64 = 64 << 20;

/// A granted share, for operators to read.
pub(super) fn share_status(share: Share) -> ShareStatus {
    ShareStatus {
        weight: share.weight,
        cap: share.cap,
        fixed: share.fixed,
        period_us: micros(share.period),
        budget_us: micros(share.budget),
    }
}

/// Adds the report of a tenant's backend.
pub fn add_report(status: &mut TenantStatus, report: &Report) {
    let by_backend = report.fail_safe.map(|now| now.status(DecidedBy::Backend));
    status.fail_safe = status.fail_safe.take().or(by_backend);
    let count = &mut status.counters.fail_safe_count;
    *count = count.saturating_add(report.fail_safe_count.into());
    for (limit, usage) in &report.limits {
        // The aggregator's own counters take precedence over a backend's.
        status.limits.entry(limit.name().into()).or_insert_with(|| (*usage).into());
    }
}

/// Adds a tenant's copied bytes, by its backend's report.
pub fn add_copied(status: &mut TenantStatus, copied: &CopiedBytes) {
    status.unread_entries = copied.unread_entries;
    for (engine, bytes) in copied.by_engine() {
        status.copied_bytes = status.copied_bytes.saturating_add(bytes);
        let engine = engine.to_string();
        if let Some(status) = status.engines.iter_mut().find(|status| status.engine == engine) {
            status.copied_bytes = bytes;
            continue;
        }
        // Hardware has not been seen at it.
        status.engines.push(EngineStatus { engine, copied_bytes: bytes, ..EngineStatus::default() });
    }
}

/// The limits of a tenant with so many pages and bytes of tables.
fn limits(tenant: &Tenant, pages: u64, table_bytes: u64, submissions: u64) -> LimitTable {
    let of = |limit: Limit, most: Option<u64>, used: u64| {
        (limit.name().into(), LimitStatus { limit: most, used, hits: tenant.limits.times_met(limit) })
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
        (Limit::Doorbells.name().into(), doorbells),
        of(Limit::ThreadTime, Some(tenant.thread.most_percent.into()), millis),
        of(Limit::Cleanups, None, tenant.limits.zeroed),
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
        let truth = self.hardware.ledger().map(|ledger| ledger.engine_time(tenant)).unwrap_or_default();
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

    /// For how long engines have worked for a tenant.
    pub fn engine_time(&self, tenant: TenantId) -> EngineTime {
        let mut time = EngineTime::default();
        for (engine, account) in self.scheduler.accounts(tenant) {
            let sum = match engine {
                Engine::Graphics => &mut time.graphics,
                Engine::Copy(_) => &mut time.copies,
                _ => continue,
            };
            *sum = sum.saturating_add(u64::try_from(account.used.as_nanos()).unwrap_or(u64::MAX));
        }
        time
    }

    /// The state now. `backend` says how the physical GPU is reached.
    pub fn status(&self, backend: &str) -> Status {
        let all = self.scheduler.used_by_all().as_secs_f64();
        let tenants = self.tenants.iter().map(|tenant| {
            let used = self.scheduler.used(tenant.id);
            let hangs = self.hangs.record(tenant.id);
            let SpacesUsage { pages, table_bytes } = self.hardware.usage(self.spaces_of(tenant.id));
            TenantStatus {
                fail_safe: tenant.fail_safe.map(|now| now.status(DecidedBy::Aggregator)),
                counters: tenant.counters,
                limits: limits(tenant, pages, table_bytes, self.scheduler.submissions(tenant.id)),
                name: tenant.name.clone(),
                // The service that has its connection fills this in.
                pid: None,
                uid: tenant.uid,
                vouched: !matches!(tenant.holder, Holder::User(_)),
                state: match tenant.state {
                    TenantState::Preparing { .. } => "preparing",
                    TenantState::Active => "active",
                    TenantState::Resetting { .. } => "resetting",
                    TenantState::Leaving { held: Some(_), .. } => "withheld",
                    TenantState::Leaving { .. } => "leaving",
                }
                .into(),
                paused: self.is_paused(tenant.id),
                vram: tenant.partition.size(),
                channels: tenant.live_channels().count(),
                channel_limit: tenant.channel_limit,
                gpu_share: if all > 0.0 { used.as_secs_f64() / all } else { 0.0 },
                share: self.scheduler.share(tenant.id).map(share_status),
                engines: self.engine_accounts(tenant.id),
                busy_ms: u64::try_from(used.as_millis()).unwrap_or(u64::MAX),
                wanting_ms: u64::try_from(self.scheduler.wanting(tenant.id).as_millis()).unwrap_or(u64::MAX),
                foreign_accesses: self.hardware.ledger().map(|ledger| ledger.foreign_accesses(tenant.id)),
                submissions: self.scheduler.submissions(tenant.id),
                copied_bytes: 0,
                unread_entries: 0,
                trapped: 0,
                driver: DriverCounters::default(),
                doorbell_ns: tenant.doorbells.summary(),
                hangs: hangs.hangs,
                engine_resets: hangs.resets,
                hang_penalty_ms: u64::try_from(hangs.penalty.as_millis()).unwrap_or(u64::MAX),
                dear_wakeups: 0,
                update_ns: tenant.updates.summary(),
                mapped_pages: pages,
                table_bytes,
                memory: tenant.memory.bytes(),
                // For clients to find out.
                backend_private_memory: None,
            }
        });
        let (_, settings) = self.scheduler.settings();
        Status {
            gpu: GpuStatus {
                chip: self.hardware.info.chip.name().to_owned(),
                backend: backend.to_owned(),
                vram: self.hardware.info.tenant_vram_size,
                vram_free: self.resources.vram.largest(),
                channels: self.hardware.info.channels,
                channels_free: self.resources.channels_left(),
                policy: self.scheduler.policy().into(),
                slice_us: settings.slice.map(micros),
                period_us: settings.period.map(micros),
                card: self.hardware.driver.card_use(),
                launches_not_executed: self.hardware.driver.launches_not_executed(),
                scrub: self.scrub_status(),
                late_ns: self.scheduler.lateness(),
                steps: self.clocks.steps.table(),
                // The service that has the connections fills this in.
                strangers_refused: 0,
                draining: self.guests.is_draining(),
                vms: self
                    .guests
                    .list()
                    .map(|list| list.iter().map(|(name, guest)| guest.status(name)).collect()),
                // The server of the socket fills this in.
                refused_peers: 0,
                refused_hellos: 0,
                types: self.types(),
                lost: self.hardware.is_lost(),
            },
            tenants: tenants.collect(),
        }
    }

    /// Types for all powers of two of VRAM up to its size.
    fn types(&self) -> Vec<TypeStatus> {
        let sizes = (0..u64::BITS).map(|bits| SMALLEST_TYPE.saturating_mul(1 << bits));
        let channels_left = self.resources.channels_left();
        let by_channels = u64::from(channels_left / DEFAULT_CHANNELS);
        sizes
            .take_while(|size| *size <= self.hardware.info.tenant_vram_size)
            .map(|vram| TypeStatus {
                name: format!("{}-{}", self.hardware.info.chip, show_size(vram)),
                vram,
                chips: self.chips_of(vram),
                available_instances: if self.guests.is_draining() {
                    0
                } else {
                    self.resources.vram.count_of(vram).min(by_channels)
                },
                description: format!(
                    "vram {}, channels {DEFAULT_CHANNELS}, {} percent of the GPU where parts go by VRAM",
                    show_size(vram),
                    partition_percent(vram, self.hardware.info.tenant_vram_size)
                ),
            })
            .collect()
    }

    /// The chips that VMs with so much VRAM can be shown.
    fn chips_of(&self, vram: u64) -> Vec<String> {
        let fits = |chip: &Chip| (chip.vram.0..=chip.vram.1).contains(&vram);
        self.hardware.info.served().filter(fits).map(|chip| chip.to_string()).collect()
    }
}
