//! Puts a configuration space together: identity, BARs from a region table, capability chain.

use super::draft::{Draft, put};
use super::error::BuildError;
use super::extended::{self, ExtendedCapability};
use super::layout::{self, command, msi, msix, pcie, pm, status, vendor};
use super::{CONVENTIONAL_SIZE, CapabilityOffsets, ConfigSpace};
use crate::{RegionInfo, RegionKind, RegionTable};

/// The ids that a driver recognises the function by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Revision number.
    pub revision: u8,
    /// Class, subclass and programming interface, as in `0x030200`.
    pub class: u32,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// PCI subsystem id.
    pub subsystem: u16,
}

/// A capability of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Power management: D0 and D3hot, no PME.
    PowerManagement,
    /// Message-signalled interrupts: one vector, 64-bit address.
    Msi,
    /// Message-signalled interrupts by a table in a BAR (MSI-X). The table and its pending bits are the
    /// function's own.
    MsiX {
        /// Number of vectors, 1 to 2048.
        vectors: u16,
        /// Number of the BAR that both lie in.
        bar: u8,
        /// Where in it the table begins: a multiple of 8.
        table: u32,
        /// Where the pending bits begin: a multiple of 8.
        pending: u32,
    },
    /// PCI Express endpoint, version 2.
    PcieEndpoint {
        /// Link generation (1 = 2.5 GT/s, 2 = 5 GT/s, ...), both the limit and the present speed.
        link_speed: u8,
        /// Number of lanes.
        link_width: u8,
        /// The function can be reset by itself (FLR).
        function_level_reset: bool,
    },
    /// Content is the vendor's own. A function may have several.
    Vendor {
        /// The bytes after the link to the next capability; by custom the first is the capability's length.
        content: &'static [u8],
        /// Bits of `content` that a write stores; bytes that it does not have are read-only.
        writable: &'static [u8],
    },
}

impl Capability {
    const fn id(self) -> u8 {
        match self {
            Self::PowerManagement => pm::ID,
            Self::Msi => msi::ID,
            Self::MsiX { .. } => msix::ID,
            Self::PcieEndpoint { .. } => pcie::ID,
            Self::Vendor { .. } => vendor::ID,
        }
    }

    const fn size(self) -> usize {
        match self {
            Self::PowerManagement => pm::SIZE,
            Self::Msi => msi::SIZE,
            Self::MsiX { .. } => msix::SIZE,
            Self::PcieEndpoint { .. } => pcie::SIZE,
            Self::Vendor { content, .. } => vendor::CONTENT + content.len(),
        }
    }
}

/// Builds a [`ConfigSpace`].
#[derive(Clone, Debug)]
pub struct ConfigSpaceBuilder {
    identity: Identity,
    regions: RegionTable,
    capabilities: Vec<(u8, Capability)>,
    extended: Vec<(u16, ExtendedCapability)>,
}

impl ConfigSpaceBuilder {
    /// A function of that identity with those BARs, and the INTx pin A.
    pub fn new(identity: Identity, regions: RegionTable) -> Self {
        Self { identity, regions, capabilities: Vec::new(), extended: Vec::new() }
    }

    /// Adds a capability at offset `at`; the chain has the order of these calls.
    #[must_use]
    pub fn capability(mut self, at: u8, capability: Capability) -> Self {
        self.capabilities.push((at, capability));
        self
    }

    /// Adds an extended capability at offset `at`, behind those before it.
    #[must_use]
    pub fn extended(mut self, at: u16, capability: ExtendedCapability) -> Self {
        self.extended.push((at, capability));
        self
    }

    /// The finished space, in its reset state.
    ///
    /// # Errors
    /// A BAR or capability that cannot be expressed.
    pub fn build(self) -> Result<ConfigSpace, BuildError> {
        let mut draft = Draft::default();
        draft.header(&self.identity);
        let mut bar_kinds = [RegionKind::Absent; 6];
        let mut upper_half = false;
        for (bar, info) in self.regions.iter().take(6).enumerate() {
            if upper_half && info.kind != RegionKind::Absent {
                return Err(BuildError::BarKind { bar, kind: info.kind });
            }
            upper_half = draft.bar(bar, *info)?;
            if let Some(kind) = bar_kinds.get_mut(bar) {
                *kind = info.kind;
            }
        }
        if let Some(rom) = self.regions.get(6) {
            draft.rom(*rom)?;
        }
        let capabilities = draft.capabilities(&self.capabilities)?;
        let size = extended::lay_out(&mut draft, &self.extended, &self.regions)?;
        for bytes in [&mut draft.value, &mut draft.writable, &mut draft.clear] {
            bytes.truncate(size);
        }
        Ok(ConfigSpace {
            reset_value: draft.value.clone(),
            value: draft.value,
            writable: draft.writable,
            write_1_to_clear: draft.clear,
            capabilities,
            bar_kinds,
            reset_capable: draft.reset_capable,
        })
    }
}

