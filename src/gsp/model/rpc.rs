//! RPC functions. The body of a request is the body of its answer: a function changes it in place.

use crate::abi::common::calls::{
    BarEntry, answer_free, free, has_registry, is_suspend, no_page_directory, page_directory,
};
use crate::abi::status::{Status, code};
use crate::abi::table::FunctionCall;
use crate::abi::{self, VERSIONS};
use crate::model::counters::Call;
use crate::model::effect::Effect;
use crate::model::message::Request;
use crate::model::rm::Rm;
use crate::model::{alloc, control, static_info};
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// Carries a request out. Returns the result for the answer's header, or `None` where no answer is wanted.
pub(super) fn dispatch(rm: &mut Rm, back: &dyn GspBackend, request: &mut Request) -> Option<u32> {
    rm.counters.rpcs = rm.counters.rpcs.saturating_add(1);
    let Some(known) = rm.abi.function(request.function) else {
        rm.counters.rpcs_unknown = rm.counters.rpcs_unknown.saturating_add(1);
        rm.unknown(Call::Function(request.function));
        return Some(Status::NotSupported.code());
    };
    let outcome = carry_out(rm, back, known.call, &mut request.body);
    rm.ended(Call::Function(known.number), outcome);
    known.is_answered.then(|| code(outcome))
}

fn carry_out(rm: &mut Rm, back: &dyn GspBackend, call: FunctionCall, body: &mut [u8]) -> Result<(), Status> {
    match call {
        FunctionCall::Control => control::rm_control(rm, back, body),
        FunctionCall::Allocate => alloc::rm_alloc(rm, back, body),
        FunctionCall::AllocateMemory => alloc::alloc_memory(rm, body),
        FunctionCall::Free => {
            let outcome = rm.free(back, free(body)?);
            answer_free(body, outcome)?;
            outcome
        }
        FunctionCall::Unload => unload(rm, back, is_suspend(body)?),
        FunctionCall::StaticInfo => {
            let info = static_info::of(rm);
            body.get_mut(..info.len()).ok_or(Status::InvalidParamStruct)?.copy_from_slice(&info);
            Ok(())
        }
        FunctionCall::UpdateBarPde => update_bar_pde(rm, back, BarEntry::read(body)?),
        FunctionCall::SystemInfo => set_system_info(rm, body),
        FunctionCall::Registry if has_registry(body)? => Ok(()),
        FunctionCall::Registry => Err(Status::InvalidParamStruct),
        FunctionCall::GuestSystemInfo => Ok(()),
        FunctionCall::Duplicate => alloc::duplicate(rm, body),
        FunctionCall::SetPageDirectory => {
            let (device, wanted) = page_directory(body)?;
            control::set_page_directory(rm, device, wanted)
        }
        FunctionCall::UnsetPageDirectory => {
            let (device, space) = no_page_directory(body)?;
            control::unset_page_directory(rm, device, space)
        }
    }
}

/// The first that a driver says. How long it is says which version the driver speaks, whichever was spoken
/// before. A longer one than any is taken as that of the usual version.
fn set_system_info(rm: &mut Rm, body: &[u8]) -> Result<(), Status> {
    let longer = VERSIONS.iter().all(|abi| abi.system_info < body.len()).then(abi::usual);
    match abi::of_system_info(body.len()).or(longer) {
        Some(abi) if std::ptr::eq(abi, rm.abi) => {
            rm.host = (abi.host)(body);
            Ok(())
        }
        // Present objects were allocated with another version's layouts.
        Some(_) if rm.has_objects_of_driver() => Err(Status::InvalidState),
        Some(abi) => {
            rm.host = (abi.host)(body);
            rm.speak(abi)
        }
        None => Err(Status::InvalidParamStruct),
    }
}

fn update_bar_pde(rm: &mut Rm, back: &dyn GspBackend, update: BarEntry) -> Result<(), Status> {
    // An entry of the root directory, which says how much it covers.
    if update.shift != u64::from(rm.config.hal.mmu.root().shift()) {
        return Err(Status::InvalidArgument);
    }
    if update.bar == 1 {
        // Real firmware writes its own table; the driver may as well do so.
        let address = rm.config.bar1_root();
        let root = PhysicalAddress { aperture: Aperture::Vram, address };
        return back.write_memory(root, &update.entry.to_le_bytes()).map_err(|_| Status::InvalidAddress);
    }
    rm.bar2_entry = update.entry;
    rm.effects.push(Effect::Bar2Root(update.entry));
    Ok(())
}

fn unload(rm: &mut Rm, back: &dyn GspBackend, suspend: bool) -> Result<(), Status> {
    if suspend && !rm.abi.suspends {
        return Err(Status::NotSupported);
    }
    if suspend {
        // nouveau has done so already. A back that cannot hold channels back is gone, and runs nothing.
        let _ = rm.channels.hold(back, true);
    } else {
        rm.clear(back);
    }
    rm.effects.push(Effect::Halted { suspend });
    Ok(())
}
