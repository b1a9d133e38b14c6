//! Controls of objects (GSP_RM_CONTROL): which there are is said by the version's tables, what they do here.

mod channels;
mod display;
mod engines;
mod memory;

pub(super) use memory::{set_page_directory, unset_page_directory};

use crate::abi::common::calls::ControlRequest;
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall};
use crate::abi::values::{Identity, Names};
use crate::model::counters::Call;
use crate::model::objects::Id;
use crate::model::rm::Rm;
use gpuvmk_backend::GspBackend;

/// GSP_RM_CONTROL: the status of the control goes into the body.
pub(super) fn rm_control(rm: &mut Rm, back: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let request = ControlRequest::read(body)?;
    rm.counters.controls = rm.counters.controls.saturating_add(1);
    let outcome = request.parameters(body).and_then(|parameters| carry_out(rm, back, &request, parameters));
    rm.ended(Call::Control(request.command), outcome);
    ControlRequest::answer(body, outcome)
}

fn carry_out(
    rm: &mut Rm,
    back: &dyn GspBackend,
    request: &ControlRequest,
    parameters: &mut [u8],
) -> Result<(), Status> {
    let kind = rm.objects.get(request.id)?.kind.of();
    let known = match rm.config.display() {
        Some(_) => rm.abi.control(request.command),
        None => rm.abi.displayless_control(request.command),
    };
    let Some(known) = known else {
        rm.counters.controls_unknown = rm.counters.controls_unknown.saturating_add(1);
        rm.unknown(Call::Control(request.command));
        return Err(Status::NotSupported);
    };
    if known.object != kind {
        return Err(Status::NotSupported);
    }
    if known.size != parameters.len() {
        return Err(Status::InvalidParamStruct);
    }
    match known.answer {
        Answer::Handler(call) => handle(rm, back, call, request.id, parameters),
        Answer::Constant(bytes) => {
            parameters.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            Ok(())
        }
        Answer::Zeroes => {
            parameters.fill(0);
            Ok(())
        }
        Answer::Acknowledged => Ok(()),
    }
}

/// Carries out what is sent to object `id`; `raw` becomes the answer.
fn handle(
    rm: &mut Rm,
    back: &dyn GspBackend,
    call: ControlCall,
    id: Id,
    raw: &mut [u8],
) -> Result<(), Status> {
    match call {
        ControlCall::ScheduleChannel(read) => channels::schedule(rm, back, id, read(raw)?),
        ControlCall::BindChannel(read) => channels::bind(rm, id, read(raw)?),
        ControlCall::WorkSubmitToken(write) => {
            write(&rm.objects.channel(id)?.doorbell(), raw);
            Ok(())
        }
        ControlCall::HoldChannels(read) => channels::hold(rm, back, read(raw)?),
        ControlCall::PromoteContext(read) => channels::promote_context(rm, read(raw)?),
        ControlCall::FaultOfChannel { read, write } => {
            let token = rm.objects.channel(Id { handle: read(raw)?, ..id })?;
            write(&rm.notifiers.fault(token), raw);
            Ok(())
        }
        ControlCall::SharedUtilization(read) => {
            rm.shared_data.set_record(read(raw)?);
            Ok(())
        }
        ControlCall::WantUtilization(read) => {
            rm.shared_data.want(read(raw)?);
            rm.shared_data.look(back, rm.now);
            Ok(())
        }
        ControlCall::GpcMask(write) => {
            write(&rm.config.graphics().gpc_mask(), raw);
            Ok(())
        }
        ControlCall::TpcMask { read, write } => {
            write(&engines::tpc_mask(rm, read(raw)?)?, raw);
            Ok(())
        }
        ControlCall::ContextBuffers(write) => {
            write(&engines::CONTEXT_BUFFER, raw);
            Ok(())
        }
        ControlCall::FaultMethodBuffer(write) => {
            write(&engines::FAULT_METHOD_BUFFER, raw);
            Ok(())
        }
        ControlCall::Devices { read, write } => {
            write(&engines::devices(rm, read(raw)?), raw);
            Ok(())
        }
        ControlCall::Interrupts(write) => {
            write(&engines::interrupts(rm), raw);
            Ok(())
        }
        ControlCall::SetNotification(read) if read(raw)? => Ok(()),
        ControlCall::SetNotification(_) => Err(Status::InvalidArgument),
        ControlCall::SetPageDirectory(read) => set_page_directory(rm, id, read(raw)?),
        ControlCall::UnsetPageDirectory(read) => unset_page_directory(rm, id, read(raw)?),
        ControlCall::CopyServerReservedPdes(read) => rm.keep_directory(id, read(raw)?),
        ControlCall::SuspendMemory(read) => memory::suspend_memory(rm, back, read(raw)?),
        ControlCall::SuspendRegion(read) => memory::suspend_region(rm, read(raw)?),
        ControlCall::RawCompression(read) if read(raw)? => Err(Status::NotSupported),
        ControlCall::RawCompression(_) => Ok(()),
        ControlCall::MemorySystem(write) => {
            write(&memory::system(rm), raw);
            Ok(())
        }
        ControlCall::ScheduleGroup(read) => channels::schedule_group(rm, back, id, read(raw)?),
        ControlCall::RunlistChannels(write) => {
            write(&rm.config.hal.channels_per_runlist.into(), raw);
            Ok(())
        }
        ControlCall::Identity(write) => {
            write(&Identity { pci: rm.config.pci, host: rm.host }, raw);
            Ok(())
        }
        ControlCall::Names(write) => {
            write(&Names { long: rm.config.hal.name, short: rm.config.hal.short_name }, raw);
            Ok(())
        }
        ControlCall::Uuid(fill) => fill(&rm.config.uuid, raw),
        ControlCall::Graphics(write) => {
            write(&engines::graphics(rm), raw);
            Ok(())
        }
        ControlCall::MemoryInfo(fill) => fill(&memory::info(rm), raw),
        ControlCall::Engines(fill) => fill(&rm.config.engines, raw),
        ControlCall::Display(call) => display::display(rm, call, raw),
        ControlCall::Computed(fill) => fill(raw),
    }
}
