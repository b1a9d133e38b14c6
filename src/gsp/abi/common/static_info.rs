//! Parts of static info: versions have them at other places.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::abi::values::MemoryRegion;
use gpuvmk_chip::layout;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO {
    pub base: u64,
    pub limit: u64,
    pub reserved: u64,
    pub performance: u32,
    pub supportCompressed: u8,
    pub supportISO: u8,
    pub bProtected: u8,
    pub blackList: [u8; 17],
}
layout!(NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO, 0x30, performance @ 0x18, supportCompressed @ 0x1c);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct NV2080_CTRL_GPU_GET_GID_INFO_PARAMS {
    pub index: u32,
    pub flags: u32,
    pub length: u32,
    pub data: [u8; 0x100],
}
layout!(NV2080_CTRL_GPU_GET_GID_INFO_PARAMS, 0x10c, length @ 8, data @ 0xc);

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GspSMInfo {
    pub version: u32,
    pub regBankCount: u32,
    pub regBankRegCount: u32,
    pub maxWarpsPerSM: u32,
    pub maxThreadsPerWarp: u32,
    pub geomGsObufEntries: u32,
    pub geomXbufEntries: u32,
    pub maxSPPerSM: u32,
    pub rtCoreCount: u32,
}
layout!(GspSMInfo, 0x24, maxWarpsPerSM @ 0xc, maxSPPerSM @ 0x1c);

/// Writes ranges of VRAM, as many as there is room for; returns how many.
pub fn put_regions(
    to: &mut [NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO],
    regions: &[MemoryRegion],
) -> u32 {
    let mut count = 0_u32;
    for (to, region) in to.iter_mut().zip(regions) {
        to.base = region.base;
        to.limit = region.limit;
        to.supportCompressed = region.usable.into();
        to.supportISO = region.usable.into();
        count = count.saturating_add(1);
    }
    count
}

/// Copies `from`, and leaves a zero at the end.
pub fn text(to: &mut [u8; 64], from: &str) {
    to.iter_mut().take(63).zip(from.bytes()).for_each(|(to, from)| *to = from);
}

/// Copies `from` as UTF-16, and leaves a zero at the end.
pub fn unicode(to: &mut [u16; 64], from: &str) {
    to.iter_mut().take(63).zip(from.bytes()).for_each(|(to, from)| *to = from.into());
}
