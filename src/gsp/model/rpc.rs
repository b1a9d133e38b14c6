//! RPC functions, by table. The body of a request is the body of its answer: a function changes it in place.

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::rpc::{
    GSP_SYSTEM_INFO_SIZE, NV_RPC_UPDATE_PDE_BAR_1, NV_RPC_UPDATE_PDE_BAR_2,
    NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, NV_VGPU_MSG_FUNCTION_FREE, NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO,
    NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL,
    NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, NV_VGPU_MSG_FUNCTION_SET_REGISTRY,
    NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE,
    NVOS00_PARAMETERS_v03_00, PACKED_REGISTRY_TABLE, rpc_unloading_guest_driver_v1F_07,
    rpc_update_bar_pde_v15_00,
};
use crate::abi::status::{Status, code};
use crate::model::answers::Source;
use crate::model::counters::{Call, Note};
use crate::model::message::Request;
use crate::model::objects::Id;
use crate::model::rm::Rm;
use crate::model::{Effect, Gsp, alloc, control, static_info};
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// VA bits that one entry of a BAR's top page table covers on this chip.
const BAR_PDE_SHIFT: u64 = 56;

/// Whether the driver waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    Wanted,
    NotRead,
}

/// A function.
pub(super) struct Function {
    /// Number.
    pub(super) number: u32,
    /// NVIDIA's name.
    pub(super) name: &'static str,
    reply: Reply,
    handler: fn(&mut Rm, &dyn GspBackend, &mut [u8]) -> Result<(), Status>,
    /// What it does, in a sentence.
    pub(super) doc: &'static str,
}

impl Function {
    /// How it is answered, for the document.
    pub(super) const fn answer(&self) -> &'static str {
        match self.reply {
            Reply::Wanted => "handler",
            Reply::NotRead => "handler, no reply",
        }
    }
}

/// Where functions are known from.
pub(super) const SOURCE: Source =
    "open-gpu-kernel-modules rpc_global_enums.h, g_rpc-structures.h; nouveau gsp/rm/r535/rpc.c";

macro_rules! functions {
    ($($(#[doc = $doc:literal])+ $name:ident, $reply:ident => $handler:expr;)+) => {
        /// Every function that is known.
        pub(super) static FUNCTIONS: &[Function] = &[$(Function {
            number: $name,
            name: stringify!($name),
            reply: Reply::$reply,
            handler: $handler,
            doc: concat!($($doc),+),
        },)+];
    };
}

functions! {
    /// A control of an object; see below.
    NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL, Wanted => control::rm_control;
    /// Makes an object of a class; see below.
    NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC, Wanted => alloc::rm_alloc;
    /// Frees an object and what is below it.
    NV_VGPU_MSG_FUNCTION_FREE, Wanted => free;
    /// Makes an object of a list of pages.
    NV_VGPU_MSG_FUNCTION_ALLOC_MEMORY, Wanted => alloc::alloc_memory;
    /// The driver leaves. In a suspend it comes back, and finds its objects as they were.
    NV_VGPU_MSG_FUNCTION_UNLOADING_GUEST_DRIVER, Wanted => unloading;
    /// What the GPU is: name, memory, BARs' page tables, firmware's own objects.
    NV_VGPU_MSG_FUNCTION_GET_GSP_STATIC_INFO, Wanted => get_static_info;
    /// The top entry of a BAR's page tables.
    NV_VGPU_MSG_FUNCTION_UPDATE_BAR_PDE, Wanted => update_bar_pde;
    /// What the driver knows of the host: nothing of it changes what a virtual GPU does.
    NV_VGPU_MSG_FUNCTION_GSP_SET_SYSTEM_INFO, NotRead => set_system_info;
    /// Registry keys, which tune real firmware; there is nothing to tune.
    NV_VGPU_MSG_FUNCTION_SET_REGISTRY, NotRead => set_registry;
}

/// Carries a request out. Returns the result for the answer's header, or `None` where no answer is wanted.
pub(super) fn dispatch(rm: &mut Rm, back: &dyn GspBackend, request: &mut Request) -> Option<u32> {
    rm.counters.rpcs = rm.counters.rpcs.saturating_add(1);
    let Some(known) = FUNCTIONS.iter().find(|known| known.number == request.function) else {
        rm.counters.rpcs_unknown = rm.counters.rpcs_unknown.saturating_add(1);
        rm.note(Note::UnknownFunction(request.function));
        return Some(Status::NotSupported.code());
    };
    let outcome = (known.handler)(rm, back, &mut request.body);
    rm.ended(Call::Function(known.number), outcome);
    (known.reply == Reply::Wanted).then(|| code(outcome))
}

fn set_system_info(_: &mut Rm, _: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    if body.len() < GSP_SYSTEM_INFO_SIZE { Err(Status::InvalidParamStruct) } else { Ok(()) }
}

fn set_registry(_: &mut Rm, _: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let (table, _) = PACKED_REGISTRY_TABLE::read_from_prefix(body).map_err(|_| Status::InvalidParamStruct)?;
    let fits = usize::try_from(table.size).is_ok_and(|size| size <= body.len());
    if fits { Ok(()) } else { Err(Status::InvalidParamStruct) }
}

fn get_static_info(rm: &mut Rm, _: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let info = static_info::with_info(&rm.config, |info| rm.firmware.static_info(info));
    body.get_mut(..info.len()).ok_or(Status::InvalidParamStruct)?.copy_from_slice(&info);
    Ok(())
}

fn update_bar_pde(rm: &mut Rm, back: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let (update, _) =
        rpc_update_bar_pde_v15_00::read_from_prefix(body).map_err(|_| Status::InvalidParamStruct)?;
    if update.entryLevelShift != BAR_PDE_SHIFT {
        return Err(Status::InvalidArgument);
    }
    match update.barType {
        NV_RPC_UPDATE_PDE_BAR_1 => {
            // Real firmware writes its own table; the driver may as well do so.
            let address = Gsp::bar1_root_of(&rm.config);
            back.write_memory(
                PhysicalAddress { aperture: Aperture::Vram, address },
                &update.entryValue.to_le_bytes(),
            )
            .map_err(|_| Status::InvalidAddress)
        }
        NV_RPC_UPDATE_PDE_BAR_2 => {
            rm.bar2_entry = update.entryValue;
            rm.effects.push(Effect::Bar2Root(update.entryValue));
            Ok(())
        }
        _ => Err(Status::InvalidArgument),
    }
}

fn free(rm: &mut Rm, back: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let (parameters, _) =
        NVOS00_PARAMETERS_v03_00::read_from_prefix(body).map_err(|_| Status::InvalidParamStruct)?;
    let outcome = rm.free(back, Id { client: parameters.hRoot, handle: parameters.hObjectOld });
    let answer = NVOS00_PARAMETERS_v03_00 { status: code(outcome), ..parameters };
    answer.write_to_prefix(body).map_err(|_| Status::InvalidParamStruct)?;
    outcome
}

fn unloading(rm: &mut Rm, back: &dyn GspBackend, body: &mut [u8]) -> Result<(), Status> {
    let (parameters, _) =
        rpc_unloading_guest_driver_v1F_07::read_from_prefix(body).map_err(|_| Status::InvalidParamStruct)?;
    let suspend = parameters.bInPMTransition != 0;
    if suspend {
        // nouveau has done so already. A back that cannot hold channels back is gone, and runs nothing.
        let _ = rm.channels.hold(back, true);
    } else {
        rm.clear(back);
    }
    rm.effects.push(Effect::Halted { suspend });
    Ok(())
}
