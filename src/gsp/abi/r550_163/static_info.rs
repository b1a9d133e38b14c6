//! `GspStaticConfigInfo`: what a driver asks GSP about the GPU first. Parts that tell of nothing that a
//! virtual GPU has are opaque bytes here.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::abi::common::control::NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS;
use crate::abi::common::static_info::{
    GspSMInfo, NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO, NV2080_CTRL_GPU_GET_GID_INFO_PARAMS, text,
    unicode,
};
use crate::abi::nvidia::static_info::{engines, identity, multiprocessor, put_regions};
use crate::abi::values::StaticInfo;
use gpuvmk_chip::layout;

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct GspStaticConfigInfo {
    pub grCapsBits: [u8; 23],
    pub pad: u8,
    pub gidInfo: NV2080_CTRL_GPU_GET_GID_INFO_PARAMS,
    pub gpcMask: u32,
    pub tpcInfo: [NV2080_CTRL_GPU_GET_FERMI_TPC_INFO_PARAMS; 32],
    pub zcullInfo: [[u32; 2]; 32],
    pub SKUInfo: [u8; 0x30],
    pub numFBRegions: u32,
    pub pad2: u32,
    pub fbRegion: [NV2080_CTRL_CMD_FB_GET_FB_REGION_FB_REGION_INFO; 16],
    pub sriovCaps: [u8; 0x50],
    pub sriovMaxGfid: u32,
    pub engineCaps: [u32; 2],
    pub SM_info: GspSMInfo,
    pub poisonFuseEnabled: u8,
    pub pad3: [u8; 7],
    pub fb_length: u64,
    pub fbio_mask: u32,
    pub fb_bus_width: u32,
    pub fb_ram_type: u32,
    pub fbp_mask: u32,
    pub l2_cache_size: u32,
    pub gfxpBuffers: [u32; 10],
    pub gpuNameString: [u8; 64],
    pub gpuShortNameString: [u8; 64],
    pub gpuNameString_Unicode: [u16; 64],
    /// `bGpuInternalSku` to `bIsTitan`.
    pub brands: [u8; 7],
    pub bIsTesla: u8,
    /// `bIsMobile` to `bIsGcoffLegacyAllowed`.
    pub power: [u8; 4],
    pub bar1PdeBase: u64,
    pub bar2PdeBase: u64,
    pub bVbiosValid: u8,
    pub pad4: [u8; 3],
    pub vbiosSubVendor: u32,
    pub vbiosSubDevice: u32,
    pub bPageRetirementSupported: u8,
    pub bSplitVasBetweenServerClientRm: u8,
    /// `bClRootportNeedsNosnoopWAR` to `displaylessMaxPixels`.
    pub display: [u8; 0x22],
    pub hInternalClient: u32,
    pub hInternalDevice: u32,
    pub hInternalSubdevice: u32,
    /// `bSelfHostedMode`, `bAtsSupported`, `bIsGpuUefi`.
    pub host: [u8; 4],
}
layout!(GspStaticConfigInfo, 0x888, gidInfo @ 0x18, gpcMask @ 0x124, tpcInfo @ 0x128, SKUInfo @ 0x328,
    numFBRegions @ 0x358, fbRegion @ 0x360, sriovCaps @ 0x660, engineCaps @ 0x6b4, SM_info @ 0x6bc,
    fb_length @ 0x6e8, gpuNameString @ 0x72c, bIsTesla @ 0x833, bar1PdeBase @ 0x838, bVbiosValid @ 0x848,
    vbiosSubDevice @ 0x850, bSplitVasBetweenServerClientRm @ 0x855, hInternalClient @ 0x878, host @ 0x884);

/// Static info of a GPU.
pub fn encode(info: &StaticInfo<'_>) -> GspStaticConfigInfo {
    let mut raw = GspStaticConfigInfo::new_zeroed();
    raw.gidInfo = identity(info);
    raw.gpcMask = info.gpc_mask;
    for ((gpc, to), tpcs) in (0..).zip(&mut raw.tpcInfo).zip(info.tpc_masks) {
        to.gpcId = gpc;
        to.tpcMask = tpcs;
    }
    raw.numFBRegions = put_regions(&mut raw.fbRegion, info);
    raw.engineCaps = engines(info);
    raw.SM_info = multiprocessor(info);
    raw.fb_length = info.vram;
    raw.fb_bus_width = info.memory.bus_width;
    raw.fb_ram_type = info.memory.ram_type;
    raw.fbio_mask = info.memory.partition_mask();
    raw.fbp_mask = info.memory.partition_mask();
    raw.l2_cache_size = info.memory.l2_bytes;
    text(&mut raw.gpuNameString, info.name);
    text(&mut raw.gpuShortNameString, info.short_name);
    unicode(&mut raw.gpuNameString_Unicode, info.name);
    raw.bIsTesla = 1;
    raw.bar1PdeBase = info.bar1_root;
    raw.bar2PdeBase = info.bar2_root;
    raw.bVbiosValid = 1;
    raw.vbiosSubVendor = info.subsystem[0].into();
    raw.vbiosSubDevice = info.subsystem[1].into();
    raw.bSplitVasBetweenServerClientRm = 1;
    [raw.hInternalClient, raw.hInternalDevice, raw.hInternalSubdevice] = info.internal;
    raw
}
