//! The machine: the owners of its state, and how it is made.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::cleanup::Cleanup;
use super::clocks::Clocks;
use super::guests::{GuestList, Guests};
use super::hangs::Hangs;
use super::hardware::Hardware;
use super::holder_records::HolderRecords;
use super::host_channels::HostChannels;
use super::output::{Outbox, Output};
use super::resources::Resources;
use super::retired_spaces::RetiredSpaces;
use super::schedule_recorder::ScheduleRecorder;
use super::tenants::Tenants;
use crate::scrub_policy::ScrubPolicy;
use crate::steps::Step;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_gpu::{Budget, GpuDriver, OwnershipLedger};
use gpuvmk_host::clock::Clock;
use gpuvmk_host::reaper::Account;
use gpuvmk_scheduler::{HangLimits, Scheduler};
use gpuvmk_trace::Tracer;

/// Time after which work that can be cut is cut: the rest continues after all others had a turn.
pub const SLICE: Duration = Duration::from_micros(100);

/// The same while others want the thread too: less than a short request takes from end to end, which may have
/// to wait for it.
pub const SLICE_BESIDE_OTHERS: Duration = Duration::from_micros(5);

/// The aggregator's state. Each part has an owner; the machine only coordinates them.
pub struct Machine {
    pub(super) hardware: Hardware,
    pub(super) tenants: Tenants,
    /// Free resources.
    pub(super) resources: Resources,
    /// The VMs that may come.
    pub(super) guests: Guests,
    /// Records of holders, also of those that left.
    pub(super) holder_records: HolderRecords,
    pub(super) channels: HostChannels,
    pub(super) retired_spaces: RetiredSpaces,
    pub(super) cleanup: Cleanup,
    pub(super) scheduler: Scheduler,
    pub(super) hangs: Hangs,
    pub(super) schedule_recorder: ScheduleRecorder,
    pub(super) clocks: Clocks,
    pub(super) outbox: Outbox,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("info", &self.hardware.info)
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
        let hardware = Hardware::new(driver, ledger);
        Self {
            tenants: Tenants::default(),
            resources: Resources::new(&hardware.info),
            hardware,
            guests: Guests::new(None, rustix::process::geteuid().as_raw()),
            holder_records: HolderRecords::default(),
            channels: HostChannels::default(),
            retired_spaces: RetiredSpaces::default(),
            cleanup: Cleanup::default(),
            scheduler,
            hangs: Hangs::new(HangLimits::default()),
            schedule_recorder: ScheduleRecorder::default(),
            clocks: Clocks::default(),
            outbox: Outbox::default(),
        }
    }

    /// The same, with partitions zeroed when `policy` says. With [`ScrubPolicy::Attach`] alone, VRAM need not
    /// be zero.
    pub fn with_scrub(mut self, policy: ScrubPolicy) -> Self {
        self.cleanup.policy = policy;
        self
    }

    /// The same, with time that work takes measured by another clock.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clocks: Clocks::new(clock), ..self }
    }

    /// The same without limits of the cleanup rate, for tests in which VMs come, go and reset themselves
    /// without end.
    #[must_use]
    pub fn with_unlimited_cleanups(mut self) -> Self {
        self.cleanup.rates.unlimited = true;
        self
    }

    /// The same, with channels that make no progress taken off when `config` says.
    pub fn with_hang(self, config: HangLimits) -> Self {
        Self { hangs: Hangs::new(config), ..self }
    }

    /// The same, with its decisions recorded by `tracer`.
    pub fn with_tracer(self, tracer: Tracer) -> Self {
        Self { schedule_recorder: ScheduleRecorder::new(tracer), ..self }
    }

    /// The same, where only `list` may come, if there is one; `own` is the aggregator's own user.
    #[must_use]
    pub fn with_guests(self, list: Option<GuestList>, own: u32) -> Self {
        Self { guests: Guests::new(list, own), ..self }
    }

    /// The physical GPU's event descriptor, for the caller to wait on.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.hardware.driver.event_fd()
    }

    /// Moves what has to leave into `to`.
    pub fn take_outputs(&mut self, to: &mut Vec<Output>) {
        self.outbox.take(to);
    }

    /// True if the physical GPU is gone, and must be closed.
    pub fn is_to_be_closed(&self) -> bool {
        self.hardware.is_lost() && self.hardware.info.close_when_lost
    }

    /// The time budget of one turn for work of `tenant` that can be cut; `None`: of several tenants, or of
    /// none.
    pub(super) fn slice(&self, tenant: Option<TenantId>, now: Duration) -> Budget {
        let shortest = SLICE_BESIDE_OTHERS.max(self.hardware.info.shortest_turn).min(SLICE);
        let time = if self.tenants.others_want(tenant, now) { shortest } else { SLICE };
        self.clocks.budget(time)
    }

    /// Counts a step that took so long.
    pub fn note_step(&mut self, step: Step, took: Duration) {
        self.clocks.steps.note(step, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// A tenant wants the thread: `None` when it may have it now, else when it may ask again.
    pub fn thread_wait(&mut self, id: TenantId, now: Duration) -> Option<Duration> {
        self.tenants.thread_wait(id, now)
    }

    /// A tenant took this much of the thread's time.
    pub fn charge(&mut self, id: TenantId, time: Duration) {
        self.tenants.charge(id, time);
    }

    /// In whose name a tenant's files and mappings are closed.
    pub fn account(&self, tenant: TenantId) -> Account {
        self.tenants.account(tenant)
    }

    /// The tenants, in the order of the status.
    pub fn tenants_by_age(&self) -> impl Iterator<Item = TenantId> {
        self.tenants.iter().map(|tenant| tenant.id)
    }
}
