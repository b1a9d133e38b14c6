//! GF100 (Fermi), the chip of the GPUvm papers, as data: page-table and instance-block formats, register
//! tables, class methods. GK104 and GM107 share most of it.

use crate::StorageKinds;

pub mod engines;
pub mod methods;
pub mod mmu;
pub mod ramin;
pub mod regs;

/// Name as users write it in configuration files.
pub const NAME: &str = "GF100";

/// Value of NV_PMC_BOOT_0: chip id in bits 28:20, revision a3.
pub const BOOT_0: u32 = 0x0c00_00a3;

/// PCI device id of a GTX 480.
pub const DEVICE_ID: u16 = 0x06c0;

/// Channels of PFIFO.
pub const CHANNELS: u16 = 128;

/// PBDMA units, the front halves of PFIFO that fetch and parse command streams.
pub const PBDMAS: u8 = 3;

/// Bytes of the graphics context image that FECS reports. A free parameter of our firmware: the header and
/// the saved state fit, and a driver's start-up cost follows it (it reads the golden image word by word).
pub const GRAPHICS_CONTEXT_SIZE: u32 = 0x2000;

/// Storage kinds (after nouveau's map of them).
pub static KINDS: StorageKinds = StorageKinds::new(
    0xff,
    &[
        (0x00, 0x01, 0x00, true),
        (0x02, 0x05, 0x01, false),
        (0x07, 0x0a, 0x01, false),
        (0x11, 0x11, 0x11, true),
        (0x17, 0x1a, 0x11, false),
        (0x26, 0x29, 0x26, true),
        (0x3a, 0x3d, 0x26, true),
        (0x3e, 0x41, 0x26, true),
        (0x46, 0x46, 0x46, true),
        (0x51, 0x54, 0x46, false),
        (0x7b, 0x7b, 0x7b, true),
        (0x86, 0x89, 0x7b, false),
        (0x8b, 0x8e, 0x8b, true),
        (0xa3, 0xa6, 0x8b, true),
        (0xa7, 0xaa, 0xa7, true),
        (0xbf, 0xc2, 0xa7, true),
        (0xc3, 0xc3, 0xc3, true),
        (0xcc, 0xcd, 0xfe, false),
        (0xce, 0xd1, 0xc3, false),
        (0xd8, 0xd8, 0xfe, true),
        (0xdb, 0xdb, 0xfe, true),
        (0xdd, 0xdd, 0xfe, true),
        (0xdf, 0xe0, 0xfe, false),
        (0xe2, 0xe6, 0xfe, false),
        (0xe9, 0xe9, 0xfe, true),
        (0xeb, 0xeb, 0xfe, true),
        (0xed, 0xee, 0xfe, false),
        (0xf0, 0xfb, 0xfe, false),
        (0xfd, 0xfe, 0xfd, true),
    ],
);

/// The register tables of all units.
pub const fn register_tables() -> &'static [&'static [super::registers::RegisterDef]] {
    regs::TABLES
}
