//! Controls of channels.

use crate::abi::status::Status;
use crate::abi::values::PromoteContext;
use crate::model::objects::Id;
use crate::model::rm::Rm;
use crate::model::saved;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::Engine;

/// Binds a channel to one of the engines that it has.
pub(super) fn bind(rm: &Rm, id: Id, engine: Option<Engine>) -> Result<(), Status> {
    let token = rm.objects.channel(id)?;
    let engine = engine.ok_or(Status::InvalidArgument)?;
    if rm.channels.has_engine(token, engine) { Ok(()) } else { Err(Status::InvalidArgument) }
}

/// Lets a channel run, or holds it back.
pub(super) fn schedule(rm: &mut Rm, back: &dyn GspBackend, id: Id, enable: bool) -> Result<(), Status> {
    let token = rm.objects.channel(id)?;
    rm.channels.schedule(back, token, enable)
}

/// Lets the channels of a group run, or holds them back.
pub(super) fn schedule_group(rm: &mut Rm, back: &dyn GspBackend, id: Id, enable: bool) -> Result<(), Status> {
    let mut outcome = Ok(());
    for token in rm.objects.channels_of(id)? {
        outcome = outcome.and(rm.channels.schedule(back, token, enable));
    }
    outcome
}

/// Holds all channels back (a suspend), or lets them run again.
pub(super) fn hold(rm: &mut Rm, back: &dyn GspBackend, hold: bool) -> Result<(), Status> {
    if hold {
        return rm.channels.hold(back, true);
    }
    saved::let_run(rm, back)
}

/// Buffers for a channel's graphics context: the GPU behind has its own.
pub(super) fn promote_context(rm: &Rm, wanted: PromoteContext) -> Result<(), Status> {
    rm.objects.channel(Id { client: wanted.client, handle: wanted.channel })?;
    if wanted.is_whole { Ok(()) } else { Err(Status::InvalidArgument) }
}
