//! From FSP's boot arguments to the queues: a list of memory regions (libos), one of which (RMARGS) says
//! where the queues are. The log regions are left alone: there is no firmware that would print.

use zerocopy::FromBytes;

use crate::abi::common::boot::{
    LIBOS_INIT_ARGUMENTS_MAX, LIBOS_MEMORY_REGION_CONTIGUOUS, LIBOS_MEMORY_REGION_LOC_SYSMEM,
    LibosMemoryRegionInitArgument, MESSAGE_QUEUE_INIT_ARGUMENTS, RMARGS, queue_arguments,
};
use crate::model::error::BootError;
use crate::model::queue::Queues;
use crate::model::shared::bus;
use gpuvmk_backend::GspBackend;

/// Opens the queues that the arguments at bus address `libos` name.
pub(super) fn queues(back: &dyn GspBackend, libos: u64) -> Result<Queues, BootError> {
    let region = rm_arguments(back, libos)?;
    // Which version the driver speaks is said in the queue: only what all versions have is read.
    let mut raw = [0; size_of::<MESSAGE_QUEUE_INIT_ARGUMENTS>()];
    // CAST: widening.
    if region.size < raw.len() as u64 {
        return Err(BootError::Arguments("the region RMARGS is too small"));
    }
    back.read_memory(bus(region.pa), &mut raw).map_err(|_| BootError::NoMemory(region.pa))?;
    let arguments = queue_arguments(&raw).ok_or(BootError::Arguments("the region RMARGS is too small"))?;
    Queues::open(back, arguments)
}

/// The region RMARGS. The list ends at an id of 0.
fn rm_arguments(back: &dyn GspBackend, libos: u64) -> Result<LibosMemoryRegionInitArgument, BootError> {
    const SIZE: usize = size_of::<LibosMemoryRegionInitArgument>();
    for index in 0..LIBOS_INIT_ARGUMENTS_MAX {
        let mut raw = [0; SIZE];
        // CAST: widening.
        let address = libos.checked_add((index * SIZE) as u64).ok_or(BootError::NoMemory(libos))?;
        back.read_memory(bus(address), &mut raw).map_err(|_| BootError::NoMemory(address))?;
        let region = LibosMemoryRegionInitArgument::read_from_bytes(&raw)
            .map_err(|_| BootError::Arguments("a memory region cannot be read"))?;
        match region.id8 {
            0 => break,
            RMARGS
                if region.kind != LIBOS_MEMORY_REGION_CONTIGUOUS
                    || region.loc != LIBOS_MEMORY_REGION_LOC_SYSMEM =>
            {
                return Err(BootError::Arguments("the region RMARGS must be contiguous system memory"));
            }
            RMARGS => return Ok(region),
            _ => {}
        }
    }
    Err(BootError::Arguments("there is no region RMARGS"))
}
