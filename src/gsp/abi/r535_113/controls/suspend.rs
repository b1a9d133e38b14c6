//! Controls of a suspension: a driver lists VRAM that firmware is to save, and firmware puts it back before
//! it says that it runs.

use crate::abi::common::control::{NV2080_CTRL_CMD_INTERNAL_FBSR_INIT, parameters};
use crate::abi::r535_113::control::{
    NV2080_CTRL_CMD_INTERNAL_FBSR_SEND_REGION_INFO, NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS,
    NV2080_CTRL_INTERNAL_FBSR_SEND_REGION_INFO_PARAMS,
};
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::{SuspendMemory, SuspendRegion};

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h; nouveau gsp/rm/r535/fbsr.c";
    /// Says where VRAM is to be saved. Where firmware's own state goes is said when it is unloaded.
    NV2080_CTRL_CMD_INTERNAL_FBSR_INIT on Subdevice, size_of::<NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS>()
        => Answer::Handler(ControlCall::SuspendMemory(fbsr_init));
    /// A piece of VRAM that is to be saved.
    NV2080_CTRL_CMD_INTERNAL_FBSR_SEND_REGION_INFO on Subdevice,
        size_of::<NV2080_CTRL_INTERNAL_FBSR_SEND_REGION_INFO_PARAMS>()
        => Answer::Handler(ControlCall::SuspendRegion(send_region_info));
}

fn fbsr_init(raw: &[u8]) -> Result<SuspendMemory, Status> {
    let wanted: NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS = parameters(raw);
    Ok(SuspendMemory { client: wanted.hClient, list: wanted.hSysMem, description: 0 })
}

fn send_region_info(raw: &[u8]) -> Result<SuspendRegion, Status> {
    let region: NV2080_CTRL_INTERNAL_FBSR_SEND_REGION_INFO_PARAMS = parameters(raw);
    Ok(SuspendRegion {
        client: region.hClient,
        list: region.hVidMem,
        from: region.vidOffset,
        to: region.sysOffset,
        size: region.size,
    })
}
