//! Notifications of finished work that a tenant gets later than hardware gave them.

use std::time::Duration;

use gpuvmk_chip::EngineSet;

/// Notifications of finished work that are delayed: it is hardly this tenant's work.
#[derive(Clone, Copy, Debug)]
pub struct DelayedCompletions {
    /// The engines that finished work.
    pub engines: EngineSet,
    /// When the tenant is notified at the latest, by the aggregator's clock.
    pub due: Duration,
}
