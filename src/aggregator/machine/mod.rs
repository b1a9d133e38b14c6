//! The aggregator without its sockets: tenants, their requests, doorbells and events, and the one physical
//! GPU.
//!
//! Everything that crosses VMs happens here, on the one thread that owns it. Requests, doorbells and time
//! come in; replies and events leave as [`Output`] values. So the same machine runs under the service and
//! under tests with a fake GPU.
//!
//! Every request names things by the sender's own numbers, looked up in the sender's own tables: there is no
//! number that could name another tenant's.

mod admission;
mod channels;
mod chronicle;
mod cleanups;
mod events;
mod fail_safe;
pub mod guests;
pub mod hang;
mod jobs;
pub mod memory;
mod notices;
mod recovery;
mod schedule;
mod scrub;
pub mod settings;
mod spaces;
mod standing;
pub mod status;
mod thread_time;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub use self::admission::{Admitted, Wait};
use self::hang::Hangs;
use self::recovery::{Departure, Zombie};
use super::bus_space::BusSpace;
use super::partition::VramAllocator;
use super::protocol::{Event, RefusalKind, Reply, Request};
use super::report::FailSafeReason;
use super::tenant::{Refusal, Tenant, TenantState};
use crate::ScrubPolicy;
use crate::steps::{Step, Steps};
use gpuvmk_chip::addr::{GuestChannel, HostChannel, TenantId};
use gpuvmk_gpu::{Budget, GpuDriver, GpuEvent, GpuInfo, OwnershipLedger, SpaceHandle, budget};
use gpuvmk_host::reaper::Account;
use gpuvmk_scheduler::HangLimits;
use gpuvmk_scheduler::Scheduler;
use gpuvmk_units::clock::Clock;

/// Time after which work that can be cut is cut: the rest goes on after everybody else had a turn.
pub const SLICE: Duration = Duration::from_micros(100);

/// The same while others want the thread too: less than a short request takes from end to end, which may have
/// to wait for it.
pub const SLICE_BESIDE_OTHERS: Duration = Duration::from_micros(5);

/// Something that leaves the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Tell a tenant.
    Event(TenantId, Event),
    /// The answer to a request that was not answered at once.
    Reply(TenantId, Reply),
    /// The partition of a tenant that was admitted is zero now: it may have it.
    Ready(TenantId),
    /// A tenant that left is gone altogether; its resources are free again.
    Gone(TenantId),
}

/// How a request was taken.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered.
    Now(Reply),
    /// [`Output::Reply`] follows.
    Later,
}

/// Whom a host channel works for.
#[derive(Clone, Copy, Debug)]
struct Owner {
    tenant: TenantId,
    /// `None` once the guest gave it up and it is only being taken off the hardware.
    guest: Option<GuestChannel>,
}

/// The aggregator's state.
pub struct Machine {
    driver: Box<dyn GpuDriver>,
    ledger: Option<Arc<dyn OwnershipLedger>>,
    info: GpuInfo,
    scheduler: Scheduler,
    hangs: Hangs,
    scrub: ScrubPolicy,
    vram: VramAllocator,
    /// Bus addresses that nobody has.
    buses: BusSpace,
    granted_channels: u16,
    tenants: BTreeMap<TenantId, Tenant>,
    owners: BTreeMap<HostChannel, Owner>,
    departures: Vec<Departure>,
    zombies: Vec<Zombie>,
    /// Address spaces that a channel which hardware did not let go may still use.
    stuck_spaces: Vec<SpaceHandle>,
    committed: Vec<HostChannel>,
    next_tenant: u32,
    /// Who may come.
    guests: guests::Guests,
    /// What stays of those who left.
    standings: standing::Standings,
    /// An operator wants no more tenants.
    draining: bool,
    events: Vec<GpuEvent>,
    outputs: Vec<Output>,
    lost: bool,
    /// When the first of those who wait for their part of the thread may go on.
    held_until: Option<Duration>,
    /// When to look at what somebody else is at: the GPU at pieces of VRAM, the driver at what it has begun.
    look_due: Option<Duration>,
    looks_again: bool,
    /// What time is measured by.
    clock: Arc<dyn Clock>,
    /// How long the thread was at what.
    steps: Steps,
    /// The tenant that was worked for last.
    turn: TenantId,
    /// Pages of VMs' memory that could not be had, as far as it was noticed.
    lost_pages: u64,
    departed: gpuvmk_control_client::Departures,
    cleanups: cleanups::Cleanups,
    chronicle: chronicle::Chronicle,
    /// Of VMs that have left, by name.
    accounts: BTreeMap<String, Account>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("info", &self.info)
            .field("tenants", &self.tenants)
            .finish_non_exhaustive()
    }
}

