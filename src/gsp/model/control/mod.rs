//! Controls of objects (GSP_RM_CONTROL), by tables that stand beside their handlers: what nouveau of Linux
//! 7.2 and 7.3 sends to a GPU without display.
//!
//! A control that is not in the table is answered NV_ERR_NOT_SUPPORTED, as real firmware answers one that its
//! GPU does not have.

mod channels;
mod engines;
mod memory;
mod memory_system;

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::rpc::rpc_gsp_rm_control_v03_00;
use crate::abi::status::{Status, code};
use crate::model::answers::{Answer, Source};
use crate::model::counters::{Call, Note};
use crate::model::objects::{Id, Type};
use crate::model::rm::Rm;
use gpuvmk_backend::GspBackend;

pub(super) use memory::keep_directory;

/// What a control is sent to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    id: Id,
}

/// A control.
pub(super) struct Control {
    /// Number.
    pub(super) number: u32,
    /// NVIDIA's name.
    pub(super) name: &'static str,
    /// What it is sent to.
    pub(super) object: Type,
    /// Bytes of its parameters.
    pub(super) size: usize,
    /// How it is answered.
    pub(super) answer: Answer<Target>,
    /// Where it is known from.
    pub(super) source: Source,
    /// What it does, in a sentence.
    pub(super) doc: &'static str,
}

/// The tables of all controls that are known.
const TABLES: [&[Control]; 4] =
    [channels::CONTROLS, engines::CONTROLS, memory::CONTROLS, memory_system::CONTROLS];

/// Every control that is known.
pub(super) fn all() -> impl Iterator<Item = &'static Control> {
    TABLES.into_iter().flatten()
}

/// GSP_RM_CONTROL: the status of the control goes into the body.
pub(super) fn rm_control(rm: &mut Rm, back: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let header = rpc_gsp_rm_control_v03_00::read_from_prefix(body)
        .map(|(header, _)| header)
        .map_err(|_| Status::InvalidParamStruct)?;
    rm.counters.controls = rm.counters.controls.saturating_add(1);
    let outcome = usize::try_from(header.paramsSize)
        .ok()
        .and_then(|size| body.get_mut(size_of_val(&header)..)?.get_mut(..size))
        .ok_or(Status::InvalidParamStruct)
        .and_then(|parameters| carry_out(rm, back, &header, parameters));
    rm.ended(Call::Control(header.cmd), outcome);
    let answer = rpc_gsp_rm_control_v03_00 { status: code(outcome), ..header };
    answer.write_to_prefix(body).map_err(|_| Status::InvalidParamStruct)
}

fn carry_out(
    rm: &mut Rm,
    back: &dyn GspBackend,
    header: &rpc_gsp_rm_control_v03_00,
    parameters: &mut [u8],
) -> Result<(), Status> {
    let id = Id { client: header.hClient, handle: header.hObject };
    let kind = rm.objects.get(id)?.kind.of();
    let Some(known) = all().find(|known| known.number == header.cmd) else {
        rm.counters.controls_unknown = rm.counters.controls_unknown.saturating_add(1);
        rm.note(Note::UnknownControl(header.cmd));
        return Err(Status::NotSupported);
    };
    if known.object != kind {
        return Err(Status::NotSupported);
    }
    if known.size != parameters.len() {
        return Err(Status::InvalidParamStruct);
    }
    known.answer.give(rm, back, Target { id }, parameters)
}
