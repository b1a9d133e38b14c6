//! GH100 (Hopper) as data: what stock nouveau of Linux 6.16 and later touches of it when GSP manages the
//! chip.
//!
//! Sources: open-gpu-kernel-modules (r570 and r580), open-gpu-doc class headers, Linux
//! `drivers/gpu/drm/nouveau`.

pub mod methods;
pub mod regs;

pub use crate::gsp::{fsp, userd};

/// Name as users write it in configuration files.
pub const NAME: &str = "GH100";

/// Value of NV_PMC_BOOT_0: architecture 0x18, implementation 0, revision a1.
pub const BOOT_0: u32 = 0x1800_00a1;

/// PCI device id of an H100 (drivers derive the marketing name from it).
pub const DEVICE_ID: u16 = 0x2330;

/// Channel ids of a runlist, as the doorbell's token can name them.
pub const CHANNELS_PER_RUNLIST: u16 = 2048;
