//! Admission: a backend says what it wants, and becomes a tenant or is refused with a reason.

use std::time::Duration;

use super::guests::{Admissible, NAME_RULE, is_name};
use super::resources::partition_percent;
use super::state::Machine;
use super::tenants::MAX_TENANTS;
use crate::chip_name::ChipName;
use crate::claimant::Claimant;
use crate::dma_map::DmaMap;
use crate::doorbells::MAX_CHANNELS;
use crate::limit::Limit;
use crate::protocol::{Hello, PROTOCOL_VERSION, RefusalKind, Welcome};
use crate::tenant::{LimitCounters, Refusal, Tenant, TenantState, ThreadAccount};
use gpuvmk_chip::addr::TenantId;
use gpuvmk_chip::{Chip, EngineSet};
use gpuvmk_control_client::TenantCounters;
use gpuvmk_observe::latency::Latency;
use gpuvmk_pci::SharedMemory;
use gpuvmk_pci::dma::{MAX_MAPPINGS, MemoryOwner};
use gpuvmk_scheduler::Suspension;

/// How long a process that has left is waited for: the kernel takes so long, at worst, to take a killed one's
/// memory apart.
const PROCESS_PATIENCE: Duration = Duration::from_secs(20);

/// Upper bound of a VM's limit of doorbells a second.
const MAX_DOORBELLS: u32 = 200_000;

/// Address spaces for each channel: one in use, and one that a guest builds or tears down meanwhile.
const SPACES_PER_CHANNEL: u16 = 2;

/// Address spaces for channels of the host's own.
const HOST_SPACES: u32 = 1;

/// A new tenant.
#[derive(Debug)]
pub struct Admitted {
    /// The tenant's number.
    pub tenant: TenantId,
    /// False while its partition is being zeroed: [`super::output::Output::Ready`] follows, or a refusal.
    pub ready: bool,
    /// The grant.
    pub welcome: Welcome,
    /// Doorbells a second.
    pub doorbell_rate: u32,
    /// The files of its VRAM window, in the order of `welcome.window`.
    pub window: Vec<SharedMemory>,
}

/// Whether to wait with a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing would change.
    No,
    /// A process that was killed may still be there for a moment.
    Briefly,
    /// Until a tenant that is leaving has left.
    UntilSomebodyIsGone,
    /// The host has cleaned up after it too often of late.
    Until(Duration),
}

impl Machine {
    /// Admits a backend of this very process.
    ///
    /// # Errors
    /// As [`Machine::admit_from`].
    pub fn admit(&mut self, hello: &Hello, now: Duration) -> Result<Admitted, Refusal> {
        self.admit_from(hello, &Claimant::this_process(), now)
    }

