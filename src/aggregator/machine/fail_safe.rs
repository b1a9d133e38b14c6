//! Fail-safe states that the aggregator decides by itself: for a backend that breaks the protocol, and for
//! hardware that does not let go of a VM's work. Such a tenant has no channels and address spaces, and gets
//! none, until it asks for a reset. Other tenants do not notice.
//!
//! A device backend decides most cases by itself, and says so ([`crate::report`]).

use std::time::{Duration, Instant};

use super::state::Machine;
use crate::report::FailSafeReason;
use gpuvmk_chip::addr::TenantId;
use gpuvmk_gpu::GpuError;

/// Requests between two resets that no honest backend sends, before it is taken to be hostile.
const MAX_VIOLATIONS: u32 = 32;

impl Machine {
    /// A tenant sent what no honest backend sends.
    pub fn violation(&mut self, id: TenantId, now: Duration) {
        let start = Instant::now();
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.violations = tenant.violations.saturating_add(1);
        if tenant.violations < MAX_VIOLATIONS || tenant.fail_safe.is_some() {
            return;
        }
        let times = tenant.counters.fail_safe_count.saturating_add(1);
        // A tenant that resets itself after each decides how often.
        if times.is_power_of_two() {
            log::warn!(
                "{}: in fail-safe state after {MAX_VIOLATIONS} requests that break the protocol ({times} times so far)",
                tenant.name
            );
        }
        // Before its address spaces go, what still works on one.
        self.cancel_request(id);
        self.strip(id, now);
        if let Some(tenant) = self.tenants.get_mut(id) {
            tenant.fail(FailSafeReason::ProtocolViolation, start.elapsed());
        }
    }

    /// Notes that hardware failed in a way that leaves a tenant's resources in doubt.
    pub(super) fn quarantine(&mut self, tenant: TenantId, what: &str, error: &GpuError) {
        if let Some(tenant) = self.tenants.get_mut(tenant)
            && !tenant.quarantined
        {
            tenant.quarantined = true;
            tenant.fail(FailSafeReason::HardwareFailed, Duration::ZERO);
            log::error!("{}: {what} failed, its partition is withheld: {error}", tenant.name);
        }
        if matches!(error, GpuError::Lost) {
            self.note_lost();
        }
    }
}
