//! Allocations: GSP_RM_ALLOC, and memory lists (ALLOC_MEMORY).

use crate::abi::common::calls::{AllocateRequest, DuplicateRequest, MemoryListRequest};
use crate::abi::common::classes::{MEMORY_LISTS, NV01_ROOT};
use crate::abi::status::Status;
use crate::abi::table::Class;
use crate::abi::values::{AddressSpaceParameters, ChannelParameters, Parameters};
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
    if id.handle == 0 && request.class == NV01_ROOT {
        // NVIDIA's own driver names a client once.
        id.handle = id.client;
    }
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
    AllocateRequest::answer(body, if outcome.is_ok() { id.handle } else { request.id.handle }, outcome)?;
    if rm.abi.result_is_status { outcome } else { Ok(()) }
}

/// DUP_OBJECT: one more name of an object, for another client.
pub(super) fn duplicate(rm: &mut Rm, body: &mut [u8]) -> Result<(), Status> {
    let request = DuplicateRequest::read(body)?;
    let mut id = request.id;
    if id.handle == 0
        && let Ok(made_up) = rm.objects.free_name(id.client)
    {
        id.handle = made_up;
    }
    let outcome = name_again(rm, id, request.parent, request.source);
    DuplicateRequest::answer(body, if outcome.is_ok() { id.handle } else { request.id.handle }, outcome)?;
    outcome
}

fn name_again(rm: &mut Rm, id: Id, parent: u32, source: Id) -> Result<(), Status> {
    let object = rm.objects.get(source)?;
    let (class, own) = (object.class, object.kind.of());
    let of = match object.kind {
        Kind::Duplicate { of, .. } => of,
        _ => source,
    };
    if !own.is_shared() {
        return Err(Status::NotSupported);
    }
    let (_, parents) = rm.abi.place_of(&rm.config.classes(), class).ok_or(Status::InvalidClass)?;
    rm.objects.admit(id, parent, parents)?;
    rm.objects.add(id, parent, class, Kind::Duplicate { of, own })
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
    let Some(class) = rm.abi.class(&rm.config.classes(), wanted.class) else {
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
        Parameters::AddressSpace(AddressSpaceParameters { external, of_device }) => {
            Ok(Kind::AddressSpace(AddressSpace { external, of_device, ..AddressSpace::default() }))
        }
        Parameters::Channel(parameters) => gpfifo(rm, back, wanted, &parameters),
        Parameters::Copy(engine) => {
            let is_copy = |engine: &Engine| matches!(engine, Engine::Copy(_));
            engine_object(rm, back, wanted, engine.filter(is_copy).ok_or(Status::InvalidArgument)?)
        }
        Parameters::Graphics => engine_object(rm, back, wanted, Engine::Graphics),
        Parameters::Event { index } => Ok(Kind::Event { index }),
        Parameters::Display => Ok(Kind::Display),
        Parameters::DisplayChannel(parameters) => {
            rm.display.open(&rm.config, wanted.class, parameters).map(|name| Kind::DisplayChannel { name })
        }
        Parameters::ChannelGroup { space, engine } => {
            group(rm, wanted, space).map(|()| Kind::ChannelGroup { space, engine })
        }

        Parameters::ContextShare { space } => share(rm, wanted, space).map(|()| Kind::ContextShare { space }),
        Parameters::Plain(own) => Ok(Kind::Plain(own)),
    }
}

fn gpfifo(
    rm: &mut Rm,
    back: &dyn GspBackend,
    wanted: Wanted,
    parameters: &ChannelParameters,
) -> Result<Kind, Status> {
    let (space, place) = space_of(rm, wanted, parameters)?;
    let page_directory = rm.objects.space(place)?.page_directory;
    let mut asked = *parameters;
    if parameters.inherits_engine
        && let Kind::ChannelGroup { engine, .. } =
            rm.objects.get(Id { handle: wanted.parent, ..wanted.id })?.kind
    {
        asked.engine = engine;
    }
    let checked = channel::check(&rm.config, &asked)?;
    if checked.runs() && page_directory.is_none() {
        return Err(Status::InvalidState);
    }
    if parameters.clears_userd {
        checked.clear_userd(back)?;
    }
    let begun = checked.begun(wanted.id, space);
    if begun.is_some() && !rm.kernel_channels.has_room() {
        return Err(Status::NoFreeFifos);
    }
    let named = |handle| Id { client: wanted.id.client, handle };
    let parent = named(wanted.parent);
    let context = match rm.objects.get(parent)?.kind {
        Kind::ChannelGroup { .. } if parameters.share == 0 => Some(parent),
        Kind::ChannelGroup { .. } => Some(named(parameters.share)),
        _ => None,
    };
    let token = rm.channels.create(back, &rm.config, (checked, context), page_directory)?;
    if let Some(notifier) = parameters.notifier {
        rm.notifiers.set(token, notifier);
    }
    if let Some(begun) = begun {
        rm.kernel_channels.begin(token, begun);
    }
    Ok(Kind::Channel { token, space })
}

/// The handle of a channel's address space, 0 for that of its device, and the place of it.
fn space_of(rm: &Rm, wanted: Wanted, parameters: &ChannelParameters) -> Result<(u32, Id), Status> {
    let named = |handle| Id { client: wanted.id.client, handle };
    let device = named(rm.objects.device_of(named(wanted.parent))?);
    let handle = if parameters.inherits {
        let share = match parameters.share {
            0 => 0,
            share => rm.objects.space_of_share(named(share), wanted.parent)?,
        };
        let group = match rm.objects.get(named(wanted.parent))?.kind {
            Kind::ChannelGroup { space, .. } => space,
            _ => 0,
        };
        [parameters.space, share, group].into_iter().find(|handle| *handle != 0)
    } else {
        Some(parameters.space)
    };
    let Some(handle) = handle else { return Ok((0, device)) };
    let place = rm.objects.place_of_space(named(handle))?;
    if place == device {
        return Ok((0, device));
    }
    let is_own = place == named(handle) && rm.objects.parent(place)? == device.handle;
    // Another client's can change while the back has the channel.
    if is_own || parameters.is_drivers_own { Ok((handle, place)) } else { Err(Status::InvalidObjectHandle) }
}

/// Checks the address space of a group of channels: none, or one of the same device.
fn group(rm: &Rm, wanted: Wanted, space: u32) -> Result<(), Status> {
    let named = Id { client: wanted.id.client, handle: space };
    match space {
        0 => Ok(()),
        _ if rm.objects.parent(named) == Ok(wanted.parent) => rm.objects.place_of_space(named).map(drop),
        _ => Err(Status::InvalidObjectHandle),
    }
}

/// Checks the address space of a share of a group's contexts.
fn share(rm: &Rm, wanted: Wanted, space: u32) -> Result<(), Status> {
    let named = |handle| Id { client: wanted.id.client, handle };
    // What another client's group is named by has no contexts to share out.
    match rm.objects.get(named(wanted.parent))?.kind {
        Kind::ChannelGroup { .. } if space == 0 => Ok(()),
        Kind::ChannelGroup { .. } => rm.objects.place_of_space(named(space)).map(drop),
        _ => Err(Status::InvalidObjectParent),
    }
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
