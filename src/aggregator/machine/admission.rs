//! Admission: a backend says what it wants and becomes a tenant, or is told why not.

use std::io;
use std::time::Duration;

use super::Machine;
use super::guests::Admissible;
use crate::claimant::Claimant;
use crate::dma_map::DmaMap;
use crate::doorbells::MAX_CHANNELS;
use crate::limit::Limit;
use crate::protocol::{Hello, PROTOCOL_VERSION, RefusalKind, Welcome};
use crate::tenant::{Counters, Refusal, Tenant, TenantState, ThreadAccount};
use crate::wire::{MAX_NAME, MAX_WINDOW_PIECES};
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_gpu::GpuError;
use gpuvmk_observe::latency::Latency;
use gpuvmk_pci::SharedMemory;
use gpuvmk_pci::dma::{MAX_MAPPINGS, MemoryOwner};
use gpuvmk_scheduler::Suspension;

/// Most tenants at a time.
pub(super) const MAX_TENANTS: usize = 64;

/// How long a process that has left is waited for: the kernel takes so long, at worst, to take a killed one's
/// memory apart.
const PROCESS_PATIENCE: Duration = Duration::from_secs(20);

/// Most doorbells a second that anybody may have.
const MAX_DOORBELLS: u32 = 200_000;

/// Address spaces for each channel: one in use, and one that a guest builds or tears down meanwhile.
const SPACES_PER_CHANNEL: u16 = 2;

/// Address spaces for channels of the host's own.
const HOST_SPACES: u32 = 1;

/// A new tenant.
#[derive(Debug)]
pub struct Admitted {
    /// Its number.
    pub tenant: TenantId,
    /// False while its partition is being zeroed: [`super::Output::Ready`] follows, or a refusal.
    pub ready: bool,
    /// What it got.
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
    /// Somebody is leaving.
    UntilSomebodyIsGone,
    /// The host has cleaned up after it too often of late.
    Until(Duration),
}

/// A partition's part of the memory in percent, at least one.
pub(super) fn partition_percent(size: u64, all: u64) -> u8 {
    let percent = u128::from(size).saturating_mul(100).checked_div(all.into()).unwrap_or(0);
    u8::try_from(percent.clamp(1, 100)).unwrap_or(100)
}

/// What a VM may be called, in words.
pub(super) const NAME_RULE: &str =
    "1 to 64 letters, digits, '-', '_' or '.', and begins with no '-' and no '.'";

