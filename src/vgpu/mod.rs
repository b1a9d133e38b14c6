//! One guest's GPU: the register face in front, the mediator behind it, the aggregator's link under it.
//!
//! The guest's page tables, instance blocks and runlists are read and checked here, within the guest's own
//! memory; the aggregator checks everything once more before hardware sees it. This side holds nothing of
//! other guests.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bar3;
mod channel_flags;
mod control;
mod copies;
mod events;
mod fermi;
mod function;
mod gsp;
mod guest_ram;
mod host;
mod mediator;
mod memory;
mod quotas;
mod spaces;
mod status;
mod table_cache;
#[cfg(test)]
mod tests;
mod traced_link;

use std::fmt;
use std::io;
use std::sync::Arc;

pub use bar3::Bar3;
pub use fermi::FermiChannels;
pub use function::{FaceConfig, Vgpu, VgpuConfig};
pub use gsp::GspChannels;
pub use mediator::Mediator;
pub use quotas::Quotas;
pub use status::{Counts, FailSafe, FailSafeRecord, State, Status};

use gpuvmk_aggregator::link::{AggregatorLink, Grant, LinkError};
use gpuvmk_pci::config_space::BuildError;
use gpuvmk_pci::mapping::MapError;
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

/// Why a vGPU cannot be made of what was granted.
#[derive(Debug, thiserror::Error)]
pub enum VgpuError {
    /// The window is not the VRAM.
    #[error("The aggregator granted {granted:#x} bytes of VRAM but shows {shown:#x}")]
    Window {
        /// VRAM granted.
        granted: u64,
        /// Bytes of the window's files.
        shown: u64,
    },
    /// The window cannot be mapped.
    #[error("The VRAM that the aggregator granted cannot be mapped")]
    Map(#[from] MapError),
    /// There is no memory for BAR3.
    #[error("No memory for BAR3 can be had")]
    Bar3(#[source] io::Error),
    /// BAR3 is to be memory, and cannot.
    #[error(
        "BAR3 cannot be mapped (bar3 = \"direct\") on a GPU whose VRAM is slow to read: page tables in it are read from copies; \
         allowed is \"trapped\""
    )]
    Bar3Slow,
    /// The register face cannot be built.
    #[error("The vGPU's configuration space cannot be built")]
    Face(#[from] BuildError),
}