    /// Admits a backend.
    ///
    /// # Errors
    /// The wish is malformed, cannot be met, or is not this claimant's to have; nothing changed then.
    pub fn admit_from(
        &mut self,
        hello: &Hello,
        claimant: &Claimant,
        now: Duration,
    ) -> Result<Admitted, Refusal> {
        self.check_hello(hello)?;
        // Without a configured part, a VM's part is that of its memory.
        let by_memory = partition_percent(hello.vram, self.hardware.info.tenant_vram_size);
        let Admissible { holder, share, limits } = self.guests.judge(hello, claimant, by_memory)?;
        self.tenants.check_place(hello, &holder, claimant)?;
        self.check_resources(hello)?;
        let record = self.holder_records.of(&holder);
        let share = record.share(share);
        if let Some(until) = self.cleanup.rates.wait(&holder, now) {
            let seconds = until.saturating_sub(now).as_secs_f64();
            return Err(Refusal::met(
                Limit::Cleanups,
                RefusalKind::Quota,
                format!("it comes and goes too often: {seconds:.1} s until it may come again"),
            ));
        }
        let largest = self.resources.vram.largest();
        let partition = self.resources.take(hello.vram, hello.channels).ok_or_else(|| {
            Refusal::new(
                RefusalKind::Exhausted,
                format!(
                    "{} MiB of VRAM are wanted, {} MiB are left in one piece (of {} MiB in all)",
                    hello.vram >> 20,
                    largest >> 20,
                    self.hardware.info.tenant_vram_size >> 20
                ),
            )
        })?;
        let window = match self.hardware.share_window(partition.start(), partition.size()) {
            Ok(window) => window,
            Err(refusal) => {
                self.resources.give_back(partition, hello.channels);
                return Err(refusal);
            }
        };
        let dirty = self.hardware.driver.is_vram_dirty(partition.start(), partition.size());
        let ready = !dirty && !self.cleanup.policy.at_attach();
        let id = self.tenants.next_id();
        let spaces = self.space_limit(hello.channels);
        if let Err(rejection) = self.scheduler.add_vm(id, share) {
            self.resources.give_back(partition, hello.channels);
            return Err(Refusal::new(RefusalKind::Exhausted, rejection.to_string()));
        }
        self.hardware.own_vram(partition.start(), partition.size(), Some(id));
        // Page-table memory goes with VRAM: together the quotas never exceed what there is.
        let quota = u128::from(self.hardware.info.table_memory)
            .saturating_mul(u128::from(partition.size()))
            .checked_div(u128::from(self.hardware.info.tenant_vram_size))
            .unwrap_or(0);
        let account = self.tenants.account_of(&hello.name);
        self.tenants.insert(Tenant {
            id,
            name: hello.name.clone(),
            holder,
            uid: claimant.uid,
            pid: claimant.pid,
            partition,
            channel_limit: hello.channels,
            space_limit: spaces,
            table_quota: u64::try_from(quota).unwrap_or(u64::MAX).min(limits.page_tables),
            mapping_quota: limits.mappings,
            doorbell_rate: limits.doorbells.min(MAX_DOORBELLS),
            thread: ThreadAccount::new(limits.thread_time),
            memory: DmaMap::default(),
            owner: MemoryOwner::deferring(MAX_MAPPINGS),
            range_limit: usize::try_from(limits.memory_ranges).unwrap_or(usize::MAX).min(MAX_MAPPINGS),
            account,
            spaces: gpuvmk_ordered::OrderedMap::new(),
            channels: vec![None; usize::from(hello.channels)],
            runlist: Vec::new(),
            unnamed: EngineSet::empty(),
            state: if ready { TenantState::Active } else { TenantState::Preparing { scrub_from: 0 } },
            scrubbing: std::collections::VecDeque::new(),
            left: Duration::ZERO,
            leaving_since: Duration::ZERO,
            job: None,
            stripping: false,
            quarantined: false,
            fail_safe: None,
            violations: 0,
            counters: TenantCounters::default(),
            limits: LimitCounters::default(),
            delayed: None,
            doorbells: Latency::default(),
            updates: Latency::default(),
        });
        if record.paused {
            log::info!("{}: an operator has paused it, and it stays so", hello.name);
        }
        self.scheduler.suspend(id, Suspension::PAUSE, record.paused);
        let waits = self.hangs.restore(id, record.hangs, now);
        self.scheduler.suspend(id, Suspension::PENALTY, waits);
        log::info!(
            "{}: admitted with {} MiB of VRAM, {} channels: process {} of user {}",
            hello.name,
            partition.size() >> 20,
            hello.channels,
            claimant.pid,
            claimant.uid
        );
        Ok(Admitted {
            tenant: id,
            ready,
            doorbell_rate: limits.doorbells.min(MAX_DOORBELLS),
            welcome: Welcome {
                vram: partition.size(),
                channels: hello.channels,
                spaces,
                engines: self.hardware.info.engines,
                va_bits: self.hardware.info.va_bits,
                page_shifts: self.hardware.info.page_shifts.clone(),
                slow_vram_reads: self.hardware.info.slow_vram_reads,
                texture_clusters: self.hardware.info.texture_clusters,
                window: window.iter().map(|piece| (piece.offset, piece.size)).collect(),
            },
            window,
        })
    }

    /// Limit of address spaces for a VM with so many channels: twice as many, and at most its channels' part
    /// of the physical GPU's. So all VMs' limits together never exceed the GPU's number, and no VM takes
    /// another's.
    fn space_limit(&self, channels: u16) -> u16 {
        let all = u64::from(self.hardware.info.spaces.saturating_sub(HOST_SPACES));
        let part =
            all.saturating_mul(channels.into()).checked_div(self.hardware.info.channels.into()).unwrap_or(0);
        let twice = channels.saturating_mul(SPACES_PER_CHANNEL);
        u16::try_from(part).unwrap_or(u16::MAX).min(twice).max(1)
    }

    /// Whether a wish of this very process that was refused may come true by waiting for a tenant to be gone.
    pub fn worth_waiting(&self, hello: &Hello, refusal: &Refusal, now: Duration) -> Wait {
        self.worth_waiting_for(hello, &Claimant::this_process(), refusal, now)
    }

