//! Allocations: GSP_RM_ALLOC by a table of classes, and memory lists (ALLOC_MEMORY).

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::object::{
    FERMI_TWOD_A, FERMI_VASPACE_A, HOPPER_A, HOPPER_CHANNEL_GPFIFO_A, HOPPER_COMPUTE_A, HOPPER_DMA_COPY_A,
    KEPLER_INLINE_TO_MEMORY_B, NV_CHANNEL_ALLOC_PARAMS, NV_GR_ALLOCATION_PARAMETERS_SIZE,
    NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED, NV_VASPACE_ALLOCATION_PARAMETERS,
    NV0000_ALLOC_PARAMETERS_SIZE, NV01_DEVICE_0, NV01_EVENT, NV01_EVENT_KERNEL_CALLBACK,
    NV01_EVENT_KERNEL_CALLBACK_EX, NV01_EVENT_OS_EVENT, NV01_MEMORY_LIST_FBMEM, NV01_MEMORY_LIST_SYSTEM,
    NV01_ROOT, NV0005_ALLOC_PARAMETERS, NV20_SUBDEVICE_0, NV0080_ALLOC_PARAMETERS_SIZE,
    NV2080_ALLOC_PARAMETERS_SIZE, NVC0B5_ALLOCATION_PARAMETERS,
};
use crate::abi::rpc::{rpc_alloc_memory_v13_01, rpc_gsp_rm_alloc_v03_00};
use crate::abi::status::{Status, code};
use crate::model::answers::Source;
use crate::model::counters::{Call, Note};
use crate::model::objects::{AddressSpace, Id, Kind, Type};
use crate::model::rm::Rm;
use crate::model::{channel, engines};
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::Engine;

/// What is asked for.
pub(super) struct Wanted<'a> {
    pub(super) id: Id,
    pub(super) parent: u32,
    pub(super) class: u32,
    pub(super) parameters: &'a [u8],
}

/// A class.
pub(super) struct Class {
    /// Number.
    pub(super) number: u32,
    /// NVIDIA's name.
    pub(super) name: &'static str,
    /// What it can be below.
    pub(super) parents: &'static [Type],
    /// Bytes of its parameters.
    pub(super) size: usize,
    /// Whether it can be had without parameters.
    pub(super) parameters: Parameters,
    make: fn(&mut Rm, &dyn GspBackend, &Wanted<'_>) -> Result<Kind, Status>,
    /// What it is, in a sentence.
    pub(super) doc: &'static str,
}

/// Whether an object of a class can be had without parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameters {
    Needed,
    Optional,
}

/// Where classes are known from.
pub(super) const SOURCE: Source = "open-gpu-kernel-modules sdk/nvidia/inc/class, nvos.h; nouveau gsp/rm/r535";

/// What events can be below.
const EVENT_SOURCES: &[Type] =
    &[Type::Client, Type::Device, Type::Subdevice, Type::AddressSpace, Type::Channel, Type::EngineObject];

