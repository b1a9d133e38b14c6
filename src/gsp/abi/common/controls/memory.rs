//! Controls about page directories.

use crate::abi::common::control::{
    NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY, NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY,
    NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS, NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS,
    NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES, NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS,
    parameters,
};
use crate::abi::status::Status;
use crate::abi::table::{Answer, ControlCall, controls};
use crate::abi::values::PageDirectory;
use gpuvmk_chip::{Aperture, PhysicalAddress};

controls! {
    source "open-gpu-kernel-modules ctrl0080dma.h, ctrl90f1.h; nouveau gsp/rm/r535/vmm.c";
    /// Says where the page tables of an address space are that the driver keeps itself.
    NV0080_CTRL_CMD_DMA_SET_PAGE_DIRECTORY on Device, size_of::<NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS>()
        => Answer::Handler(ControlCall::SetPageDirectory(|raw| set_page_directory(&parameters(raw))));
    /// Takes that back.
    NV0080_CTRL_CMD_DMA_UNSET_PAGE_DIRECTORY on Device,
        size_of::<NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS>()
        => Answer::Handler(ControlCall::UnsetPageDirectory(unset_page_directory));
    /// Shows the page tables of the range that real firmware keeps for itself. The first is the directory:
    /// drivers of Linux 6.12 say of no address space in another way where its page tables are.
    NV90F1_CTRL_CMD_VASPACE_COPY_SERVER_RESERVED_PDES on AddressSpace,
        size_of::<NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS>()
        => Answer::Handler(ControlCall::CopyServerReservedPdes(copy_server_reserved_pdes));
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

/// Where page tables are said to be.
///
/// # Errors
/// In no memory.
pub fn set_page_directory(
    wanted: &NV0080_CTRL_DMA_SET_PAGE_DIRECTORY_PARAMS,
) -> Result<PageDirectory, Status> {
    let aperture = aperture_of_flags(wanted.flags).ok_or(Status::InvalidArgument)?;
    let directory = PhysicalAddress { aperture, address: wanted.physAddress };
    Ok(PageDirectory { space: wanted.hVASpace, directory })
}

fn unset_page_directory(raw: &[u8]) -> Result<u32, Status> {
    Ok(parameters::<NV0080_CTRL_DMA_UNSET_PAGE_DIRECTORY_PARAMS>(raw).hVASpace)
}

fn copy_server_reserved_pdes(raw: &[u8]) -> Result<PhysicalAddress, Status> {
    let shown: NV90F1_CTRL_VASPACE_COPY_SERVER_RESERVED_PDES_PARAMS = parameters(raw);
    let levels = usize::try_from(shown.numLevelsToCopy).map_err(|_| Status::InvalidArgument)?;
    let [root, ..] = shown.levels.get(..levels).ok_or(Status::InvalidArgument)? else {
        return Err(Status::InvalidArgument);
    };
    let aperture = aperture_of_level(root.aperture).ok_or(Status::InvalidArgument)?;
    Ok(PhysicalAddress { aperture, address: root.physAddress })
}