    /// Whether a wish that was refused may come true by waiting for a tenant to be gone.
    pub fn worth_waiting_for(
        &self,
        hello: &Hello,
        claimant: &Claimant,
        refusal: &Refusal,
        now: Duration,
    ) -> Wait {
        let holder = self.guests.holder(&hello.name, claimant);
        if refusal.limit == Some(Limit::Cleanups)
            && let Some(until) = self.cleanup.rates.wait(&holder, now)
        {
            return Wait::Until(until);
        }
        let possible = hello.vram <= self.hardware.info.tenant_vram_size
            && hello.channels <= self.hardware.info.channels;
        let in_the_way = match refusal.kind {
            // Not before an operator says so.
            _ if self.guests.is_draining() => false,
            RefusalKind::Exhausted => possible && !self.tenants.is_empty(),
            RefusalKind::Name => {
                let same = |tenant: &Tenant| tenant.name == hello.name || tenant.holder == holder;
                // Not where it may not have the name at all.
                self.guests.judge(hello, claimant, 1).is_ok() && self.tenants.iter().any(same)
            }
            _ => false,
        };
        if !in_the_way {
            return Wait::No;
        }
        let leaving = || {
            self.tenants.iter().filter_map(|tenant| match tenant.state {
                TenantState::Leaving { peer_alive, .. } => Some((peer_alive, tenant.leaving_since)),
                _ => None,
            })
        };
        if leaving().any(|(peer_alive, _)| !peer_alive) {
            return Wait::UntilSomebodyIsGone;
        }
        // A process may outlive its connection for as long as it likes.
        let ends = leaving().map(|(_, since)| since.saturating_add(PROCESS_PATIENCE)).max();
        ends.filter(|end| now < *end).map_or(Wait::Briefly, Wait::Until)
    }

    fn check_hello(&self, hello: &Hello) -> Result<(), Refusal> {
        let refuse = |kind, message: String| Err(Refusal::new(kind, message));
        if self.hardware.is_lost() {
            return refuse(RefusalKind::Hardware, "the physical GPU is lost".to_owned());
        }
        if self.guests.is_draining() {
            return refuse(
                RefusalKind::Exhausted,
                "an operator admits no more VMs (`gpuvmk drain --undo` ends that)".to_owned(),
            );
        }
        if hello.version != PROTOCOL_VERSION {
            return refuse(
                RefusalKind::Version,
                format!(
                    "the backend speaks version {}, the aggregator {PROTOCOL_VERSION}: start both from the same release",
                    hello.version
                ),
            );
        }
        if !is_name(&hello.name) {
            return refuse(RefusalKind::Name, format!("a VM's name has {NAME_RULE}"));
        }
        self.check_chip(&hello.chip)?;
        if let Err(rejection) = hello.share.check() {
            return refuse(RefusalKind::Protocol, rejection.to_string());
        }
        if hello.vram == 0 {
            return refuse(RefusalKind::Protocol, "a VM needs VRAM".to_owned());
        }
        Ok(())
    }

    /// Checks that the physical GPU has what drivers of the vGPU's chip use.
    fn check_chip(&self, name: &ChipName) -> Result<(), Refusal> {
        let info = &self.hardware.info;
        let lacks = match name {
            ChipName::Known(chip) => match chip.classes.missing(&info.classes) {
                None => return Ok(()),
                Some(class) => format!(", which has no class {:04x} ({})", class.number, class.name),
            },
            ChipName::Other(_) => format!(", and this release knows no {name}"),
        };
        Err(Refusal::new(
            RefusalKind::Chip,
            format!(
                "the vGPU is to be a {name}, the physical GPU is a {}{lacks}; it can serve: {}. Correct `chip` or \
                 `gpu` in the VM's file",
                info.chip,
                Chip::list(info.served(), "", ", ")
            ),
        ))
    }

    /// Checks that channels and a tenant's place are free.
    fn check_resources(&self, hello: &Hello) -> Result<(), Refusal> {
        let refuse = |kind, message: String| Err(Refusal::new(kind, message));
        let left = self.resources.channels_left();
        if hello.channels == 0 || hello.channels > MAX_CHANNELS.min(left) {
            return refuse(
                RefusalKind::Exhausted,
                format!(
                    "{} channels are wanted, {left} are left (of {} in all, at most {MAX_CHANNELS} a VM)",
                    hello.channels, self.hardware.info.channels
                ),
            );
        }
        if self.tenants.len() >= MAX_TENANTS {
            return refuse(RefusalKind::Exhausted, format!("{MAX_TENANTS} VMs are connected already"));
        }
        Ok(())
    }
}
