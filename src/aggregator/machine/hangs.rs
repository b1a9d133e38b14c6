//! Channels that make no progress: the watchdog, and the record of VMs' hangs.

use std::time::Duration;

use gpuvmk_chip::addr::TenantId;
use gpuvmk_scheduler::HangLimits;
use gpuvmk_scheduler::hang::Watchdog;
use gpuvmk_scheduler::hang::penalty::{Ledger, Record};

/// Watchdog and ledger.
#[derive(Debug)]
pub(super) struct Hangs {
    pub watchdog: Watchdog,
    pub ledger: Ledger,
}

impl Hangs {
    pub const fn new(config: HangLimits) -> Self {
        Self { watchdog: Watchdog::new(config), ledger: Ledger::new(config) }
    }

    /// The hangs and penalties of a VM.
    pub fn record(&self, vm: TenantId) -> Record {
        self.ledger.record(vm)
    }

    /// How long a channel that goes may take to leave its engine.
    pub const fn preempt_within(&self) -> Duration {
        self.watchdog.limits().preempt
    }

    /// When a VM has waited long enough.
    pub fn next_due(&self) -> Option<Duration> {
        self.ledger.next_due()
    }

    /// Forgets a VM; returns what was known of it.
    pub fn take(&mut self, vm: TenantId) -> Record {
        self.ledger.take(vm)
    }

    /// A VM comes back of which this is known. True if it has to wait still.
    pub fn restore(&mut self, vm: TenantId, record: Record, now: Duration) -> bool {
        self.ledger.restore(vm, record, now)
    }
}
