//! One guest's GPU: the register face in front, the mediator behind it, the aggregator's link under it.
//!
//! The guest's page tables, instance blocks and runlists are read and checked here, within the guest's own
//! memory; the aggregator checks everything once more before hardware sees it. This side holds nothing of
//! other guests.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod channel_flags;
mod config;
mod control;
mod copies;
mod error;
mod events;
mod fermi;
mod function;
mod gsp;
mod guest_ram;
mod host;
mod mediator;
mod memory;
mod placement;
mod quotas;
mod space_sink;
mod spaces;
mod status;
mod table_cache;
#[cfg(test)]
mod tests;
mod traced_link;

pub use config::{LinkFactory, MediatorConfig};
pub use error::VgpuError;
pub use fermi::FermiChannels;
pub use function::{FaceConfig, Vgpu, VgpuConfig};
pub use gsp::GspChannels;
pub use mediator::Mediator;
pub use placement::Bar3;
pub use quotas::Quotas;
pub use status::{Counts, FailSafe, FailSafeRecord, State, Status};
