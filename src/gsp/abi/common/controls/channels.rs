//! Controls of channels.

use crate::abi::common::control::{
    NV2080_CTRL_CMD_GPU_PROMOTE_CTX, NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS, NVA06F_CTRL_CMD_BIND,
    NVA06F_CTRL_CMD_GPFIFO_SCHEDULE, NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, parameters, put,
};
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::PromoteContext;

controls! {
    source "open-gpu-kernel-modules ctrla06f, ctrlc36f, ctrl2080gpu; nouveau gsp/rm/r535/fifo.c";
    /// Lets a channel run (`bEnable`), or holds it back.
    NVA06F_CTRL_CMD_GPFIFO_SCHEDULE on Channel, 2 => Answer::Handler(ControlCall::ScheduleChannel(enable));
    /// Binds a channel to an engine: the one it was allocated for, or another of its runlist.
    NVA06F_CTRL_CMD_BIND on Channel, 4
        => Answer::Handler(ControlCall::BindChannel(|raw| Ok(gpuvmk_chip::Engine::of_nv2080_type(parameters(raw)))));
    /// What the driver writes to the doorbell.
    NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN on Channel, 4
        => Answer::Handler(ControlCall::WorkSubmitToken(|token, raw| put(raw, token)));
    /// Gives a channel's graphics context its buffers. The GPU behind has its own: they are never looked at.
    NV2080_CTRL_CMD_GPU_PROMOTE_CTX on Subdevice, size_of::<NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS>()
        => Answer::Handler(ControlCall::PromoteContext(promote_context));
}

fn enable(raw: &[u8]) -> Result<bool, Status> {
    let [enable, _skip_submit]: [u8; 2] = parameters(raw);
    Ok(enable != 0)
}

fn promote_context(raw: &[u8]) -> Result<PromoteContext, Status> {
    let wanted: NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS = parameters(raw);
    let entries = usize::try_from(wanted.entryCount).unwrap_or(usize::MAX);
    Ok(PromoteContext {
        client: wanted.hChanClient,
        channel: wanted.hObject,
        is_whole: entries <= wanted.promoteEntry.len(),
    })
}