impl Machine {
    /// A machine without tenants. All tenant VRAM of the driver is zero.
    pub fn new(
        driver: Box<dyn GpuDriver>,
        ledger: Option<Arc<dyn OwnershipLedger>>,
        scheduler: Scheduler,
    ) -> Self {
        let info = driver.info().clone();
        let largest_page = info.page_shifts.iter().copied().max().unwrap_or(0);
        Self {
            vram: VramAllocator::new(info.tenant_vram, info.tenant_vram_size, info.partition_granule),
            buses: BusSpace::new(info.first_iova, info.system_bits, largest_page),
            driver,
            ledger,
            info,
            scheduler,
            hangs: Hangs::new(HangLimits::default()),
            scrub: ScrubPolicy::default(),
            granted_channels: 0,
            tenants: BTreeMap::new(),
            owners: BTreeMap::new(),
            departures: Vec::new(),
            zombies: Vec::new(),
            stuck_spaces: Vec::new(),
            committed: Vec::new(),
            next_tenant: 1,
            guests: guests::Guests::new(None, rustix::process::geteuid().as_raw()),
            standings: standing::Standings::default(),
            draining: false,
            events: Vec::new(),
            outputs: Vec::new(),
            lost: false,
            held_until: None,
            look_due: None,
            looks_again: false,
            clock: budget::monotonic(),
            steps: Steps::default(),
            turn: TenantId(0),
            lost_pages: gpuvmk_pci::mapping::sigbus::lost(),
            departed: gpuvmk_control_client::Departures::default(),
            cleanups: cleanups::Cleanups::default(),
            chronicle: chronicle::Chronicle::default(),
            accounts: BTreeMap::new(),
        }
    }

    /// The same, with partitions zeroed when `policy` says. With [`ScrubPolicy::Attach`] alone, VRAM need not
    /// be zero.
    pub fn with_scrub(self, policy: ScrubPolicy) -> Self {
        Self { scrub: policy, ..self }
    }

    /// The same, with time that work takes measured by another clock.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// What one turn may take for work of `tenant`'s (of several, or of nobody's) that can be cut.
    fn slice(&self, tenant: Option<TenantId>, now: Duration) -> Budget {
        let shortest = SLICE_BESIDE_OTHERS.max(self.info.shortest_turn).min(SLICE);
        let time = if self.others_want(tenant, now) { shortest } else { SLICE };
        Budget::new(&self.clock, time)
    }