macro_rules! classes {
    ($($(#[doc = $doc:literal])+ $name:ident below $parents:expr, $size:expr, $parameters:ident => $make:expr;)+) => {
        /// Every class that is known but [`NV01_ROOT`], which is below nothing.
        pub(super) static CLASSES: &[Class] = &[$(Class {
            number: $name,
            name: stringify!($name),
            parents: $parents,
            size: $size,
            parameters: Parameters::$parameters,
            make: $make,
            doc: concat!($($doc),+),
        },)+];
    };
}

classes! {
    /// The GPU for a client.
    NV01_DEVICE_0 below &[Type::Client], NV0080_ALLOC_PARAMETERS_SIZE, Needed => |_, _, _| Ok(Kind::Device);
    /// One GPU of a device; there is one.
    NV20_SUBDEVICE_0 below &[Type::Device], NV2080_ALLOC_PARAMETERS_SIZE, Optional
        => |_, _, _| Ok(Kind::Subdevice);
    /// An address space.
    FERMI_VASPACE_A below &[Type::Device], size_of::<NV_VASPACE_ALLOCATION_PARAMETERS>(), Needed
        => address_space;
    /// A channel.
    HOPPER_CHANNEL_GPFIFO_A below &[Type::Device], size_of::<NV_CHANNEL_ALLOC_PARAMS>(), Needed => gpfifo;
    /// A copy engine's object; its parameters name the engine, in one of two numberings.
    HOPPER_DMA_COPY_A below &[Type::Channel], size_of::<NVC0B5_ALLOCATION_PARAMETERS>(), Needed => copy;
    /// Compute. Parameters of graphics classes carry nothing to check.
    HOPPER_COMPUTE_A below &[Type::Channel], NV_GR_ALLOCATION_PARAMETERS_SIZE, Optional => graphics;
    /// 3D.
    HOPPER_A below &[Type::Channel], NV_GR_ALLOCATION_PARAMETERS_SIZE, Optional => graphics;
    /// 2D.
    FERMI_TWOD_A below &[Type::Channel], NV_GR_ALLOCATION_PARAMETERS_SIZE, Optional => graphics;
    /// Inline data to memory.
    KEPLER_INLINE_TO_MEMORY_B below &[Type::Channel], NV_GR_ALLOCATION_PARAMETERS_SIZE, Optional => graphics;
    /// An event.
    NV01_EVENT below EVENT_SOURCES, size_of::<NV0005_ALLOC_PARAMETERS>(), Needed => event;
    /// An event that calls a function of the driver's kernel part.
    NV01_EVENT_KERNEL_CALLBACK below EVENT_SOURCES, size_of::<NV0005_ALLOC_PARAMETERS>(), Needed => event;
    /// An event for a process.
    NV01_EVENT_OS_EVENT below EVENT_SOURCES, size_of::<NV0005_ALLOC_PARAMETERS>(), Needed => event;
    /// An event that calls a function of the driver's kernel part.
    NV01_EVENT_KERNEL_CALLBACK_EX below EVENT_SOURCES, size_of::<NV0005_ALLOC_PARAMETERS>(), Needed => event;
}

/// GSP_RM_ALLOC: the status of the allocation goes into the body, and the name of an object that came without
/// one.
///
/// Mesa's NVK allocates its copy class by the name 0.
pub(super) fn rm_alloc(rm: &mut Rm, back: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let (header, parameters) =
        rpc_gsp_rm_alloc_v03_00::read_from_prefix(body).map_err(|_| Status::InvalidParamStruct)?;
    let mut name = header.hObject;
    if name == 0
        && let Ok(made_up) = rm.objects.free_name(header.hClient)
    {
        name = made_up;
    }
    let outcome = usize::try_from(header.paramsSize)
        .ok()
        .and_then(|size| parameters.get(..size))
        .ok_or(Status::InvalidParamStruct)
        .and_then(|parameters| {
            let id = Id { client: header.hClient, handle: name };
            let wanted = Wanted { id, parent: header.hParent, class: header.hClass, parameters };
            allocate(rm, back, &wanted)
        });
    rm.ended(Call::Allocation(header.hClass), outcome);
    let made = if outcome.is_ok() { name } else { header.hObject };
    let answer = rpc_gsp_rm_alloc_v03_00 { status: code(outcome), hObject: made, ..header };
    answer.write_to_prefix(body).map_err(|_| Status::InvalidParamStruct)
}

/// What an object of a class is, and what it can be below.
pub(super) fn place_of(class: u32) -> Option<(Type, &'static [Type])> {
    if [NV01_MEMORY_LIST_SYSTEM, NV01_MEMORY_LIST_FBMEM].contains(&class) {
        return Some((Type::Memory, &[Type::Device]));
    }
    let own = match class {
        NV01_DEVICE_0 => Type::Device,
        NV20_SUBDEVICE_0 => Type::Subdevice,
        FERMI_VASPACE_A => Type::AddressSpace,
        HOPPER_CHANNEL_GPFIFO_A => Type::Channel,
        NV01_EVENT | NV01_EVENT_KERNEL_CALLBACK | NV01_EVENT_OS_EVENT | NV01_EVENT_KERNEL_CALLBACK_EX => {
            Type::Event
        }
        _ => Type::EngineObject,
    };
    CLASSES.iter().find(|known| known.number == class).map(|known| (own, known.parents))
}

/// Makes an object, if the driver may have it.
pub(super) fn allocate(rm: &mut Rm, back: &dyn GspBackend, wanted: &Wanted<'_>) -> Result<(), Status> {
    if wanted.class == NV01_ROOT {
        return root(rm, wanted);
    }
    if !rm.objects.has_client(wanted.id.client) {
        return Err(Status::InvalidClient);
    }
    let Some(class) = CLASSES.iter().find(|class| class.number == wanted.class) else {
        rm.note(Note::UnknownClass(wanted.class));
        return Err(Status::InvalidClass);
    };
    rm.objects.admit(wanted.id, wanted.parent, class.parents)?;
    if wanted.parameters.len() != class.size
        && !(class.parameters == Parameters::Optional && wanted.parameters.is_empty())
    {
        return Err(Status::InvalidParamStruct);
    }
    let kind = (class.make)(rm, back, wanted)?;
    // Cannot fail for what was admitted, so nothing at the back is left without an object.
    rm.objects.add(wanted.id, wanted.parent, wanted.class, kind)
}

/// A client: it is its own root, and has the same handle twice.
fn root(rm: &mut Rm, wanted: &Wanted<'_>) -> Result<(), Status> {
    if wanted.id.client != wanted.id.handle {
        return Err(Status::InvalidClient);
    }
    if wanted.parameters.len() != NV0000_ALLOC_PARAMETERS_SIZE && !wanted.parameters.is_empty() {
        return Err(Status::InvalidParamStruct);
    }
    rm.objects.add_client(wanted.id.client)
}

fn read<T: FromBytes>(parameters: &[u8]) -> Result<T, Status> {
    T::read_from_bytes(parameters).map_err(|_| Status::InvalidParamStruct)
}

fn address_space(_: &mut Rm, _: &dyn GspBackend, wanted: &Wanted<'_>) -> Result<Kind, Status> {
    let parameters: NV_VASPACE_ALLOCATION_PARAMETERS = read(wanted.parameters)?;
    let external = parameters.flags & NV_VASPACE_ALLOCATION_FLAGS_IS_EXTERNALLY_OWNED != 0;
    Ok(Kind::AddressSpace(AddressSpace { external, ..AddressSpace::default() }))
}

fn gpfifo(rm: &mut Rm, back: &dyn GspBackend, wanted: &Wanted<'_>) -> Result<Kind, Status> {
    let parameters: NV_CHANNEL_ALLOC_PARAMS = read(wanted.parameters)?;
    let space = parameters.hVASpace;
    let space_id = Id { client: wanted.id.client, handle: space };
    let page_directory = rm.objects.space(space_id)?.page_directory;
    if rm.objects.parent(space_id)? != wanted.parent {
        return Err(Status::InvalidObjectHandle);
    }
    let checked = channel::check(&rm.config, &parameters)?;
    if checked.runs() && page_directory.is_none() {
        return Err(Status::InvalidState);
    }
    let token = rm.channels.create(back, rm.config.channels, checked, page_directory)?;
    Ok(Kind::Channel { token, space })
}

/// An object of a graphics class.
fn graphics(rm: &mut Rm, back: &dyn GspBackend, wanted: &Wanted<'_>) -> Result<Kind, Status> {
    engine_object(rm, back, wanted, Engine::Graphics)
}

fn copy(rm: &mut Rm, back: &dyn GspBackend, wanted: &Wanted<'_>) -> Result<Kind, Status> {
    let parameters: NVC0B5_ALLOCATION_PARAMETERS = read(wanted.parameters)?;
    let engine = match parameters.version {
        0 => u8::try_from(parameters.engineType).ok().map(Engine::Copy),
        1 => engines::of_type(parameters.engineType),
        _ => None,
    };
    // A number beyond those that there are makes no set.
    let is_copy = |engine: &Engine| matches!(engine, Engine::Copy(_)) && Engine::ALL.contains(engine);
    let engine = engine.filter(is_copy).ok_or(Status::InvalidArgument)?;
    engine_object(rm, back, wanted, engine)
}

fn engine_object(
    rm: &mut Rm,
    back: &dyn GspBackend,
    wanted: &Wanted<'_>,
    engine: Engine,
) -> Result<Kind, Status> {
    let token = rm.objects.channel(Id { handle: wanted.parent, ..wanted.id })?;
    if !rm.config.engines.contains(engine.into()) || !rm.channels.has_engine(token, engine) {
        return Err(Status::InvalidClass);
    }
    rm.channels.create_object(back, token, wanted.class, engine)?;
    Ok(Kind::EngineObject { engine })
}

fn event(_: &mut Rm, _: &dyn GspBackend, wanted: &Wanted<'_>) -> Result<Kind, Status> {
    let parameters: NV0005_ALLOC_PARAMETERS = read(wanted.parameters)?;
    Ok(Kind::Event { index: parameters.notifyIndex })
}

/// ALLOC_MEMORY: memory as a list of pages, which a driver makes for GSP to save VRAM in. Nothing is saved
/// there, so only the number of pages is kept.
pub(super) fn alloc_memory(rm: &mut Rm, _: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let (list, entries) =
        rpc_alloc_memory_v13_01::read_from_prefix(body).map_err(|_| Status::InvalidParamStruct)?;
    let whole = usize::try_from(list.entries())
        .ok()
        .and_then(|count| count.checked_mul(8))
        .is_some_and(|bytes| bytes <= entries.len());
    if !whole || list.pageCount != list.entries() {
        return Err(Status::InvalidParamStruct);
    }
    let id = Id { client: list.hClient, handle: list.hMemory };
    memory_list(rm, id, list.hDevice, list.hClass, list.pageCount)
}

/// Makes a list of pages.
pub(super) fn memory_list(rm: &mut Rm, id: Id, device: u32, class: u32, pages: u32) -> Result<(), Status> {
    if class != NV01_MEMORY_LIST_SYSTEM && class != NV01_MEMORY_LIST_FBMEM {
        rm.note(Note::UnknownClass(class));
        return Err(Status::InvalidClass);
    }
    rm.objects.admit(id, device, &[Type::Device])?;
    rm.objects.add(id, device, class, Kind::Memory { pages })
}
