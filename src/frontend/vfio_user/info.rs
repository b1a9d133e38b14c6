//! Information about the device, its regions and its interrupt types.

use super::framing::Outbox;
use super::irq::IrqCounts;
use super::refusal::Refusal;
use super::wire::{self, command};
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_pci::{PciFunction, PlainMemory, Region, RegionKind};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The fixed body of a command, which must be of exactly that size.
pub(super) fn fixed<T: FromBytes + KnownLayout + Immutable>(
    command: u16,
    body: &[u8],
    expected: &'static str,
) -> Result<T, Refusal> {
    T::read_from_bytes(body).map_err(|_| Refusal::BodySize { command, size: body.len(), expected })
}

/// Checks that the client has room for a reply of the fixed size.
fn room(command: u16, argsz: u32, needed: usize) -> Result<(), Refusal> {
    if usize::try_from(argsz).is_ok_and(|room| room >= needed) {
        return Ok(());
    }
    let allowed = "it must have room for the reply";
    Err(Refusal::Field { command, field: "argsz", value: argsz.into(), allowed })
}

/// Bytes of a fixed structure.
#[allow(clippy::cast_possible_truncation, reason = "the structures have some dozen bytes")]
const fn argsz<T>() -> u32 {
    size_of::<T>() as u32
}

pub(super) fn device(body: &[u8], reply: &mut Outbox) -> Result<(), Refusal> {
    let command = command::DEVICE_GET_INFO;
    let request: wire::DeviceInfo = fixed(command, body, "16")?;
    room(command, request.argsz, size_of::<wire::DeviceInfo>())?;
    reply.put(&wire::DeviceInfo {
        argsz: argsz::<wire::DeviceInfo>(),
        flags: wire::device::PCI | wire::device::RESET,
        num_regions: wire::region::COUNT,
        num_irqs: wire::irq::COUNT,
    });
    Ok(())
}

pub(super) fn region(function: &dyn PciFunction, body: &[u8], reply: &mut Outbox) -> Result<(), Refusal> {
    let command = command::DEVICE_GET_REGION_INFO;
    let request: wire::RegionInfo = fixed(command, body, "32")?;
    room(command, request.argsz, size_of::<wire::RegionInfo>())?;
    if request.index >= wire::region::COUNT {
        let allowed = "the device has regions 0 to 8";
        return Err(Refusal::Field { command, field: "index", value: request.index.into(), allowed });
    }
    // Index 8, the legacy VGA region, is always absent.
    let info = Region::from_index(request.index)
        .zip(usize::try_from(request.index).ok())
        .and_then(|(_, index)| function.regions().get(index).copied());
    let (size, flags) = match info {
        None => (0, 0),
        Some(info) => match info.kind {
            RegionKind::Absent => (0, 0),
            RegionKind::Rom => (info.size, wire::region::READ),
            RegionKind::Memory32 | RegionKind::Memory64Prefetch | RegionKind::Io | RegionKind::Config => {
                (info.size, wire::region::READ | wire::region::WRITE)
            }
        },
    };
    let plain = Region::from_index(request.index).and_then(|region| mappable(function, region, size));
    let mut answer = wire::RegionInfo {
        argsz: argsz::<wire::RegionInfo>(),
        flags,
        index: request.index,
        cap_offset: 0,
        size,
        offset: 0,
    };
    let Some(plain) = plain else {
        reply.put(&answer);
        return Ok(());
    };
    answer.argsz += argsz::<wire::SparseMmap>();
    answer.flags |= wire::region::MMAP;
    if request.argsz < answer.argsz {
        // The client asks again with room for all of it. (QEMU refuses a flag of capabilities without any.)
        reply.put(&answer);
        return Ok(());
    }
    answer.flags |= wire::region::CAPS;
    answer.cap_offset = argsz::<wire::RegionInfo>();
    answer.offset = plain.memory.offset.wrapping_sub(plain.offset);
    reply.put(&answer);
    reply.put(&wire::SparseMmap {
        id: wire::region::CAP_SPARSE_MMAP,
        version: 1,
        next: 0,
        nr_areas: 1,
        reserved: 0,
        offset: plain.offset,
        size: plain.memory.size,
    });
    reply.attach(plain.memory.fd);
    Ok(())
}

/// The part of a region that the client may map: whole pages inside it. The client finds it in the file at
/// the region's offset plus the part's offset in the region, so that sum must be right.
fn mappable(function: &dyn PciFunction, region: Region, size: u64) -> Option<PlainMemory> {
    let plain = function.direct_map()?.plain_memory(region).unwrap_or_else(|error| {
        log::warn!("Part of {region:?} cannot be mapped, its accesses are trapped: {error}");
        None
    })?;
    let PlainMemory { offset, memory } = &plain;
    let whole = [*offset, memory.offset, memory.size].iter().all(|number| number.is_multiple_of(PAGE_SIZE));
    let inside = offset.checked_add(memory.size).is_some_and(|end| end <= size);
    (whole && inside && memory.size > 0 && memory.offset >= *offset).then_some(plain)
}

pub(super) fn irq(counts: &IrqCounts, body: &[u8], reply: &mut Outbox) -> Result<(), Refusal> {
    use wire::irq::{INFO_AUTOMASKED, INFO_EVENTFD, INFO_MASKABLE, INFO_NORESIZE, INTX, MSI, MSIX};
    let command = command::DEVICE_GET_IRQ_INFO;
    let request: wire::IrqInfo = fixed(command, body, "16")?;
    room(command, request.argsz, size_of::<wire::IrqInfo>())?;
    let flags = match request.index {
        INTX => INFO_EVENTFD | INFO_MASKABLE | INFO_AUTOMASKED,
        MSI | MSIX => INFO_EVENTFD | INFO_NORESIZE,
        index => return Err(Refusal::NoIrqType(index)),
    };
    reply.put(&wire::IrqInfo {
        argsz: argsz::<wire::IrqInfo>(),
        flags,
        index: request.index,
        count: counts.of(request.index),
    });
    Ok(())
}