    /// Counts a step that took so long.
    pub fn note_step(&mut self, step: Step, took: Duration) {
        self.steps.note(step, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Somebody else is at something: to be asked for again soon.
    fn look_again(&mut self) {
        self.looks_again = true;
    }

    /// The same, for harnesses that make VMs come, go and reset themselves without end: nobody waits for
    /// that.
    #[must_use]
    pub fn with_unlimited_cleanups(mut self) -> Self {
        self.cleanups.unlimited = true;
        self
    }

    /// The same, with channels that make no progress taken off when `config` says.
    pub fn with_hang(self, config: HangLimits) -> Self {
        Self { hangs: Hangs::new(config), ..self }
    }

    /// The physical GPU's event descriptor, for the caller to wait on.
    pub fn event_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.driver.event_fd()
    }

    /// Moves what has to leave into `to`.
    pub fn take_outputs(&mut self, to: &mut Vec<Output>) {
        to.append(&mut self.outputs);
    }

    /// Carries out a request of a tenant. [`Request::Hello`] is not one: see [`Machine::admit`].
    pub fn request(
        &mut self,
        tenant: TenantId,
        request: Request,
        file: Option<OwnedFd>,
        now: Duration,
    ) -> Outcome {
        let result = self.dispatch(tenant, request, file, now);
        match result {
            Ok(outcome) => outcome,
            Err(refusal) => Outcome::Now(self.refuse(tenant, refusal, now)),
        }
    }

    /// Counts a refusal and makes the answer of it.
    pub fn refuse(&mut self, id: TenantId, refusal: Refusal, now: Duration) -> Reply {
        if let Some(tenant) = self.tenants.get_mut(&id) {
            tenant.counters.refusals = tenant.counters.refusals.saturating_add(1);
            if let Some(limit) = refusal.limit {
                tenant.counters.met(limit);
            }
            // Told for the first few and then ever more rarely: a guest decides how often.
            if tenant.counters.refusals.is_power_of_two() {
                log::warn!(
                    "{}: refused ({} so far): {}",
                    tenant.name,
                    tenant.counters.refusals,
                    refusal.message
                );
            }
        }
        if refusal.kind == RefusalKind::Protocol {
            self.violation(id, now);
        }
        Reply::Refused { kind: refusal.kind, message: refusal.message }
    }

    fn dispatch(
        &mut self,
        tenant: TenantId,
        request: Request,
        file: Option<OwnedFd>,
        now: Duration,
    ) -> Result<Outcome, Refusal> {
        if self.lost {
            return Err(Refusal::new(RefusalKind::Hardware, "the physical GPU is lost"));
        }
        let owner = self.tenant(tenant)?;
        if owner.state != TenantState::Active || owner.job.is_some() {
            return Err(Refusal::new(RefusalKind::Protocol, "the last request is being carried out"));
        }
        let harmless =
            matches!(request, Request::Reset { .. } | Request::DmaMap { .. } | Request::DmaUnmap { .. });
        if owner.fail_safe.is_some_and(|now| now.reason == FailSafeReason::MemoryLost) && !harmless {
            let text = "a page of the VM's memory could not be had: its file system is full, or no huge page is left";
            return Err(Refusal::new(RefusalKind::MemoryLost, text));
        }
        if owner.fail_safe.is_some() && !harmless {
            return Err(Refusal::new(RefusalKind::Protocol, "the VM is in fail-safe state until its reset"));
        }
        let carries_file = matches!(request, Request::DmaMap { .. });
        if carries_file != file.is_some() {
            return Err(Refusal::new(
                RefusalKind::Protocol,
                "guest memory comes with its file, and nothing else comes with one",
            ));
        }
        match request {
            Request::Hello(_) => {
                return Err(Refusal::new(RefusalKind::Protocol, "this connection is admitted already"));
            }
            Request::DmaMap { gpa, size, offset, writable } => {
                self.dma_map(tenant, gpa, size, offset, writable, file)?;
            }
            Request::DmaUnmap { gpa, size } => return self.dma_unmap(tenant, gpa, size, now),
            Request::CreateSpace(space) => self.create_space(tenant, space)?,
            Request::DestroySpace(space) => return self.destroy_space(tenant, space, now),
            Request::UpdateSpace { space, unmap, map } => {
                return self.update_space(tenant, space, &unmap, map, now);
            }
            Request::CreateChannel { channel, space, gpfifo, gpfifo_entries_log2, userd, engines } => {
                let shape = channels::Shape { space, gpfifo, gpfifo_entries_log2, userd, engines };
                self.create_channel(tenant, channel, shape)?;
            }
            Request::DestroyChannel(channel) => self.destroy_channel(tenant, channel, now)?,
            Request::CreateObject { channel, class, engine } => {
                self.create_object(tenant, channel, class, engine)?;
            }
            Request::SetEngines { channel, engines } => self.set_engines(tenant, channel, engines)?,
            Request::EnableChannel { channel, enabled } => self.enable_channel(tenant, channel, enabled)?,
            Request::SetRunlist(channels) => self.set_runlist(tenant, &channels)?,
            Request::Preempt(channel) => self.preempt(tenant, channel, now)?,
            Request::MessageEvent { .. } => {
                return Err(Refusal::new(RefusalKind::Protocol, "messages are sent by the service only"));
            }
            Request::Reset { scrub } => {
                self.reset(tenant, scrub, now)?;
                return Ok(Outcome::Later);
            }
        }
        Ok(Outcome::Now(Reply::Done))
    }

    fn tenant(&mut self, id: TenantId) -> Result<&mut Tenant, Refusal> {
        self.tenants
            .get_mut(&id)
            .ok_or_else(|| Refusal::new(RefusalKind::Protocol, "this connection is not admitted"))
    }
}

#[cfg(test)]
mod tests;
