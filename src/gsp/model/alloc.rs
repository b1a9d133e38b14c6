//! Allocations: GSP_RM_ALLOC, and memory lists (ALLOC_MEMORY).

use crate::abi::common::calls::{AllocateRequest, MemoryListRequest};
use crate::abi::common::classes::{MEMORY_LISTS, NV01_ROOT};
use crate::abi::status::Status;
use crate::abi::table::Class;
use crate::abi::values::{ChannelParameters, Parameters};
use crate::model::channel;
use crate::model::counters::Call;
use crate::model::objects::{AddressSpace, Id, Kind, Type};
use crate::model::rm::Rm;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::Engine;

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub(super) id: Id,
    pub(super) parent: u32,
    pub(super) class: u32,
}

/// GSP_RM_ALLOC: the status of the allocation goes into the body, and the name of an object that came without
/// one.
///
/// Mesa's NVK allocates its copy class by the name 0.
pub(super) fn rm_alloc(rm: &mut Rm, back: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let request = AllocateRequest::read(body)?;
    let mut id = request.id;
    if id.handle == 0
        && let Ok(made_up) = rm.objects.free_name(id.client)
    {
        id.handle = made_up;
    }
    let wanted = Wanted { id, parent: request.parent, class: request.class };
    let outcome = request.parameters(body).and_then(|raw| {
        if wanted.class == NV01_ROOT {
            let fits = raw.is_empty() || raw.len() == rm.abi.client_parameters;
            return if fits { client(rm, id) } else { Err(Status::InvalidParamStruct) };
        }
        allocate(rm, back, wanted, |class| class.read(raw))
    });
    rm.ended(Call::Allocation(request.class), outcome);
    AllocateRequest::answer(body, if outcome.is_ok() { id.handle } else { request.id.handle }, outcome)
}

/// Makes an object that is no client, if the driver may have it. `parameters` is asked once it is clear that
/// there may be an object of that class there.
pub(super) fn allocate(
    rm: &mut Rm,
    back: &dyn GspBackend,
    wanted: Wanted,
    parameters: impl FnOnce(&Class) -> Result<Parameters, Status>,
) -> Result<(), Status> {
    if !rm.objects.has_client(wanted.id.client) {
        return Err(Status::InvalidClient);
    }
    let Some(class) = rm.abi.class(rm.config.hal.classes(), wanted.class) else {
        rm.unknown(Call::Allocation(wanted.class));
        return Err(Status::InvalidClass);
    };
    rm.objects.admit(wanted.id, wanted.parent, class.parents)?;
    let kind = make(rm, back, wanted, parameters(class)?)?;
    // Cannot fail for what was admitted, so nothing at the back is left without an object.
    rm.objects.add(wanted.id, wanted.parent, wanted.class, kind)
}

/// Makes a client: it is its own root, and has the same handle twice.
pub(super) fn client(rm: &mut Rm, id: Id) -> Result<(), Status> {
    if id.client != id.handle {
        return Err(Status::InvalidClient);
    }
    rm.objects.add_client(id.client)
}

fn make(rm: &mut Rm, back: &dyn GspBackend, wanted: Wanted, parameters: Parameters) -> Result<Kind, Status> {
    match parameters {
        Parameters::Device => Ok(Kind::Device),
        Parameters::Subdevice => Ok(Kind::Subdevice),
        Parameters::AddressSpace { external } => {
            Ok(Kind::AddressSpace(AddressSpace { external, ..AddressSpace::default() }))
        }
        Parameters::Channel(parameters) => gpfifo(rm, back, wanted, &parameters),
        Parameters::Copy(engine) => {
            let is_copy = |engine: &Engine| matches!(engine, Engine::Copy(_));
            engine_object(rm, back, wanted, engine.filter(is_copy).ok_or(Status::InvalidArgument)?)
        }
        Parameters::Graphics => engine_object(rm, back, wanted, Engine::Graphics),
        Parameters::Event { index } => Ok(Kind::Event { index }),
        Parameters::Display => Ok(Kind::Display),
    }
}

fn gpfifo(
    rm: &mut Rm,
    back: &dyn GspBackend,
    wanted: Wanted,
    parameters: &ChannelParameters,
) -> Result<Kind, Status> {
    let space = parameters.space;
    let space_id = Id { client: wanted.id.client, handle: space };
    let page_directory = rm.objects.space(space_id)?.page_directory;
    if rm.objects.parent(space_id)? != wanted.parent {
        return Err(Status::InvalidObjectHandle);
    }
    let checked = channel::check(&rm.config, parameters)?;
    if checked.runs() && page_directory.is_none() {
        return Err(Status::InvalidState);
    }
    let token = rm.channels.create(back, &rm.config, checked, page_directory)?;
    Ok(Kind::Channel { token, space })
}

fn engine_object(rm: &mut Rm, back: &dyn GspBackend, wanted: Wanted, engine: Engine) -> Result<Kind, Status> {
    let token = rm.objects.channel(Id { handle: wanted.parent, ..wanted.id })?;
    if !rm.config.engines.contains(engine.into()) || !rm.channels.has_engine(token, engine) {
        return Err(Status::InvalidClass);
    }
    rm.channels.create_object(back, token, wanted.class, engine)?;
    Ok(Kind::EngineObject { engine })
}

/// ALLOC_MEMORY: memory as a list of pages, which a driver makes for GSP to save VRAM in. Nothing is saved
/// there, so only the number of pages is kept.
pub(super) fn alloc_memory(rm: &mut Rm, body: &[u8]) -> Result<(), Status> {
    memory_list(rm, MemoryListRequest::read(body)?)
}

/// Makes a list of pages.
pub(super) fn memory_list(rm: &mut Rm, list: MemoryListRequest) -> Result<(), Status> {
    let MemoryListRequest { id, device, class, pages } = list;
    if !MEMORY_LISTS.contains(&class) {
        rm.unknown(Call::Allocation(class));
        return Err(Status::InvalidClass);
    }
    rm.objects.admit(id, device, &[Type::Device])?;
    rm.objects.add(id, device, class, Kind::Memory { pages })
}
