//! Client memory: what the device may reach.

use super::framing::Outbox;
use super::info::fixed;
use super::refusal::Refusal;
use super::wire::{self, command, dma_map, dma_unmap};
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_pci::{DmaBacking, DmaMapping, PciFunction};
use std::os::fd::OwnedFd;

/// Memory with a descriptor can be reached; without one it is known and cannot be (QEMU's ROMs).
pub(super) fn map(function: &dyn PciFunction, body: &[u8], mut fds: Vec<OwnedFd>) -> Result<(), Refusal> {
    let command = command::DMA_MAP;
    let request: wire::DmaMap = fixed(command, body, "32")?;
    let refuse = |field, value, allowed| Refusal::Field { command, field, value, allowed };
    if (request.argsz as usize) < size_of::<wire::DmaMap>() {
        return Err(refuse("argsz", request.argsz.into(), "at least 32"));
    }
    let known = dma_map::READ | dma_map::WRITE;
    if request.flags == 0 || request.flags & !known != 0 {
        return Err(refuse("flags", request.flags.into(), "readable (1), writable (2) or both"));
    }
    let backing = fds.pop().map(|fd| DmaBacking { fd, offset: request.offset });
    if !fds.is_empty() {
        let count = fds.len() + 1;
        return Err(Refusal::Descriptors { command, count, allowed: "at most one is possible" });
    }
    let writable = request.flags & dma_map::WRITE != 0;
    // Main memory begins at 0. Other memory that a machine has (ROMs, video memory of another adapter) may
    // stay private: no driver gives its address to the GPU.
    if writable && backing.is_none() && request.address == 0 {
        return Err(Refusal::PrivateMemory(request.address));
    }
    // Whole mappings of a file have room for any offset; hardware's pages have not.
    if backing.is_some() && !request.offset.is_multiple_of(PAGE_SIZE) {
        return Err(refuse("offset", request.offset, "a multiple of 4096"));
    }
    let mapping = DmaMapping { iova: request.address, size: request.size, writable, backing, owner: None };
    Ok(function.dma_map(mapping)?)
}

pub(super) fn unmap(function: &dyn PciFunction, body: &[u8], reply: &mut Outbox) -> Result<(), Refusal> {
    let command = command::DMA_UNMAP;
    // A request for dirty pages is longer; it is refused for what it asks, not for its size.
    let head = body.get(..size_of::<wire::DmaUnmap>()).unwrap_or(body);
    let request: wire::DmaUnmap = fixed(command, head, "24")?;
    if request.flags & dma_unmap::GET_DIRTY_BITMAP != 0 {
        return Err(Refusal::NotOffered(command::DIRTY_PAGES));
    }
    let request: wire::DmaUnmap = fixed(command, body, "24")?;
    let refuse = |field, value, allowed| Refusal::Field { command, field, value, allowed };
    if (request.argsz as usize) < size_of::<wire::DmaUnmap>() {
        return Err(refuse("argsz", request.argsz.into(), "it must have room for the reply"));
    }
    match request.flags {
        0 => function.dma_unmap(request.address, request.size)?,
        dma_unmap::ALL if request.address == 0 && request.size == 0 => function.dma_unmap_all(),
        dma_unmap::ALL => {
            return Err(refuse("address or size", request.address | request.size, "0 to unmap all"));
        }
        flags => return Err(refuse("flags", flags.into(), "0 or all (2)")),
    }
    reply.put(&request);
    Ok(())
}