impl Draft {
    fn header(&mut self, identity: &Identity) {
        self.value16(layout::VENDOR_ID, identity.vendor);
        self.value16(layout::DEVICE_ID, identity.device);
        put(&mut self.value, layout::REVISION_ID, &[identity.revision]);
        let [interface, subclass, class, _] = identity.class.to_le_bytes();
        put(&mut self.value, layout::CLASS_CODE, &[interface, subclass, class]);
        self.value16(layout::SUBSYSTEM_VENDOR_ID, identity.subsystem_vendor);
        self.value16(layout::SUBSYSTEM_ID, identity.subsystem);
        let command = command::MEMORY
            | command::BUS_MASTER
            | command::PARITY
            | command::SERR
            | command::INTX_DISABLE
            | command::IO;
        self.writable16(command::OFFSET, command);
        put(&mut self.clear, status::OFFSET, &status::ERRORS.to_le_bytes());
        put(&mut self.writable, layout::CACHE_LINE_SIZE, &[0xff]);
        put(&mut self.writable, layout::INTERRUPT_LINE, &[0xff]);
        put(&mut self.value, layout::INTERRUPT_PIN, &[1]);
    }

    /// Lays one BAR out; true when it takes the next register too.
    fn bar(&mut self, bar: usize, info: RegionInfo) -> Result<bool, BuildError> {
        let refuse = |why| BuildError::BarSize { bar, size: info.size, why };
        let at = layout::BAR0 + 4 * bar;
        if info.kind != RegionKind::Absent && !info.size.is_power_of_two() {
            return Err(refuse("a power of two is needed"));
        }
        let mask = address_mask(info.size);
        let (low, high) = split(mask);
        match info.kind {
            RegionKind::Absent => Ok(false),
            RegionKind::Memory32 if info.size < 16 || info.size > 1 << 31 => {
                Err(refuse("a 32-bit memory BAR has 16 bytes to 2 GiB"))
            }
            RegionKind::Memory32 => {
                self.writable32(at, low);
                Ok(false)
            }
            RegionKind::Io if info.size < 4 || info.size > 256 => {
                Err(refuse("an I/O BAR has 4 to 256 bytes"))
            }
            RegionKind::Io => {
                self.writable32(at, low);
                self.value32(at, layout::BAR_IO);
                Ok(false)
            }
            RegionKind::Memory64Prefetch if bar == 5 => Err(BuildError::BarKind { bar, kind: info.kind }),
            RegionKind::Memory64Prefetch if info.size < 16 => {
                Err(refuse("a memory BAR has 16 bytes at least"))
            }
            RegionKind::Memory64Prefetch => {
                self.value32(at, layout::BAR_MEMORY_64_PREFETCH);
                self.writable32(at, low);
                self.writable32(at + 4, high);
                Ok(true)
            }
            RegionKind::Rom | RegionKind::Config => Err(BuildError::BarKind { bar, kind: info.kind }),
        }
    }

    fn rom(&mut self, info: RegionInfo) -> Result<(), BuildError> {
        match info.kind {
            RegionKind::Absent => Ok(()),
            RegionKind::Rom => {
                if !info.size.is_power_of_two() || info.size < 2048 || info.size > 1 << 24 {
                    let why = "a ROM BAR has a power of two from 2 KiB to 16 MiB";
                    return Err(BuildError::BarSize { bar: 6, size: info.size, why });
                }
                let (low, _) = split(address_mask(info.size));
                self.writable32(layout::ROM_BAR, low & layout::ROM_ADDRESS | layout::ROM_ENABLE);
                Ok(())
            }
            kind => Err(BuildError::BarKind { bar: 6, kind }),
        }
    }

