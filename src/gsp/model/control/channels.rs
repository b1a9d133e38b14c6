//! Controls of channels.

use super::Target;
use crate::abi::control::{
    NV2080_CTRL_CMD_GPU_PROMOTE_CTX, NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING,
    NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS, NVA06F_CTRL_CMD_BIND, NVA06F_CTRL_CMD_GPFIFO_SCHEDULE,
    NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN, parameters, put,
};
use crate::abi::status::Status;
use crate::model::answers::{Answer, controls};
use crate::model::engines;
use crate::model::objects::Id;
use crate::model::rm::Rm;
use crate::model::saved;
use gpuvmk_backend::GspBackend;

controls! {
    source "open-gpu-kernel-modules ctrla06f, ctrlc36f, ctrl2080gpu, ctrl2080internal; nouveau gsp/rm/r535/fifo.c";
    /// Lets a channel run (`bEnable`), or holds it back.
    NVA06F_CTRL_CMD_GPFIFO_SCHEDULE on Channel, 2 => Answer::Handler(schedule);
    /// Binds a channel to an engine: the one it was allocated for, or another of its runlist.
    NVA06F_CTRL_CMD_BIND on Channel, 4 => Answer::Handler(bind);
    /// What the driver writes to the doorbell.
    NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN on Channel, 4 => Answer::Handler(token);
    /// Holds all channels back (a suspend), or lets them run again.
    NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING on Subdevice, 1
        => Answer::Handler(toggle_scheduling);
    /// Gives a channel's graphics context its buffers. The GPU behind has its own: they are never looked at.
    NV2080_CTRL_CMD_GPU_PROMOTE_CTX on Subdevice, size_of::<NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS>()
        => Answer::Handler(promote_context);
}

fn bind(rm: &mut Rm, _: &dyn GspBackend, target: Target, raw: &mut [u8]) -> Result<(), Status> {
    let token = rm.objects.channel(target.id)?;
    let engine = engines::of_type(parameters(raw)).ok_or(Status::InvalidArgument)?;
    if rm.channels.has_engine(token, engine) { Ok(()) } else { Err(Status::InvalidArgument) }
}

fn schedule(rm: &mut Rm, back: &dyn GspBackend, target: Target, raw: &mut [u8]) -> Result<(), Status> {
    let token = rm.objects.channel(target.id)?;
    let [enable, _skip_submit]: [u8; 2] = parameters(raw);
    rm.channels.schedule(back, token, enable != 0)
}

fn token(rm: &mut Rm, _: &dyn GspBackend, target: Target, raw: &mut [u8]) -> Result<(), Status> {
    put(raw, &rm.objects.channel(target.id)?.doorbell());
    Ok(())
}

fn toggle_scheduling(rm: &mut Rm, back: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let disable: u8 = parameters(raw);
    if disable != 0 {
        return rm.channels.hold(back, true);
    }
    let at_work = saved::revive(rm, back);
    rm.channels.hold(back, false)?;
    at_work.into_iter().for_each(|(slot, gp_put)| back.doorbell(slot, gp_put));
    Ok(())
}

fn promote_context(rm: &mut Rm, _: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let wanted: NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS = parameters(raw);
    rm.objects.channel(Id { client: wanted.hChanClient, handle: wanted.hObject })?;
    let entries = usize::try_from(wanted.entryCount).unwrap_or(usize::MAX);
    if entries > wanted.promoteEntry.len() { Err(Status::InvalidArgument) } else { Ok(()) }
}
