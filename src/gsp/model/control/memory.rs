//! Page directories, memory kept over a suspend, and the memory system.

use crate::abi::status::Status;
use crate::abi::values::{MemorySystem, PageDirectory, SuspendMemory, SuspendRegion};
use crate::model::objects::{Id, Kind};
use crate::model::rm::Rm;
use crate::model::saved;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::addr::PAGE_SIZE;

/// A virtual GPU compresses nothing.
pub(super) const SYSTEM: MemorySystem =
    MemorySystem { stores_compression_bits: false, compresses_behind_l2: false };

/// Notes where the driver keeps the page tables of one of its address spaces.
pub(super) fn set_page_directory(rm: &mut Rm, id: Id, wanted: PageDirectory) -> Result<(), Status> {
    rm.check_directory(wanted.directory)?;
    let id = Id { handle: wanted.space, ..id };
    if !rm.objects.space(id)?.external {
        return Err(Status::InvalidArgument);
    }
    rm.keep_directory(id, wanted.directory)
}

/// Forgets where they are, unless a channel uses them.
pub(super) fn unset_page_directory(rm: &mut Rm, id: Id) -> Result<(), Status> {
    let space = rm.objects.space_mut(id)?;
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
