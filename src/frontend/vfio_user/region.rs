//! Reads and writes of regions.
//!
//! Longer and unaligned accesses to BARs are cut ([`pieces`]).

use super::super::pieces;
use super::framing::Outbox;
use super::info::fixed;
use super::refusal::Refusal;
use super::wire::{self, MAX_DATA, MAX_WRITES, command};
use gpuvmk_pci::{AccessError, PciFunction, Region, RegionKind, RegionTable};
use zerocopy::FromBytes;

/// An access that lies inside its region.
#[derive(Clone, Copy, Debug)]
struct Place {
    region: Region,
    offset: u64,
    size: usize,
    /// To be cut into aligned pieces.
    cut: bool,
}

impl Place {
    /// Checks an access against the regions.
    fn check(command: u16, access: &wire::RegionAccess, regions: &RegionTable) -> Result<Self, Refusal> {
        let allowed = "at most 1 MiB at a time";
        let too_long = Refusal::Field { command, field: "count", value: access.count.into(), allowed };
        let size = match usize::try_from(access.count) {
            Ok(size) if access.count <= MAX_DATA => size,
            _ => return Err(too_long),
        };
        let known = Region::from_index(access.region)
            .zip(usize::try_from(access.region).ok())
            .and_then(|(region, index)| Some((region, *regions.get(index)?)))
            .filter(|(_, info)| info.kind != RegionKind::Absent);
        let Some((region, info)) = known else {
            let allowed = "no such region";
            return Err(Refusal::Field { command, field: "region", value: access.region.into(), allowed });
        };
        let offset = access.offset;
        if offset.checked_add(access.count.into()).is_none_or(|end| end > info.size) {
            return Err(AccessError::OutOfRange { region, offset, size, limit: info.size }.into());
        }
        let cut = pieces::is_cut(info.kind);
        Ok(Self { region, offset, size, cut })
    }

    fn read(&self, function: &dyn PciFunction, data: &mut [u8]) -> Result<(), AccessError> {
        pieces::read(function, self.region, self.cut, self.offset, data)
    }

    fn write(&self, function: &dyn PciFunction, data: &[u8]) -> Result<(), AccessError> {
        pieces::write(function, self.region, self.cut, self.offset, data)
    }
}

pub(super) fn read(
    function: &dyn PciFunction,
    regions: &RegionTable,
    body: &[u8],
    reply: &mut Outbox,
) -> Result<(), Refusal> {
    let access: wire::RegionAccess = fixed(command::REGION_READ, body, "16")?;
    let place = Place::check(command::REGION_READ, &access, regions)?;
    reply.put(&access);
    Ok(place.read(function, reply.extend(place.size))?)
}

pub(super) fn write(
    function: &dyn PciFunction,
    regions: &RegionTable,
    body: &[u8],
    reply: &mut Outbox,
) -> Result<(), Refusal> {
    let command = command::REGION_WRITE;
    let wrong_size = Refusal::BodySize { command, size: body.len(), expected: "16 and the data" };
    let Ok((access, data)) = wire::RegionAccess::read_from_prefix(body) else { return Err(wrong_size) };
    let place = Place::check(command, &access, regions)?;
    if data.len() != place.size {
        return Err(wrong_size);
    }
    place.write(function, data)?;
    reply.put(&access);
    Ok(())
}

/// Puts the reply to a write together that the function carries out however late; false: it is not one of
/// those.
pub(super) fn post(
    function: &dyn PciFunction,
    regions: &RegionTable,
    body: &[u8],
    reply: &mut Outbox,
) -> bool {
    let Ok((access, data)) = wire::RegionAccess::read_from_prefix(body) else { return false };
    let place = Place::check(command::REGION_WRITE, &access, regions);
    let is_posted = place.is_ok_and(|place| {
        data.len() == place.size
            && function.direct_map().is_some_and(|map| map.is_posted(place.region, place.offset, place.size))
    });
    if is_posted {
        reply.put(&access);
    }
    is_posted
}

/// Many small writes, in order. All are checked before the first is carried out.
pub(super) fn write_multi(
    function: &dyn PciFunction,
    regions: &RegionTable,
    body: &[u8],
    reply: &mut Outbox,
) -> Result<(), Refusal> {
    let command = command::REGION_WRITE_MULTI;
    let wrong_size = Refusal::BodySize { command, size: body.len(), expected: "8 and 24 for each write" };
    let Ok((head, writes)) = wire::WriteMulti::read_from_prefix(body) else { return Err(wrong_size) };
    if head.count > MAX_WRITES {
        let allowed = "at most 4096 writes at a time";
        return Err(Refusal::Field { command, field: "wr_cnt", value: head.count, allowed });
    }
    let size = size_of::<wire::SmallWrite>();
    if usize::try_from(head.count).ok().and_then(|count| count.checked_mul(size)) != Some(writes.len()) {
        return Err(wrong_size);
    }
    let each = || writes.chunks_exact(size).filter_map(|bytes| wire::SmallWrite::read_from_bytes(bytes).ok());
    for small in each() {
        check_small(&small, regions)?;
    }
    for small in each() {
        let (place, data) = check_small(&small, regions)?;
        let data = data.get(..place.size).unwrap_or_default();
        place.write(function, data)?;
    }
    reply.put(&head);
    Ok(())
}

fn check_small(small: &wire::SmallWrite, regions: &RegionTable) -> Result<(Place, [u8; 8]), Refusal> {
    let command = command::REGION_WRITE_MULTI;
    if small.access.count > 8 {
        let allowed = "at most 8 bytes in one of many writes";
        return Err(Refusal::Field { command, field: "count", value: small.access.count.into(), allowed });
    }
    Ok((Place::check(command, &small.access, regions)?, small.data))
}
