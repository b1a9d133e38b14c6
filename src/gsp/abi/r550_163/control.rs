//! Controls of the resource manager's objects: parameters that other versions have in another way.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuvmk_chip::layout;

/// The version's name.
pub const VERSION: &str = "550.163.01";
/// Kinds of contexts in `NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS`.
pub const CONTEXT_BUFFER_IDS: usize = 0x1a;
/// Numbers about one graphics engine.
pub const GR_INFO_MAX: usize = 56;

/// What the whole GPU is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS {
    pub chipSubRev: u8,
    pub pad: [u8; 3],
    pub emulationRev1: u32,
    pub isCmpSku: u8,
    pub pad2: [u8; 3],
    pub pciDeviceId: u32,
    pub pciSubDeviceId: u32,
    pub pciRevisionId: u32,
    pub regBases: [u32; 16],
}
layout!(NV2080_CTRL_INTERNAL_GPU_GET_CHIP_INFO_PARAMS, 0x58, pciDeviceId @ 0xc, pciRevisionId @ 0x14, regBases @ 0x18);

/// Properties of the copy engines, a byte pair each, and which of them there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS {
    pub capsTbl: [[u8; 2]; 64],
    pub present: u64,
}
layout!(NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS, 0x88, present @ 0x80);
