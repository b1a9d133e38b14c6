//! What is counted for a tenant.

use crate::limit::Limit;

/// What is counted for a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of refused requests.
    pub refusals: u64,
    /// Pages that pointed outside the tenant's own.
    pub bad_pages: u64,
    /// Number of its pages' mappings that failed: read-only memory, memory that was cut off, or memory that
    /// could not be pinned.
    pub unmappable: u64,
    /// Number of address-space updates.
    pub updates: u64,
    /// Faults and errors of its channels.
    pub faults: u64,
    /// Times that its doorbells had to wait because there were too many.
    pub throttled: u64,
    /// Fail-safe states that the aggregator decided.
    pub fail_safe: u64,
    /// Function resets that were carried out.
    pub resets: u64,
    /// Bytes of its memory that were zeroed.
    pub zeroed: u64,
    /// Pages of its system memory that could not be had.
    pub lost_pages: u64,
    /// Times that a limit was met, by [`Limit`].
    limits: [u64; Limit::ALL.len()],
}

impl Counters {
    /// A limit was met.
    pub fn met(&mut self, limit: Limit) {
        if let Some(count) = self.limits.get_mut(limit as usize) {
            *count = count.saturating_add(1);
        }
    }

    /// How often a limit was met.
    pub fn times_met(&self, limit: Limit) -> u64 {
        self.limits.get(limit as usize).copied().unwrap_or(0)
    }
}
