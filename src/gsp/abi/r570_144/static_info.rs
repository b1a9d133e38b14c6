//! `GspStaticConfigInfo`: what a driver asks GSP about the GPU first. Parts that no driver of a virtual GPU
//! reads are opaque bytes here.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::abi::common::static_info::{
    NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO, put_regions, text, unicode,
};
use crate::abi::values::StaticInfo;
use gpuvmk_chip::layout;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GspStaticConfigInfo {
    pub grCapsBits: [u8; 23],
    pub pad: u8,
    pub gidInfo: [u8; 0x10c],
    pub SKUInfo: [u8; 0x34],
    pub numFBRegions: u32,
    pub pad2: u32,
    pub fbRegion: [NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO; 16],
    pub sriovCaps: [u8; 0x50],
    pub sriovMaxGfid: u32,
    pub engineCaps: [u32; 3],
    pub poisonFuseEnabled: u8,
    pub pad3: [u8; 7],
    pub fb_length: u64,
    pub fbio_mask: u64,
    pub fb_bus_width: u32,
    pub fb_ram_type: u32,
    pub fbp_mask: u64,
    pub l2_cache_size: u32,
    pub gpuNameString: [u8; 64],
    pub gpuShortNameString: [u8; 64],
    pub gpuNameString_Unicode: [u16; 64],
    /// `bGpuInternalSku` to `RTD3GC6PerstDelay`.
    pub board: [u8; 0x14],
    pub bar1PdeBase: u64,
    pub bar2PdeBase: u64,
    /// `bVbiosValid` to `displaylessMaxPixels`.
    pub display: [u8; 0x30],
    pub hInternalClient: u32,
    pub hInternalDevice: u32,
    pub hInternalSubdevice: u32,
    /// `bSelfHostedMode` to `bIsEfiInit`.
    pub host: [u8; 4],
    pub ecidInfo: [u32; 6],
    pub nonWprHeapOffset: u64,
    pub frtsOffset: u64,
}
layout!(GspStaticConfigInfo, 0x678, gidInfo @ 0x18, SKUInfo @ 0x124, numFBRegions @ 0x158, fbRegion @ 0x160,
    sriovCaps @ 0x460, engineCaps @ 0x4b4, fb_length @ 0x4c8, fbp_mask @ 0x4e0, gpuNameString @ 0x4ec,
    gpuNameString_Unicode @ 0x56c, board @ 0x5ec, bar1PdeBase @ 0x600, bar2PdeBase @ 0x608, display @ 0x610,
    hInternalClient @ 0x640, host @ 0x64c, ecidInfo @ 0x650, nonWprHeapOffset @ 0x668, frtsOffset @ 0x670);

/// Static info of a GPU.
pub fn encode(info: &StaticInfo<'_>) -> GspStaticConfigInfo {
    let mut raw = GspStaticConfigInfo::new_zeroed();
    raw.numFBRegions = put_regions(&mut raw.fbRegion, info.regions);
    raw.fb_length = info.vram;
    text(&mut raw.gpuNameString, info.name);
    text(&mut raw.gpuShortNameString, info.short_name);
    unicode(&mut raw.gpuNameString_Unicode, info.name);
    raw.bar1PdeBase = info.bar1_root;
    raw.bar2PdeBase = info.bar2_root;
    [raw.hInternalClient, raw.hInternalDevice, raw.hInternalSubdevice] = info.internal;
    raw.nonWprHeapOffset = info.non_wpr_heap;
    raw.frtsOffset = info.frts;
    raw
}
