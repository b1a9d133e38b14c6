//! What a GPU is: on the bus, and what it is made of.

/// What a driver knows of where the GPU is (SET_SYSTEM_INFO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// Bus addresses of the three BARs.
    pub bars: [u64; 3],
}

/// What the GPU is on the bus.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PciIdentity {
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Subsystem vendor id.
    pub subsystem_vendor: u16,
    /// Subsystem id.
    pub subsystem: u16,
    /// Revision id.
    pub revision: u8,
    /// Bytes of the three BARs.
    pub bars: [u64; 3],
}

/// What the GPU is, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// On the bus.
    pub pci: PciIdentity,
    /// As the driver says.
    pub host: Host,
}

/// What the GPU is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names {
    /// Marketing name, ASCII.
    pub long: &'static str,
    /// Chip name, ASCII.
    pub short: &'static str,
}

/// A multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessor {
    /// Version of its instructions, as `sm_90` is 0x900.
    pub version: u32,
    /// Banks of registers.
    pub register_banks: u32,
    /// Registers of a bank, in rows.
    pub bank_registers: u32,
    /// Warps that it holds.
    pub warps: u32,
    /// Threads of a warp.
    pub warp_threads: u32,
    /// Threads that it works on at once.
    pub lanes: u32,
}

impl Multiprocessor {
    /// One of a version: those since Volta are alike in the rest.
    pub const fn of(version: u32) -> Self {
        Self { version, register_banks: 4, bank_registers: 0x200, warps: 64, warp_threads: 32, lanes: 128 }
    }
}

/// What VRAM is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryUnits {
    /// `NV2080_CTRL_FB_INFO_RAM_TYPE_*`.
    pub ram_type: u32,
    /// Bits.
    pub bus_width: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: u32,
    /// Partitions, each with a part of the cache.
    pub partitions: u32,
    /// Slices of a partition's cache.
    pub partition_slices: u32,
}

impl MemoryUnits {
    /// A bit for each partition.
    pub fn partition_mask(self) -> u32 {
        1_u32.checked_shl(self.partitions).map_or(u32::MAX, |end| end.wrapping_sub(1))
    }

    /// Slices of the cache.
    pub const fn slices(self) -> u32 {
        self.partitions.saturating_mul(self.partition_slices)
    }
}

/// VRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes.
    pub vram: u64,
    /// Bytes that a driver may use.
    pub usable: u64,
    /// What it is made of.
    pub units: MemoryUnits,
}

/// What the graphics engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Graphics {
    /// Texture processing clusters of each graphics processing cluster, a bit each.
    pub tpc_masks: [u32; 32],
    /// A multiprocessor.
    pub multiprocessor: Multiprocessor,
    /// What VRAM is made of.
    pub memory: MemoryUnits,
}

impl Graphics {
    /// Multiprocessors of a texture processing cluster.
    pub const MULTIPROCESSORS: u16 = 2;
    /// Primitive engines of a graphics processing cluster.
    pub const PRIMITIVE_ENGINES: u32 = 3;
    /// Texture processing clusters of a primitive engine.
    pub const TPCS_OF_PRIMITIVE_ENGINE: u32 = 3;

    /// A bit for each graphics processing cluster.
    pub fn gpc_mask(&self) -> u32 {
        (0..).zip(self.tpc_masks).filter(|(_, mask)| *mask != 0).fold(0, |mask, (gpc, _)| mask | 1 << gpc)
    }
}
