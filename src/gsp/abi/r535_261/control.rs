//! Controls of the resource manager's objects: parameters that other versions have in another way.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuvmk_chip::layout;

/// The version's name.
pub const VERSION: &str = "535.261.03";
/// Numbers about one graphics engine.
pub const GR_INFO_MAX: usize = 53;

/// What the whole GPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS {
    pub chipSubRev: u8,
    pub pad: [u8; 3],
    pub emulationRev1: u32,
    pub isCmpSku: u8,
    pub pad2: [u8; 3],
    /// MiB.
    pub bar1Size: u32,
    pub pciDeviceId: u32,
    pub pciSubDeviceId: u32,
    pub pciRevisionId: u32,
    pub regBases: [u32; 16],
}
layout!(NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS, 0x5c, bar1Size @ 0xc, pciDeviceId @ 0x10,
    pciRevisionId @ 0x18, regBases @ 0x1c);

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
    pub bReservedMemAtBottom: u8,
    pub bFbpaPresent: u8,
    pub pad2: [u8; 2],
    pub comprPageSize: u32,
    pub comprPageShift: u32,
    pub maximumBlacklistPages: u16,
    pub pad3: u16,
    pub ramType: u32,
    pub ltcCount: u32,
    pub ltsPerLtcCount: u32,
    pub bDisablePlcForCertainOffsetsBug3046774: u8,
    pub pad4: [u8; 3],
    pub fbOverrideStartKb: u64,
}
layout!(NV2080_CTRL_INTERNAL_MEMSYS_GET_STATIC_CONFIG_PARAMS, 0x38, l2CacheSize @ 8, bFbpaPresent @ 0x11,
    comprPageSize @ 0x14, ramType @ 0x20, ltsPerLtcCount @ 0x28, fbOverrideStartKb @ 0x30);

/// Properties of the copy engines, a byte pair each, and which of them there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS {
    pub capsTbl: [[u8; 2]; 32],
    pub present: u32,
}
layout!(NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS, 0x44, present @ 0x40);

/// The numbers of the engines that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS {
    pub engineCount: u32,
    pub engineList: [u32; 0x3e],
}
layout!(NV2080_CTRL_GPU_GET_ENGINES_V2_PARAMS, 0xfc, engineList @ 4);

gpuvmk_chip::fields! {
    /// How an identity is asked for.
    NV2080_GPU_CMD_GPU_GET_GID_FLAGS {
        1:0 FORMAT = { ASCII: 0, BINARY: 2 },
        /// What it is made of: 0 SHA-1.
        2:2 TYPE,
    }
}
