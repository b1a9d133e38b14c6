//! Controls of channels.

use super::Target;
use crate::backend::GspBackend;
use crate::gh100::gsp::engines;
use crate::gh100::gsp::objects::Id;
use crate::gh100::gsp::rm::Rm;
use crate::gh100::gsp::saved;
use gpuvmk_chip::gh100::gsp::r570_144::control::{NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS, parameters, put};
use gpuvmk_chip::gh100::gsp::status::Status;

/// Binds a channel to an engine: the one it was allocated for, or another of its runlist.
pub(super) fn bind(rm: &mut Rm, _: &dyn GspBackend, target: Target, raw: &mut [u8]) -> Result<(), Status> {
    let token = rm.objects.channel(target.id)?;
    let engine = engines::of_type(parameters(raw)).ok_or(Status::InvalidArgument)?;
    if rm.channels.has_engine(token, engine) { Ok(()) } else { Err(Status::InvalidArgument) }
}

/// Lets a channel run (`bEnable`), or holds it back.
pub(super) fn schedule(
    rm: &mut Rm,
    back: &dyn GspBackend,
    target: Target,
    raw: &mut [u8],
) -> Result<(), Status> {
    let token = rm.objects.channel(target.id)?;
    let [enable, _skip_submit]: [u8; 2] = parameters(raw);
    rm.channels.schedule(back, token, enable != 0)
}

/// What the driver writes to the doorbell.
pub(super) fn token(rm: &mut Rm, _: &dyn GspBackend, target: Target, raw: &mut [u8]) -> Result<(), Status> {
    put(raw, &rm.objects.channel(target.id)?.doorbell());
    Ok(())
}

/// Holds all channels back (a suspend), or lets them run again.
pub(super) fn toggle_scheduling(
    rm: &mut Rm,
    back: &dyn GspBackend,
    _: Target,
    raw: &mut [u8],
) -> Result<(), Status> {
    let disable: u8 = parameters(raw);
    if disable != 0 {
        return rm.channels.hold(back, true);
    }
    let at_work = saved::revive(rm, back);
    rm.channels.hold(back, false)?;
    at_work.into_iter().for_each(|(slot, gp_put)| back.doorbell(slot, gp_put));
    Ok(())
}

/// The driver gives a channel's graphics context its buffers. The GPU behind has buffers of its own, so they
/// are never looked at.
pub(super) fn promote_context(
    rm: &mut Rm,
    _: &dyn GspBackend,
    _: Target,
    raw: &mut [u8],
) -> Result<(), Status> {
    let wanted: NV2080_CTRL_GPU_PROMOTE_CTX_PARAMS = parameters(raw);
    rm.objects.channel(Id { client: wanted.hChanClient, handle: wanted.hObject })?;
    let entries = usize::try_from(wanted.entryCount).unwrap_or(usize::MAX);
    if entries > wanted.promoteEntry.len() { Err(Status::InvalidArgument) } else { Ok(()) }
}
