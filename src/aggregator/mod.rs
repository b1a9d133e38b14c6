//! The one process that owns the physical GPU: tenants, partitions, request checks, interrupt demux.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod bus_space;
pub mod check;
pub mod chip_name;
pub mod claimant;
pub mod control;
mod counts;
pub mod dma_map;
pub mod dma_range;
pub mod doorbells;
pub mod event_record;
pub mod event_ring;
#[cfg(test)]
mod fake_gpu;
#[cfg(any(test, feature = "testing"))]
pub mod interleave;
pub mod limit;
pub mod link;
mod link_socket;
pub mod machine;
mod mailbox;
mod message;
pub mod partition;
pub mod protocol;
pub mod report;
mod scrub_policy;
mod seqpacket;
pub mod service;
mod shared;
pub mod steps;
pub mod tenant;
mod vm_entry;
pub mod wire;

pub use self::link_socket::{LinkTimeouts, connect, connect_in_process};
pub use self::scrub_policy::ScrubPolicy;
pub use self::service::{Config, Service, ServiceHandle, ServiceRemote, Sockets, StartError};
pub use self::vm_entry::{DEFAULT_CHANNELS, EntryLimits, VmEntry};
