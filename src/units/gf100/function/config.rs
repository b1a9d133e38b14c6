//! A GF100 on the PCI bus: identity, regions and configuration space.

use std::sync::Arc;

use gpuvmk_chip::gf100::regs::windows::NV_PRAMIN;
use gpuvmk_host::clock::{Clock, MonotonicClock};
use gpuvmk_pci::config_space::{
    BuildError, CONFIG_SIZE, Capability, ConfigSpace, ConfigSpaceBuilder, Identity,
};
use gpuvmk_pci::{RegionInfo, RegionKind, RegionTable};

/// Bytes of BAR0, the registers.
const BAR0_SIZE: u64 = 16 << 20;
/// The moving VRAM window in BAR0.
pub(super) const PRAMIN: std::ops::Range<u64> = NV_PRAMIN.range();
/// Bytes of BAR1.
pub(super) const BAR1_SIZE: u64 = 128 << 20;
/// Bytes of BAR3.
const BAR3_SIZE: u64 = 64 << 20;
/// Bytes of BAR5, an I/O window that is not modelled.
const BAR5_SIZE: u64 = 128;
/// Where capabilities lie, as on real cards.
const PM_CAPABILITY: u8 = 0x60;
const MSI_CAPABILITY: u8 = 0x68;
const PCIE_CAPABILITY: u8 = 0x78;
/// NVIDIA's PCI vendor id.
pub(super) const VENDOR: u16 = 0x10de;
/// 3D controller; no VGA arbitration.
pub(super) const CLASS: u32 = 0x03_0200;

/// The properties that distinguish one GF100 from another.
#[derive(Clone)]
pub struct Gf100Config {
    /// PCI device id. Drivers identify the chip by its registers.
    pub device_id: u16,
    /// PCI revision id.
    pub revision: u8,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// PCI subsystem id.
    pub subsystem: u16,
    /// VBIOS image; `None` builds one.
    pub vbios: Option<Vec<u8>>,
    /// Time for PTIMER.
    pub clock: Arc<dyn Clock>,
}

impl Default for Gf100Config {
    fn default() -> Self {
        Self {
            device_id: gpuvmk_chip::gf100::DEVICE_ID,
            revision: 0xa3,
            subsystem_vendor: VENDOR,
            subsystem: 0x0001,
            vbios: None,
            clock: Arc::new(MonotonicClock::default()),
        }
    }
}

impl std::fmt::Debug for Gf100Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gf100Config").field("device_id", &self.device_id).finish_non_exhaustive()
    }
}

/// The regions of every GF100.
pub(super) fn regions() -> RegionTable {
    let memory = |kind, size| RegionInfo { kind, size };
    [
        memory(RegionKind::Memory32, BAR0_SIZE),
        memory(RegionKind::Memory64Prefetch, BAR1_SIZE),
        RegionInfo::ABSENT,
        memory(RegionKind::Memory64Prefetch, BAR3_SIZE),
        RegionInfo::ABSENT,
        memory(RegionKind::Io, BAR5_SIZE),
        RegionInfo::ABSENT,
        memory(RegionKind::Config, CONFIG_SIZE as u64),
    ]
}

/// The configuration space of a GF100.
pub(super) fn space(config: &Gf100Config) -> Result<ConfigSpace, BuildError> {
    let identity = Identity {
        vendor: VENDOR,
        device: config.device_id,
        revision: config.revision,
        class: CLASS,
        subsystem_vendor: config.subsystem_vendor,
        subsystem: config.subsystem,
    };
    let pcie = Capability::PcieEndpoint { link_speed: 2, link_width: 16, function_level_reset: true };
    ConfigSpaceBuilder::new(identity, regions())
        .capability(PM_CAPABILITY, Capability::PowerManagement)
        .capability(MSI_CAPABILITY, Capability::Msi)
        .capability(PCIE_CAPABILITY, pcie)
        .build()
}
