//! Controls of the resource manager's objects: numbers and parameters that other versions have in another
//! way, or not at all.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use gpuvmk_chip::layout;

pub const NV2080_CTRL_CMD_INTERNAL_GET_CONSTRUCTED_FALCON_INFO: u32 = 0x2080_0a42;
pub const NV2080_CTRL_CMD_INTERNAL_FBSR_SEND_REGION_INFO: u32 = 0x2080_0ac3;

/// Kinds of contexts in `NV2080_CTRL_INTERNAL_STATIC_GR_GET_CONTEXT_BUFFERS_INFO_PARAMS`.
pub const CONTEXT_BUFFER_IDS: usize = 0x19;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS {
    pub fbsrType: u32,
    pub numRegions: u32,
    pub hClient: u32,
    pub hSysMem: u32,
    pub gspFbAllocsSysOffset: u64,
    pub bEnteringGcoffState: u8,
    pub pad: [u8; 7],
}
layout!(NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS, 0x20, hClient @ 8, gspFbAllocsSysOffset @ 0x10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_INTERNAL_FBSR_SEND_REGION_INFO_PARAMS {
    pub fbsrType: u32,
    pub hClient: u32,
    pub hVidMem: u32,
    pub pad: u32,
    pub vidOffset: u64,
    pub sysOffset: u64,
    pub size: u64,
}
layout!(NV2080_CTRL_INTERNAL_FBSR_SEND_REGION_INFO_PARAMS, 0x28, hVidMem @ 8, vidOffset @ 0x10, size @ 0x20);
