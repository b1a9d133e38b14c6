//! `GspStaticConfigInfo`: what a driver asks GSP about the GPU first. It is that of 535.113.01, of which
//! NVIDIA's own modules read more.

use zerocopy::FromZeros;

use crate::abi::common::static_info::{text, unicode};
use crate::abi::nvidia::static_info::{engines, identity, multiprocessor, put_regions};
use crate::abi::r535_113::static_info::GspStaticConfigInfo;
use crate::abi::values::StaticInfo;

/// `computeBranding`: a card for data centres, the only ones that the open modules take unasked.
const COMPUTE_BRANDING_TYPE_TESLA: u32 = 1;

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
    raw.computeBranding = COMPUTE_BRANDING_TYPE_TESLA;
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
