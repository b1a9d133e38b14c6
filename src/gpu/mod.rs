//! The physical GPU as the aggregator uses it: address spaces, channels and events, behind one trait.
//!
//! Drivers: `register` (GF100 to GM107 over any `PciFunction`), `rm` (a GPU whose host keeps the NVIDIA
//! driver loaded), and the software GPU's `executor`. `vfio` makes a real card such a `PciFunction`. All
//! addresses here are host addresses that the caller has checked.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod budget;
mod channel_spec;
mod driver;
mod driver_ext;
pub mod engine_test;
mod error;
mod event;
mod info;
pub mod init_script;
mod ledger;
mod mapping;
mod order_threads;
mod own_channel;
pub mod register;
pub mod rm;
pub mod scrub;
mod scrubber;
pub mod space_map;
mod space_update;
pub mod vfio;
mod vram;

pub use self::budget::{Budget, LOOK_AGAIN, Progress};
pub use self::channel_spec::ChannelSpec;
pub use self::driver::GpuDriver;
pub use self::driver_ext::GpuDriverExt;
pub use self::error::GpuError;
pub use self::event::GpuEvent;
pub use self::info::GpuInfo;
pub use self::ledger::OwnershipLedger;
pub use self::mapping::{HostMapping, HostRange, HostTarget, SpaceHandle, SpaceUsage};
pub use self::scrubber::{Scrub, ScrubMode, Scrubber};
pub use self::space_update::{Revocation, SpaceUpdate};
pub use self::vram::{OwnMemory, Renewal, granules_that_end_in};
