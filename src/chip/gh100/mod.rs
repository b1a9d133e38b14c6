//! GH100 (Hopper) as data: what stock nouveau of Linux 6.16 and later touches of it when GSP manages the
//! chip.
//!
//! Sources: open-gpu-kernel-modules (r570 and r580), open-gpu-doc class headers, Linux
//! `drivers/gpu/drm/nouveau`.

use crate::StorageKinds;

pub mod methods;
pub mod regs;

pub use crate::gsp::{fsp, userd};

/// Name as users write it in configuration files.
pub const NAME: &str = "GH100";

/// Value of NV_PMC_BOOT_0: architecture 0x18, implementation 0, revision a1.
pub const BOOT_0: u32 = 0x1800_00a1;

/// Storage kinds (`NV_MMU_PTE_KIND`, dev_mmu.h). What only firmware has is none.
pub static KINDS: StorageKinds = StorageKinds::new(
    0x07,
    &[
        (0x00, 0x06, 0x00, true),
        // Generic memory, then stencil and the depths.
        (0x08, 0x09, 0x06, false),
        (0x0a, 0x0a, 0x02, true),
        (0x0b, 0x0b, 0x01, true),
        (0x0c, 0x0e, 0x03, true),
    ],
);

/// PCI device id of an H100 (drivers derive the marketing name from it).
pub const DEVICE_ID: u16 = 0x2330;

/// Channel ids of a runlist, as the doorbell's token can name them.
pub const CHANNELS_PER_RUNLIST: u16 = 2048;