    fn capabilities(&mut self, list: &[(u8, Capability)]) -> Result<CapabilityOffsets, BuildError> {
        let mut offsets = CapabilityOffsets::default();
        let mut used = [false; CONVENTIONAL_SIZE];
        let mut link = layout::CAPABILITIES_POINTER;
        for &(at, capability) in list {
            let refuse = |why| BuildError::CapabilityPlace { id: capability.id(), at, why };
            let start = usize::from(at);
            if start < layout::HEADER_END || at % 4 != 0 {
                return Err(refuse("it must lie behind the header at a multiple of 4"));
            }
            let place =
                used.get_mut(start..start + capability.size()).ok_or(refuse("256 bytes end before"))?;
            if place.contains(&true) {
                return Err(refuse("it overlaps another one"));
            }
            place.fill(true);
            put(&mut self.value, link, &[at]);
            put(&mut self.value, start, &[capability.id()]);
            link = start + 1;
            let slot = match capability {
                Capability::PowerManagement => Some(&mut offsets.pm),
                Capability::Msi => Some(&mut offsets.msi),
                Capability::MsiX { .. } => Some(&mut offsets.msix),
                Capability::PcieEndpoint { .. } => Some(&mut offsets.pcie),
                Capability::Vendor { .. } => None,
            };
            if slot.is_some_and(|slot| slot.replace(at).is_some()) {
                return Err(refuse("the function has one already"));
            }
            self.capability(start, capability);
        }
        if !list.is_empty() {
            self.value16(status::OFFSET, status::CAPABILITIES_LIST);
        }
        Ok(offsets)
    }

    fn capability(&mut self, at: usize, capability: Capability) {
        match capability {
            Capability::PowerManagement => {
                self.value16(at + pm::CAPABILITIES, pm::VERSION_3);
                self.value16(at + pm::CONTROL, pm::NO_SOFT_RESET);
                self.writable16(at + pm::CONTROL, pm::STATE);
            }
            Capability::Msi => {
                self.value16(at + msi::CONTROL, msi::ADDRESS_64);
                self.writable16(at + msi::CONTROL, msi::ENABLE);
                self.writable32(at + msi::ADDRESS_LOW, !3);
                self.writable32(at + msi::ADDRESS_HIGH, !0);
                self.writable16(at + msi::DATA, !0);
            }
            Capability::MsiX { vectors, bar, table, pending } => {
                let place = |offset: u32| offset & !msix::BAR | u32::from(bar) & msix::BAR;
                self.value16(at + msix::CONTROL, vectors.saturating_sub(1) & msix::VECTORS);
                self.writable16(at + msix::CONTROL, msix::ENABLE | msix::ALL_MASKED);
                self.value32(at + msix::TABLE, place(table));
                self.value32(at + msix::PENDING, place(pending));
            }
            Capability::PcieEndpoint { link_speed, link_width, function_level_reset } => {
                self.reset_capable = function_level_reset;
                self.pcie(at, link_speed, link_width);
            }
            Capability::Vendor { content, writable } => {
                put(&mut self.value, at + vendor::CONTENT, content);
                put(&mut self.writable, at + vendor::CONTENT, writable);
            }
        }
    }

    fn pcie(&mut self, at: usize, speed: u8, width: u8) {
        let flr = if self.reset_capable { pcie::FLR_CAPABLE } else { 0 };
        let link = u16::from(speed & 0xf) | u16::from(width & 0x3f) << 4;
        self.value16(at + pcie::CAPABILITIES, pcie::VERSION_2_ENDPOINT);
        self.value32(at + pcie::DEVICE_CAPABILITIES, pcie::DEVICE_CAPABILITIES_VALUE | flr);
        self.value16(at + pcie::DEVICE_CONTROL, pcie::DEVICE_CONTROL_RESET);
        self.writable16(at + pcie::DEVICE_CONTROL, pcie::DEVICE_CONTROL_WRITABLE);
        put(&mut self.clear, at + pcie::DEVICE_STATUS, &pcie::DEVICE_STATUS_ERRORS.to_le_bytes());
        self.value32(at + pcie::LINK_CAPABILITIES, u32::from(link) | pcie::LINK_ASPM);
        self.writable16(at + pcie::LINK_CONTROL, pcie::LINK_CONTROL_WRITABLE);
        self.value16(at + pcie::LINK_STATUS, link | pcie::LINK_SLOT_CLOCK);
        self.writable16(at + pcie::DEVICE_CONTROL_2, pcie::DEVICE_CONTROL_2_WRITABLE);
        // Supported speeds: one bit for each generation from bit 1 on.
        let speeds = (1u32 << (u32::from(speed & 0xf) + 1)) - 2;
        self.value32(at + pcie::LINK_CAPABILITIES_2, speeds);
        self.value16(at + pcie::LINK_CONTROL_2, u16::from(speed & 0xf));
        self.writable16(at + pcie::LINK_CONTROL_2, pcie::LINK_CONTROL_2_WRITABLE);
    }
}

/// Address bits that a BAR of `size` bytes, a power of two, decodes.
const fn address_mask(size: u64) -> u64 {
    size.wrapping_neg()
}

/// Low and high half.
const fn split(value: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]))
}
