//! GF100 (Fermi), the chip of the GPUvm papers, as data: page-table and instance-block formats, register tables,
//! class methods. GK104 and GM107 share most of it.

pub mod idle;
pub mod methods;
pub mod mmu;
pub mod ramin;
pub mod regs;

/// Name as users write it in configuration files.
pub const NAME: &str = "GF100";

/// Value of NV_PMC_BOOT_0: chip id in bits 28:20, revision a3.
pub const BOOT_0: u32 = 0x0c00_00a3;

/// Channels of PFIFO.
pub const CHANNELS: u16 = 128;

/// PBDMA units, the front halves of PFIFO that fetch and parse command streams.
pub const PBDMAS: u8 = 3;

/// Bytes of the graphics context image that FECS reports. A free parameter of our firmware: the header and
/// the saved state fit, and a driver's start-up cost follows it (it reads the golden image word by word).
pub const GRAPHICS_CONTEXT_SIZE: u32 = 0x2000;

/// The register tables of all units.
pub const fn register_tables() -> &'static [&'static [super::registers::RegisterDef]] {
    regs::TABLES
}
