//! How a mediator behaves.

use std::fmt;
use std::sync::Arc;

use super::placement::Bar3;
use super::quotas::Quotas;
use gpuvmk_aggregator::link::{AggregatorLink, Grant, LinkError};
use gpuvmk_shadow_pagetable::Limits;
use gpuvmk_trace::Tracer;

/// Connects to an aggregator again. The mediator calls it during a function reset after the old one was lost.
/// It should return within two seconds, since the guest's reset waits for it. The result is a link that was
/// admitted, with its grant; an error leaves the vGPU in fail-safe state until the next reset.
pub type LinkFactory = Box<dyn Fn() -> Result<(Arc<dyn AggregatorLink>, Grant), LinkError> + Send + Sync>;

/// How a mediator behaves. The values hold for the mediator's whole life.
pub struct MediatorConfig {
    /// Most page-table pages that are followed, and what a walk may cost. `None`: what the format suggests.
    pub limits: Option<Limits>,
    /// Rates and counts of everything else that the guest may cause here.
    pub quotas: Quotas,
    /// Bytes of copies of page tables and instance memory, where the physical GPU's VRAM is slow to read. A
    /// walk of tables that do not fit in reads them from the device every time.
    pub table_cache: usize,
    /// How the guest reaches instance memory.
    pub bar3: Bar3,
    /// Zero the partition at a function reset. No other VM sees its content either way; zeroing costs time.
    pub scrub_on_reset: bool,
    /// Where events are recorded that are no accesses: flushes, doorbells, refusals.
    pub tracer: Tracer,
    /// Reaches a new aggregator at a function reset after the old one was lost. `None`: the vGPU then stays
    /// in fail-safe state for good.
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
