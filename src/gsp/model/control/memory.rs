//! Controls about page directories, and about memory kept over a suspend.

use super::Target;
use crate::abi::control::{
    NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY,
    NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS, NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS,
    NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES, NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS,
    NV2080_CTRL_CMD_INTERNAL_FBSR_INIT, NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS, parameters,
};
use crate::abi::status::Status;
use crate::model::answers::{Answer, controls};
use crate::model::objects::{Id, Kind};
use crate::model::rm::Rm;
use crate::model::saved;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::{Aperture, PhysicalAddress};

controls! {
    source "open-gpu-kernel-modules ctrl0080dma.h, ctrl90f1.h; nouveau gsp/rm/r535/vmm.c";
    /// Says where the page tables of an address space are that the driver keeps itself.
    NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY on Device, size_of::<NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS>()
        => Answer::Handler(set_page_directory);
    /// Takes that back.
    NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY on Device,
        size_of::<NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS>() => Answer::Handler(unset_page_directory);
    /// Shows the page tables of the range that real firmware keeps for itself. The first is the directory.
    NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES on AddressSpace,
        size_of::<NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS>()
        => Answer::Handler(copy_server_reserved_pdes);
    source "open-gpu-kernel-modules ctrl2080internal.h; nouveau gsp/rm/r570/fbsr.c";
    /// Says where VRAM that firmware uses is to be saved, and what else firmware keeps.
    NV2080_CTRL_CMD_INTERNAL_FBSR_INIT on Subdevice, size_of::<NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS>()
        => Answer::Handler(fbsr_init);
}

/// `NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_FLAGS_APERTURE_*`.
const fn aperture_of_flags(flags: u32) -> Option<Aperture> {
    match flags & 3 {
        0 => Some(Aperture::Vram),
        1 => Some(Aperture::SystemCoherent),
        2 => Some(Aperture::SystemNonCoherent),
        _ => None,
    }
}

/// `GMMU_APERTURE_*`.
const fn aperture_of_level(number: u32) -> Option<Aperture> {
    match number {
        1 => Some(Aperture::Vram),
        2 => Some(Aperture::SystemCoherent),
        3 => Some(Aperture::SystemNonCoherent),
        _ => None,
    }
}

/// Checks where a page directory is said to be.
fn directory(rm: &Rm, aperture: Option<Aperture>, address: u64) -> Result<PhysicalAddress, Status> {
    let aperture = aperture.ok_or(Status::InvalidArgument)?;
    if !address.is_multiple_of(PAGE_SIZE) {
        return Err(Status::InvalidAddress);
    }
    let inside = address.checked_add(PAGE_SIZE).is_some_and(|end| end <= rm.config.vram);
    if aperture == Aperture::Vram && !inside {
        return Err(Status::InvalidAddress);
    }
    Ok(PhysicalAddress { aperture, address })
}

fn set_page_directory(rm: &mut Rm, _: &dyn GspBackend, target: Target, raw: &mut [u8]) -> Result<(), Status> {
    let wanted: NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS = parameters(raw);
    let page_directory = directory(rm, aperture_of_flags(wanted.flags), wanted.physAddress)?;
    let id = Id { handle: wanted.hVASpace, ..target.id };
    if !rm.objects.space(id)?.external {
        return Err(Status::InvalidArgument);
    }
    keep_directory(rm, id, page_directory)
}

/// Notes where an address space's page tables are.
pub(in super::super) fn keep_directory(rm: &mut Rm, id: Id, at: PhysicalAddress) -> Result<(), Status> {
    let page_directory = directory(rm, Some(at.aperture), at.address)?;
    let space = rm.objects.space_mut(id)?;
    // Channels at the back have the directory that was there when they were made.
    if !space.channels.is_empty() && space.page_directory != Some(page_directory) {
        return Err(Status::StateInUse);
    }
    space.page_directory = Some(page_directory);
    Ok(())
}

fn unset_page_directory(
    rm: &mut Rm,
    _: &dyn GspBackend,
    target: Target,
    raw: &mut [u8],
) -> Result<(), Status> {
    let wanted: NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS = parameters(raw);
    let space = rm.objects.space_mut(Id { handle: wanted.hVASpace, ..target.id })?;
    if space.channels.is_empty() {
        space.page_directory = None;
    }
    Ok(())
}

fn copy_server_reserved_pdes(
    rm: &mut Rm,
    _: &dyn GspBackend,
    target: Target,
    raw: &mut [u8],
) -> Result<(), Status> {
    let shown: NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS = parameters(raw);
    let levels = usize::try_from(shown.numLevelsToCopy).map_err(|_| Status::InvalidArgument)?;
    let [root, ..] = shown.levels.get(..levels).ok_or(Status::InvalidArgument)? else {
        return Err(Status::InvalidArgument);
    };
    let page_directory = directory(rm, aperture_of_level(root.aperture), root.physAddress)?;
    keep_directory(rm, target.id, page_directory)
}

/// It uses no VRAM that a driver does not save itself; objects and channels go into the other.
fn fbsr_init(rm: &mut Rm, back: &dyn GspBackend, _: Target, raw: &mut [u8]) -> Result<(), Status> {
    let wanted: NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS = parameters(raw);
    match rm.objects.get(Id { client: wanted.hClient, handle: wanted.hSysMem })?.kind {
        Kind::Memory { .. } => {}
        _ => return Err(Status::InvalidObject),
    }
    let address = wanted.sysmemAddrOfSuspendResumeData;
    if address == 0 {
        rm.saved_at = None;
        return Ok(());
    }
    saved::check_room(rm, back, address).map_err(|error| rm.not_saved(error))?;
    rm.saved_at = Some(address);
    Ok(())
}
