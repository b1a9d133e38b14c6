//! Page directories, memory kept over a suspend, and the memory system.

use crate::abi::status::Status;
use crate::abi::values::{MemoryInfo, MemorySystem, PageDirectory, SuspendMemory, SuspendRegion};
use crate::model::objects::{Id, Kind};
use crate::model::rm::Rm;
use crate::model::{saved, static_info};
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::addr::PAGE_SIZE;

/// A virtual GPU compresses nothing.
pub(super) fn system(rm: &Rm) -> MemorySystem {
    MemorySystem { stores_compression_bits: false, compresses_behind_l2: false, units: rm.config.hal.memory }
}

/// VRAM, for a driver that shows what it is like.
pub(super) fn info(rm: &Rm) -> MemoryInfo {
    let vram = rm.config.vram;
    MemoryInfo { vram, usable: static_info::usable(vram), units: rm.config.hal.memory }
}

/// The place of an address space of a device, by its name; 0: the one that the device has of itself.
fn place(rm: &Rm, device: Id, space: u32) -> Result<Id, Status> {
    match space {
        0 => rm.objects.space(device).map(|_| device),
        handle => rm.objects.place_of_space(Id { handle, ..device }),
    }
}

/// Notes where the driver keeps the page tables of one of its address spaces.
pub(in super::super) fn set_page_directory(
    rm: &mut Rm,
    device: Id,
    wanted: PageDirectory,
) -> Result<(), Status> {
    rm.check_directory(wanted.directory)?;
    let place = place(rm, device, wanted.space)?;
    if !rm.objects.space(place)?.external {
        return Err(Status::InvalidArgument);
    }
    rm.keep_directory_at(place, wanted.directory)
}

/// Forgets where they are, unless a channel uses them.
pub(in super::super) fn unset_page_directory(rm: &mut Rm, device: Id, space: u32) -> Result<(), Status> {
    let place = place(rm, device, space)?;
    let space = rm.objects.space_mut(place)?;
    if space.channels.is_empty() {
        space.page_directory = None;
    }
    Ok(())
}

/// Notes where what a suspension keeps goes. GSP uses no VRAM that a driver does not save itself; objects and
/// channels go into the memory that is described.
pub(super) fn suspend_memory(
    rm: &mut Rm,
    back: &dyn GspBackend,
    wanted: SuspendMemory,
) -> Result<(), Status> {
    match rm.objects.get(Id { client: wanted.client, handle: wanted.list })?.kind {
        Kind::Memory { .. } => {}
        _ => return Err(Status::InvalidObject),
    }
    if wanted.description == 0 {
        rm.saved_at = None;
        return Ok(());
    }
    saved::check_room(rm, back, wanted.description).map_err(|error| rm.not_saved(error))?;
    rm.saved_at = Some(wanted.description);
    Ok(())
}

/// A piece of VRAM that a suspension keeps.
pub(super) fn suspend_region(rm: &Rm, region: SuspendRegion) -> Result<(), Status> {
    let Kind::Memory { pages } = rm.objects.get(Id { client: region.client, handle: region.list })?.kind
    else {
        return Err(Status::InvalidObject);
    };
    let end = region.from.checked_add(region.size);
    if end.is_none_or(|end| end > u64::from(pages).saturating_mul(PAGE_SIZE)) {
        return Err(Status::InvalidLimit);
    }
    Ok(())
}
