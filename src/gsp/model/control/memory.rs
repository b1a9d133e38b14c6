//! Page directories, memory kept over a suspend, and the memory system.

use crate::abi::status::Status;
use crate::abi::values::{MemorySystem, PageDirectory, SuspendMemory};
use crate::model::objects::{Id, Kind};
use crate::model::rm::Rm;
use crate::model::saved;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// A virtual GPU compresses nothing.
pub(super) const SYSTEM: MemorySystem =
    MemorySystem { stores_compression_bits: false, compresses_behind_l2: false };

/// Checks where a page directory is said to be.
fn check_directory(rm: &Rm, directory: PhysicalAddress) -> Result<(), Status> {
    let PhysicalAddress { aperture, address } = directory;
    if !address.is_multiple_of(PAGE_SIZE) {
        return Err(Status::InvalidAddress);
    }
    let inside = address.checked_add(PAGE_SIZE).is_some_and(|end| end <= rm.config.vram);
    if aperture == Aperture::Vram && !inside {
        return Err(Status::InvalidAddress);
    }
    Ok(())
}

/// Notes where the driver keeps the page tables of one of its address spaces.
pub(super) fn set_page_directory(rm: &mut Rm, id: Id, wanted: PageDirectory) -> Result<(), Status> {
    check_directory(rm, wanted.directory)?;
    let id = Id { handle: wanted.space, ..id };
    if !rm.objects.space(id)?.external {
        return Err(Status::InvalidArgument);
    }
    keep_directory(rm, id, wanted.directory)
}

/// Notes where an address space's page tables are.
pub(in super::super) fn keep_directory(
    rm: &mut Rm,
    id: Id,
    directory: PhysicalAddress,
) -> Result<(), Status> {
    check_directory(rm, directory)?;
    let space = rm.objects.space_mut(id)?;
    // Channels at the back have the directory that was there when they were made.
    if !space.channels.is_empty() && space.page_directory != Some(directory) {
        return Err(Status::StateInUse);
    }
    space.page_directory = Some(directory);
    Ok(())
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
