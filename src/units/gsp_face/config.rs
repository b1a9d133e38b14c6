//! A GPU with GSP on the PCI bus: identity, regions and configuration space.

use std::sync::Arc;

use gpuvmk_chip::gh100::DEVICE_ID;
use gpuvmk_gsp::ObjectLimits;
use gpuvmk_host::clock::{Clock, MonotonicClock};
use gpuvmk_pci::config_space::{
    BuildError, CONFIG_SIZE, Capability, ConfigSpace, ConfigSpaceBuilder, Identity,
};
use gpuvmk_pci::{RegionInfo, RegionKind, RegionTable};

/// Bytes of BAR0, the registers.
const BAR0_SIZE: u64 = 16 << 20;
/// Bytes of BAR1.
pub(super) const BAR1_SIZE: u64 = 256 << 20;
/// Bytes of BAR3, which NVIDIA calls BAR2.
const BAR3_SIZE: u64 = 32 << 20;
/// Where capabilities lie, as on earlier cards.
const PM_CAPABILITY: u8 = 0x60;
const MSI_CAPABILITY: u8 = 0x68;
const PCIE_CAPABILITY: u8 = 0x78;
/// NVIDIA.
const VENDOR: u16 = 0x10de;
/// 3D controller; no VGA arbitration.
const CLASS: u32 = 0x03_0200;

/// The properties that distinguish one card from another of its chip.
#[derive(Clone)]
pub struct GspFaceConfig {
    /// PCI device id. Drivers tell the chip by its registers.
    pub device_id: u16,
    /// PCI revision.
    pub revision: u8,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// PCI subsystem id.
    pub subsystem: u16,
    /// Time for PTIMER.
    pub clock: Arc<dyn Clock>,
    /// How many objects the driver may have.
    pub objects: ObjectLimits,
}

impl Default for GspFaceConfig {
    fn default() -> Self {
        Self {
            device_id: DEVICE_ID,
            revision: 0xa1,
            subsystem_vendor: VENDOR,
            subsystem: 0x16c1,
            clock: Arc::new(MonotonicClock::default()),
            objects: ObjectLimits::default(),
        }
    }
}

impl std::fmt::Debug for GspFaceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GspFaceConfig").field("device_id", &self.device_id).finish_non_exhaustive()
    }
}

/// The regions of every GH100.
pub(super) fn regions() -> RegionTable {
    let memory = |kind, size| RegionInfo { kind, size };
    [
        memory(RegionKind::Memory32, BAR0_SIZE),
        memory(RegionKind::Memory64Prefetch, BAR1_SIZE),
        RegionInfo::ABSENT,
        memory(RegionKind::Memory64Prefetch, BAR3_SIZE),
        RegionInfo::ABSENT,
        RegionInfo::ABSENT,
        RegionInfo::ABSENT,
        memory(RegionKind::Config, CONFIG_SIZE as u64),
    ]
}

/// The configuration space of a GH100.
pub(super) fn space(config: &GspFaceConfig) -> Result<ConfigSpace, BuildError> {
    let identity = Identity {
        vendor: VENDOR,
        device: config.device_id,
        revision: config.revision,
        class: CLASS,
        subsystem_vendor: config.subsystem_vendor,
        subsystem: config.subsystem,
    };
    let pcie = Capability::PcieEndpoint { link_speed: 5, link_width: 16, function_level_reset: true };
    ConfigSpaceBuilder::new(identity, regions())
        .capability(PM_CAPABILITY, Capability::PowerManagement)
        .capability(MSI_CAPABILITY, Capability::Msi)
        .capability(PCIE_CAPABILITY, pcie)
        .build()
}
