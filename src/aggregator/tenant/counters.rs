//! What is counted of a tenant's limits. All else that is counted of it is declared with the status
//! ([`TenantCounters`](gpuvmk_control_client::TenantCounters)).

use crate::limit::Limit;

/// What is counted of a tenant's limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCounters {
    /// Bytes of its memory that were zeroed.
    pub zeroed: u64,
    /// Times that a limit was met, by [`Limit`].
    met: [u64; Limit::ALL.len()],
}

impl LimitCounters {
    /// A limit was met.
    pub fn met(&mut self, limit: Limit) {
        if let Some(count) = self.met.get_mut(limit as usize) {
            *count = count.saturating_add(1);
        }
    }

    /// How often a limit was met.
    pub fn times_met(&self, limit: Limit) -> u64 {
        self.met.get(limit as usize).copied().unwrap_or(0)
    }
}
