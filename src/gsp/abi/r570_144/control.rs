//! Controls of the resource manager's objects: numbers and parameters that other versions have in another
//! way, or not at all.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuvmk_chip::layout;

pub const NV0080_CTRL_CMD_FB_GET_COMPBIT_STORE_INFO: u32 = 0x0080_1306;
pub const NV2080_CTRL_CMD_GPU_GET_CONSTRUCTED_FALCON_INFO: u32 = 0x2080_01b0;
pub const NV2080_CTRL_CMD_INTERNAL_MEMSYS_GET_STATIC_CONFIG: u32 = 0x2080_0a1c;
pub const NV2080_CTRL_CMD_INTERNAL_MEMSYS_PROGRAM_RAW_COMPRESSION_MODE: u32 = 0x2080_0a6f;
pub const NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING: u32 = 0x2080_0ac3;
pub const NV2080_CTRL_CMD_GR_GET_ZCULL_INFO: u32 = 0x2080_1206;
pub const NV2080_CTRL_CMD_INTERNAL_GCX_ENTRY_PREREQUISITE: u32 = 0x2080_a7d7;

/// Kinds of contexts in `NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS`.
pub const CONTEXT_BUFFER_IDS: usize = 0x1a;

/// Properties of the memory system once the GPU is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS {
    pub bOneToOneComptagLineAllocation: u8,
    pub bUseOneToFourComptagLineAllocation: u8,
    pub bUseRawModeComptaglineAllocation: u8,
    pub bDisableCompbitBacking: u8,
    pub bDisablePostL2Compression: u8,
    pub bEnabledEccFBPA: u8,
    pub bL2PreFill: u8,
    pub pad: u8,
    pub l2CacheSize: u64,
    pub bFbpaPresent: u8,
    pub pad2: [u8; 3],
    pub comprPageSize: u32,
    pub comprPageShift: u32,
    pub ramType: u32,
    pub ltcCount: u32,
    pub ltsPerLtcCount: u32,
}
layout!(
    NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS, 0x28,
    bUseRawModeComptaglineAllocation @ 2,
    bDisableCompbitBacking @ 3,
    l2CacheSize @ 8,
    comprPageSize @ 0x14,
    ltsPerLtcCount @ 0x24,
);

/// Where compression keeps its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS {
    pub Size: u64,
    pub Address: u64,
    pub AddressSpace: u32,
    pub MaxCompbitLine: u32,
    pub comptagsPerCacheLine: u32,
    pub cacheLineSize: u32,
    pub cacheLineSizePerSlice: u32,
    pub cacheLineFetchAlignment: u32,
    pub backingStoreBase: u64,
    pub gobsPerComptagPerSlice: u32,
    pub backingStoreCbcBase: u32,
    pub comptaglineAllocationPolicy: u32,
    pub pad: u32,
    pub privRegionStartOffset: u64,
    pub cbcCoveragePerSlice: u32,
    pub pad2: u32,
}
layout!(
    NV0080_CTRL_FB_GET_COMPBIT_STORE_INFO_PARAMS, 0x50,
    AddressSpace @ 0x10,
    backingStoreBase @ 0x28,
    privRegionStartOffset @ 0x40,
);

/// `NV2080_CTRL_INTERNAL_GCX_ENTRY_PREREQUISITE_PARAMS`: whether it could go into GC6, and into GCOFF.
pub type NV2080_CTRL_INTERNAL_GCX_ENTRY_PREREQUISITE_PARAMS = [u8; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS {
    pub hClient: u32,
    pub hSysMem: u32,
    pub bEnteringGcoffState: u8,
    pub pad: [u8; 7],
    pub sysmemAddrOfSuspendResumeData: u64,
}
layout!(NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS, 0x18, sysmemAddrOfSuspendResumeData @ 0x10);

/// `NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS`: ten numbers.
pub type NV2080_CTRL_GR_GET_ZCULL_INFO_PARAMS = [u32; 10];
