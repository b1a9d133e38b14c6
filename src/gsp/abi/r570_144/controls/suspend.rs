//! Controls of a suspension: a driver saves VRAM itself, and says where firmware's own state goes.

use crate::abi::common::control::{NV2080_CTRL_CMD_INTERNAL_FBSR_INIT, parameters};
use crate::abi::r570_144::control::{
    NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING, NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS,
};
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::SuspendMemory;

controls! {
    source "open-gpu-kernel-modules ctrl2080internal.h; nouveau gsp/rm/r570/fbsr.c";
    /// Says where VRAM that firmware uses is to be saved, and what else firmware keeps.
    NV2080_CTRL_CMD_INTERNAL_FBSR_INIT on Subdevice, size_of::<NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS>()
        => Answer::Handler(ControlCall::SuspendMemory(fbsr_init));
    /// Holds all channels back (a suspend), or lets them run again.
    NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING on Subdevice, 1
        => Answer::Handler(ControlCall::HoldChannels(|raw| Ok(parameters::<u8>(raw) != 0)));
}

fn fbsr_init(raw: &[u8]) -> Result<SuspendMemory, Status> {
    let wanted: NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS = parameters(raw);
    Ok(SuspendMemory {
        client: wanted.hClient,
        list: wanted.hSysMem,
        description: wanted.sysmemAddrOfSuspendResumeData,
    })
}
