//! How a mediator behaves.

use std::fmt;
use std::sync::Arc;

use super::placement::Bar3;
use super::quotas::Quotas;
use gpuvmk_aggregator::link::{AggregatorLink, Grant, LinkError};
use gpuvmk_shadow_pagetable::Limits;
use gpuvmk_trace::Tracer;

/// Connects to an aggregator again, within a second or two: a guest's reset waits for it.
pub type LinkFactory = Box<dyn Fn() -> Result<(Arc<dyn AggregatorLink>, Grant), LinkError> + Send + Sync>;

/// How a mediator behaves.
pub struct MediatorConfig {
    /// What the guest's page tables may cost here, if not what their format suggests.
    pub limits: Option<Limits>,
    /// What the guest may cost otherwise.
    pub quotas: Quotas,
    /// Bytes of copies of page tables and instance memory, where the physical GPU's VRAM is slow to read. A
    /// walk of tables that do not fit in reads them from the device every time.
    pub table_cache: usize,
    /// How the guest reaches instance memory.
    pub bar3: Bar3,
    /// Zero the partition at a function reset. Nobody else sees it either way; it costs time.
    pub scrub_on_reset: bool,
    /// Who records what happens besides accesses.
    pub tracer: Tracer,
    /// How to reach a new aggregator at a function reset after the old one was gone.
    pub reconnect: Option<LinkFactory>,
}

impl Default for MediatorConfig {
    fn default() -> Self {
        Self {
            limits: None,
            quotas: Quotas::default(),
            table_cache: 32 << 20,
            bar3: Bar3::default(),
            scrub_on_reset: false,
            reconnect: None,
            tracer: Tracer::default(),
        }
    }
}

impl fmt::Debug for MediatorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MediatorConfig")
            .field("limits", &self.limits)
            .field("quotas", &self.quotas)
            .field("table_cache", &self.table_cache)
            .field("bar3", &self.bar3)
            .field("scrub_on_reset", &self.scrub_on_reset)
            .field("reconnect", &self.reconnect.is_some())
            .finish()
    }
}
