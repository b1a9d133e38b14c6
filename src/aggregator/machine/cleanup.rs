//! When the host zeroes VRAM, how often it does for one VM, and what it noted of VMs that left.

use std::time::Duration;

use super::cleanup_rates::CleanupRates;
use crate::scrub_policy::ScrubPolicy;
use crate::tenant::Holder;
use gpuvmk_control_client::Departures;

/// Figures of cleaning up after tenants.
#[derive(Debug, Default)]
pub(super) struct Cleanup {
    pub policy: ScrubPolicy,
    pub rates: CleanupRates,
    departures: Departures,
}

impl Cleanup {
    /// Figures about VMs that left, for operators.
    pub const fn departures(&self) -> Departures {
        self.departures
    }

    /// A VM that leaves had work not done for so long.
    pub fn note_wanted(&mut self, wanted: Duration) {
        let wanted = u64::try_from(wanted.as_micros()).unwrap_or(u64::MAX);
        self.departures.wanted_us = self.departures.wanted_us.saturating_add(wanted);
    }

    /// Everything of a VM that left is free, `took` after its end.
    pub fn note_departure(&mut self, holder: &Holder, bytes: u64, took: Duration, now: Duration) {
        self.rates.note_departure(holder, bytes, now);
        let departures = &mut self.departures;
        departures.count = departures.count.saturating_add(1);
        departures.last_bytes = bytes;
        departures.last_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        departures.longest_ms = departures.longest_ms.max(departures.last_ms);
    }
}
