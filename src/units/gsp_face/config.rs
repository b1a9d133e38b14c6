//! A GPU with GSP on the PCI bus: identity, regions and configuration space.

use std::sync::Arc;

use super::hal::{EARLIER_CAPABILITIES, Hal, Pci, PciCapabilities};
use gpuvmk_display::{Edid, Mode};
use gpuvmk_gsp::ObjectLimits;
use gpuvmk_gsp::abi::values::PciIdentity;
use gpuvmk_host::clock::{Clock, MonotonicClock};
use gpuvmk_pci::config_space::{
    BuildError, CONFIG_SIZE, Capability, ConfigSpace, ConfigSpaceBuilder, ConfigSpaceState,
    ExtendedCapability, Identity,
};
use gpuvmk_pci::{RegionInfo, RegionKind, RegionTable};

/// NVIDIA's PCI vendor id.
const VENDOR: u16 = 0x10de;
/// 3D controller; no VGA arbitration.
const CLASS: u32 = 0x03_0200;

/// The properties that distinguish one card from another of its chip.
#[derive(Clone)]
pub struct GspFaceConfig {
    /// What the chip does in its own way.
    pub hal: &'static Hal,
    /// PCI device id. Drivers identify the chip by its registers.
    pub device_id: u16,
    /// PCI revision id.
    pub revision: u8,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// PCI subsystem id.
    pub subsystem: u16,
    /// Time for PTIMER.
    pub clock: Arc<dyn Clock>,
    /// How many objects the driver may have.
    pub objects: ObjectLimits,
    /// What drivers call the GPU's UUID. No two GPUs have the same.
    pub uuid: [u8; 16],
    /// Its head, where it has one. Chips whose classes say of none have none.
    pub head: Option<HeadConfig>,
}

/// A head, and the monitor there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadConfig {
    /// The monitor's name.
    pub name: String,
    /// The mode that it prefers; none: none is plugged in.
    pub mode: Option<Mode>,
}

impl HeadConfig {
    /// What describes the monitor (EDID).
    pub(super) fn edid(&self) -> Option<Vec<u8>> {
        self.mode.map(|mode| Edid::new(&self.name, mode).bytes().to_vec())
    }
}

impl GspFaceConfig {
    /// An ordinary card of a chip.
    pub fn of(hal: &'static Hal) -> Self {
        let Pci { device_id, revision, subsystem, .. } = hal.pci;
        Self {
            hal,
            device_id,
            revision,
            subsystem_vendor: VENDOR,
            subsystem,
            clock: Arc::new(MonotonicClock::default()),
            objects: ObjectLimits::default(),
            uuid: [0; 16],
            head: None,
        }
    }
}

impl GspFaceConfig {
    /// Its head, if its chip can have one.
    pub(super) fn head(&self) -> Option<&HeadConfig> {
        self.head.as_ref().filter(|_| self.hal.gsp.classes().heads.is_some())
    }

    /// What firmware tells of it, as the configuration space does.
    pub(super) const fn identity(&self) -> PciIdentity {
        let Pci { bar0_size, bar1_size, bar3_size, .. } = self.hal.pci;
        PciIdentity {
            vendor: VENDOR,
            device: self.device_id,
            subsystem_vendor: self.subsystem_vendor,
            subsystem: self.subsystem,
            revision: self.revision,
            bars: [bar0_size, bar1_size, bar3_size],
        }
    }
}

impl std::fmt::Debug for GspFaceConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GspFaceConfig")
            .field("hal", &self.hal.name)
            .field("device_id", &self.device_id)
            .finish_non_exhaustive()
    }
}

/// The regions of a function.
pub(super) fn regions(pci: &Pci) -> RegionTable {
    let memory = |kind, size| RegionInfo { kind, size };
    [
        memory(RegionKind::Memory32, pci.bar0_size),
        memory(RegionKind::Memory64Prefetch, pci.bar1_size),
        RegionInfo::ABSENT,
        memory(RegionKind::Memory64Prefetch, pci.bar3_size),
        RegionInfo::ABSENT,
        RegionInfo::ABSENT,
        RegionInfo::ABSENT,
        memory(RegionKind::Config, CONFIG_SIZE as u64),
    ]
}

/// The configuration space of a function.
pub(super) fn space(config: &GspFaceConfig) -> Result<ConfigSpace, BuildError> {
    space_with(config, config.hal.pci.capabilities)
}

/// The configuration space of a function in that state, whose driver knows where capabilities lie: all chips
/// once had them where earlier cards have them.
pub(super) fn space_of(config: &GspFaceConfig, state: &ConfigSpaceState) -> Result<ConfigSpace, BuildError> {
    let places = if state.first_capability() == Some(EARLIER_CAPABILITIES.power) {
        EARLIER_CAPABILITIES
    } else {
        config.hal.pci.capabilities
    };
    space_with(config, places)
}

fn space_with(config: &GspFaceConfig, places: PciCapabilities) -> Result<ConfigSpace, BuildError> {
    let identity = Identity {
        vendor: VENDOR,
        device: config.device_id,
        revision: config.revision,
        class: CLASS,
        subsystem_vendor: config.subsystem_vendor,
        subsystem: config.subsystem,
    };
    let pcie = Capability::PcieEndpoint {
        link_speed: config.hal.pci.link_speed,
        link_width: 16,
        function_level_reset: true,
    };
    let mut builder = ConfigSpaceBuilder::new(identity, regions(&config.hal.pci))
        .capability(places.power, Capability::PowerManagement)
        .capability(places.msi, Capability::Msi)
        .capability(places.pcie, pcie);
    if let Some(at) = places.bar1_size {
        builder = builder.extended(at, ExtendedCapability::ResizableBar { bar: 1 });
    }
    if let Some(at) = places.errors {
        builder = builder.extended(at, ExtendedCapability::ErrorReporting);
    }
    builder.build()
}