/// Whether a VM may be called so. A name goes into file names and commands: none is an option, a hidden file
/// or a folder there.
pub(super) fn is_name(name: &str) -> bool {
    let clean = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let begins = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.len() <= MAX_NAME && name.starts_with(begins) && name.chars().all(clean)
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
        // Without a part of its own, a VM's is that of its memory.
        let by_memory = partition_percent(hello.vram, self.info.tenant_vram_size);
        let Admissible { holder, share, limits } = self.guests.judge(hello, claimant, by_memory)?;
        self.check_places(hello, claimant)?;
        self.check_resources(hello)?;
        let standing = self.standings.of(&holder);
        let share = standing.share(share);
        if let Some(until) = self.cleanups.wait(&holder, now) {
            let seconds = until.saturating_sub(now).as_secs_f64();
            return Err(Refusal::met(
                Limit::Cleanups,
                RefusalKind::Quota,
                format!("it comes and goes too often: {seconds:.1} s until it may come again"),
            ));
        }
        let largest = self.vram.largest();
        let partition = self.vram.take(hello.vram).ok_or_else(|| {
            Refusal::new(
                RefusalKind::Exhausted,
                format!(
                    "{} MiB of VRAM are wanted, {} MiB are left in one piece (of {} MiB in all)",
                    hello.vram >> 20,
                    largest >> 20,
                    self.info.tenant_vram_size >> 20
                ),
            )
        })?;
        let window = match self.window(partition.start(), partition.size()) {
            Ok(window) => window,
            Err(refusal) => {
                self.vram.give_back(partition);
                return Err(refusal);
            }
        };
        let dirty = self.driver.is_vram_dirty(partition.start(), partition.size());
        let ready = !dirty && !self.scrub.at_attach();
        let id = TenantId(self.next_tenant);
        self.next_tenant = self.next_tenant.wrapping_add(1).max(1);
        let spaces = self.space_limit(hello.channels);
        self.granted_channels = self.granted_channels.saturating_add(hello.channels);
        if let Err(rejection) = self.scheduler.add_vm(id, share) {
            self.granted_channels = self.granted_channels.saturating_sub(hello.channels);
            self.vram.give_back(partition);
            return Err(Refusal::new(RefusalKind::Exhausted, rejection.to_string()));
        }
        if let Some(ledger) = &self.ledger {
            ledger.own_vram(partition.start(), partition.size(), Some(id));
        }
        // Page-table memory goes with VRAM: together the quotas never exceed what there is.
        let quota = u128::from(self.info.table_memory)
            .saturating_mul(u128::from(partition.size()))
            .checked_div(u128::from(self.info.tenant_vram_size))
            .unwrap_or(0);
        let account = self.account_of(&hello.name);
        self.tenants.insert(
            id,
            Tenant {
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
                spaces: std::collections::BTreeMap::new(),
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
                counters: Counters::default(),
                delayed: None,
                doorbells: Latency::default(),
                updates: Latency::default(),
            },
        );
        if standing.paused {
            log::info!("{}: an operator has paused it, and it stays so", hello.name);
        }
        self.scheduler.suspend(id, Suspension::PAUSE, standing.paused);
        let waits = self.hangs.restore(id, standing.hangs, now);
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
                engines: self.info.engines,
                va_bits: self.info.va_bits,
                page_shifts: self.info.page_shifts.clone(),
                slow_vram_reads: self.info.slow_vram_reads,
                window: window.iter().map(|piece| (piece.offset, piece.size)).collect(),
            },
            window,
        })
    }

    /// Address spaces for a VM with so many channels: twice as many, and no more than their part of what the
    /// physical GPU has. So all VMs' limits together never exceed it, and nobody's are taken by another.
    fn space_limit(&self, channels: u16) -> u16 {
        let all = u64::from(self.info.spaces.saturating_sub(HOST_SPACES));
        let part = all.saturating_mul(channels.into()).checked_div(self.info.channels.into()).unwrap_or(0);
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
            && let Some(until) = self.cleanups.wait(&holder, now)
        {
            return Wait::Until(until);
        }
        let possible = hello.vram <= self.info.tenant_vram_size && hello.channels <= self.info.channels;
        let in_the_way = match refusal.kind {
            // Not before an operator says so.
            _ if self.draining => false,
            RefusalKind::Exhausted => possible && !self.tenants.is_empty(),
            RefusalKind::Name => {
                let same = |tenant: &Tenant| tenant.name == hello.name || tenant.holder == holder;
                // Not where it may not have the name at all.
                self.guests.judge(hello, claimant, 1).is_ok() && self.tenants.values().any(same)
            }
            _ => false,
        };
        if !in_the_way {
            return Wait::No;
        }
        let leaving = || {
            self.tenants.values().filter_map(|tenant| match tenant.state {
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
        if self.lost {
            return refuse(RefusalKind::Hardware, "the physical GPU is lost".to_owned());
        }
        if self.draining {
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
        if hello.chip != self.info.chip.name() {
            return refuse(
                RefusalKind::Chip,
                format!(
                    "the vGPU is to be a {}, the physical GPU is a {}, which can serve no other: correct `chip` or `gpu` \
                     in the VM's file",
                    hello.chip, self.info.chip
                ),
            );
        }
        if let Err(rejection) = hello.share.check() {
            return refuse(RefusalKind::Protocol, rejection.to_string());
        }
        if hello.vram == 0 {
            return refuse(RefusalKind::Protocol, "a VM needs VRAM".to_owned());
        }
        Ok(())
    }

    /// Whether there are channels and a place, whoever asks.
    fn check_resources(&self, hello: &Hello) -> Result<(), Refusal> {
        let refuse = |kind, message: String| Err(Refusal::new(kind, message));
        let left = self.info.channels.saturating_sub(self.granted_channels);
        if hello.channels == 0 || hello.channels > MAX_CHANNELS.min(left) {
            return refuse(
                RefusalKind::Exhausted,
                format!(
                    "{} channels are wanted, {left} are left (of {} in all, at most {MAX_CHANNELS} a VM)",
                    hello.channels, self.info.channels
                ),
            );
        }
        if self.tenants.len() >= MAX_TENANTS {
            return refuse(RefusalKind::Exhausted, format!("{MAX_TENANTS} VMs are connected already"));
        }
        Ok(())
    }

    fn window(
        &mut self,
        start: gpuvmk_chip::addr::HostVram,
        size: u64,
    ) -> Result<Vec<SharedMemory>, Refusal> {
        let window = self.driver.share_vram(start, size)?;
        let shared = window.iter().fold(0_u64, |sum, piece| sum.saturating_add(piece.size));
        if shared != size {
            let error =
                io::Error::other(format!("{shared:#x} of {size:#x} bytes of the partition were shared"));
            return Err(GpuError::Io(error).into());
        }
        if window.len() > MAX_WINDOW_PIECES {
            return Err(Refusal::new(
                RefusalKind::Exhausted,
                format!(
                    "{} MiB of VRAM are {} pieces; at most {MAX_WINDOW_PIECES} fit in a message",
                    size >> 20,
                    window.len()
                ),
            ));
        }
        Ok(window)
    }
}
