//! Controls of the resource manager's objects: numbers and parameters that nouveau's versions have in another
//! way, or not at all.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuvmk_chip::layout;

/// Graphics engines that a table of them has places for.
pub const GRAPHICS_ENGINES: usize = 8;
/// Graphics processing clusters of one of them.
pub const MAX_GPCS: usize = 12;

/// A BAR, of the eight that there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_BUS_PCI_BAR_INFO {
    pub flags: u32,
    /// MiB.
    pub barSize: u32,
    pub barSizeBytes: u64,
    pub barOffset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS {
    pub pciBarCount: u32,
    pub pad: u32,
    pub pciBarInfo: [NV2080_CTRL_BUS_PCI_BAR_INFO; 8],
}
layout!(NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS, 0xc8, pciBarInfo @ 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_MEMSYS_SET_PARTITIONABLE_MEM_PARAMS {
    pub partitionableMemSize: u64,
    pub bottomRsvdSize: u64,
    pub topRsvdSize: u64,
    pub partitionableStartAddr: u64,
    pub partitionableEndAddr: u64,
}
layout!(NV2080_CTRL_INTERNAL_MEMSYS_SET_PARTITIONABLE_MEM_PARAMS, 0x28, partitionableEndAddr @ 0x20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_FIFO_GET_NUM_CHANNELS_PARAMS {
    pub runlistId: u32,
    pub numChannels: u32,
}
layout!(NV2080_CTRL_INTERNAL_FIFO_GET_NUM_CHANNELS_PARAMS, 8);

/// A name, in letters of one byte, or of two where `gpuNameStringFlags` is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS {
    pub gpuNameStringFlags: u32,
    pub gpuNameString: [u8; 0x80],
}
layout!(NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS, 0x84, gpuNameString @ 4);

/// Which clusters one graphics engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_STATIC_GR_FLOORSWEEPING_MASKS {
    pub gpcMask: u32,
    pub tpcMask: [u32; MAX_GPCS],
    pub tpcCount: [u32; MAX_GPCS],
    pub physGpcMask: u32,
    pub mmuPerGpc: [u32; MAX_GPCS],
    pub tpcToPesMap: [u32; 10],
    pub numPesPerGpc: [u32; MAX_GPCS],
    pub zcullMask: [u32; MAX_GPCS],
    pub physGfxGpcMask: u32,
    pub numGfxTpc: u32,
}
layout!(NV2080_CTRL_INTERNAL_STATIC_GR_FLOORSWEEPING_MASKS, 0x128, tpcCount @ 0x34, physGpcMask @ 0x64,
    tpcToPesMap @ 0x98, numPesPerGpc @ 0xc0, zcullMask @ 0xf0, physGfxGpcMask @ 0x120);

/// A multiprocessor by the number that all of the GPU gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GLOBAL_SM_ID {
    pub gpcId: u16,
    pub localTpcId: u16,
    pub localSmId: u16,
    pub globalTpcId: u16,
    pub virtualGpcId: u16,
    pub migratableTpcId: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_STATIC_GR_GLOBAL_SM_ORDER {
    pub globalSmId: [GLOBAL_SM_ID; 240],
    pub numSm: u16,
    pub numTpc: u16,
}
layout!(NV2080_CTRL_INTERNAL_STATIC_GR_GLOBAL_SM_ORDER, 0xb44, numSm @ 0xb40, numTpc @ 0xb42);

/// `NVXXXX_CTRL_XXX_INFO`: what is asked for, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NVXXXX_CTRL_XXX_INFO {
    pub index: u32,
    pub data: u32,
}
layout!(NVXXXX_CTRL_XXX_INFO, 8);

/// Numbers about one graphics engine, in order. Versions know more or fewer.
pub type NV2080_CTRL_INTERNAL_STATIC_GR_INFO<const COUNT: usize> = [NVXXXX_CTRL_XXX_INFO; COUNT];

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_CE_GET_CAPS_V2_PARAMS {
    pub ceEngineType: u32,
    pub capsTbl: [u8; 2],
    pub pad: [u8; 2],
}
layout!(NV2080_CTRL_CE_GET_CAPS_V2_PARAMS, 8, capsTbl @ 4);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS {
    pub ceEngineType: u32,
    pub pceMask: u32,
}
layout!(NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS, 8);

gpuvmk_chip::fields! {
    /// Properties of a copy engine (`NV2080_CTRL_CE_CAPS_*`), the two bytes as a number.
    NV2080_CTRL_CE_CAPS {
        /// It shares the graphics engine's runlist.
        0:0 CE_GRCE,
        /// It shares hardware with others.
        1:1 CE_SHARED,
        2:2 CE_SYSMEM_READ,
        3:3 CE_SYSMEM_WRITE,
        5:5 CE_SYSMEM,
        6:6 CE_P2P,
        7:7 CE_BL_SIZE_GT_64K_SUPPORTED,
        8:8 CE_SUPPORTS_NONPIPELINED_BL,
        9:9 CE_SUPPORTS_PIPELINED_BL,
    }
}

gpuvmk_chip::fields! {
    /// The number of a property of the GPU.
    NV2080_CTRL_GPU_INFO_INDEX {
        /// The driver leaves it to firmware.
        31:31 FORWARD_TO_PHYSICAL,
    }
}

/// What a debugger asks of the multiprocessors, and of the fault of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS {
    pub hTargetChannel: u32,
    pub numSMsToRead: u32,
    pub smErrorStateArray: [[u64; 6]; 100],
    pub mmuFaultInfo: u32,
    pub mmuFault_valid: u8,
    pub pad: [u8; 3],
    pub mmuFault_faultInfo: u32,
    pub startingSM: u32,
}
layout!(NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS, 0x12d8, mmuFaultInfo @ 0x12c8,
    mmuFault_faultInfo @ 0x12d0);

gpuvmk_chip::fields! {
    /// A fault as the MMU tells of it.
    NV_PFB_PRI_MMU_FAULT_INFO {
        4:0 FAULT_TYPE,
        19:16 ACCESS_TYPE = { VIRT_READ: 0, VIRT_WRITE: 1 },
        31:31 VALID,
    }
}

/// Which firmware runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_GSP_GET_FEATURES_PARAMS {
    pub gspFeatures: u32,
    pub bValid: u8,
    pub bDefaultGspRmGpu: u8,
    pub firmwareVersion: [u8; 0x40],
    pub pad: [u8; 2],
}
layout!(NV2080_CTRL_GSP_GET_FEATURES_PARAMS, 0x48, firmwareVersion @ 6);

gpuvmk_chip::fields! {
    /// What firmware can do.
    NV2080_CTRL_GSP_GET_FEATURES {
        /// What UVM needs.
        0:0 UVM_ENABLED,
    }
}

gpuvmk_chip::fields! {
    /// Generations of PCIe, less one.
    NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP {
        /// Of the link, at most.
        15:12 GEN,
        /// Of the link now.
        19:16 CURR_LEVEL,
        /// Of the GPU.
        23:20 GPU_GEN,
    }
}
