//! Where lanes' addresses are.

use crate::exec::context::Context;
use crate::fault::{Cause, Exception};
use crate::op::{Detail, Op, Place, Space, Unit, ZERO_ROW};
use crate::row::{Kept, LANES, Row, ZERO, low, pair};
use crate::warp::Warp;

/// Bytes of a window of the generic address space.
const WINDOW: u64 = 1 << 24;

pub(in crate::exec) const OUT_OF_RANGE: Cause = Cause::Exception(Exception::AddressOutOfRange);
pub(in crate::exec) const MISALIGNED: Cause = Cause::Exception(Exception::MisalignedAddress);

/// Addresses of all lanes in shared or local memory.
#[inline(always)]
pub(super) fn short(warp: &Warp, op: &Op, place: Place, pool: &[Kept]) -> Row {
    let (a, uniform) = (warp.row(pool, op.a.row), warp.row(pool, place.uniform));
    let (offset, scale) = (place.offset.cast_unsigned(), place.scale % 32);
    crate::row::each(|lane| (a[lane] << scale).wrapping_add(uniform[lane]).wrapping_add(offset))
}

/// Addresses of all lanes.
#[inline(always)]
pub(in crate::exec) fn addresses(warp: &Warp, op: &Op, place: Place, pool: &[Kept]) -> [u64; LANES] {
    let mut found = [0; LANES];
    if matches!(place.space, Space::Shared | Space::Local) {
        for (found, address) in found.iter_mut().zip(short(warp, op, place, pool)) {
            *found = address.into();
        }
        return found;
    }
    let offset = i64::from(place.offset).cast_unsigned();
    let a = warp.row(pool, op.a.row);
    let high = if place.wide { warp.row(pool, op.a.high) } else { &ZERO };
    let uniform = warp.row(pool, place.uniform);
    let above = warp.row(pool, crate::lower::following(place.uniform));
    for lane in 0..LANES {
        let base = pair(a[lane], high[lane]);
        found[lane] = base.wrapping_add(pair(uniform[lane], above[lane])).wrapping_add(offset);
    }
    found
}

/// The last lane's number.
const LAST_LANE: u32 = 31;

/// The first lane's address in global memory, if the accesses of all lanes, of `size` bytes each, follow each
/// other. Told from 32 bits of each address, which is sooner done than with all of them; none is no answer.
#[inline(always)]
pub(super) fn run_of_warp(warp: &Warp, op: &Op, place: Place, pool: &[Kept], size: u32) -> Option<u64> {
    if place.space != Space::Global {
        return None;
    }
    let a = warp.row(pool, op.a.row);
    let high = if place.wide { warp.row(pool, op.a.high) } else { &ZERO };
    // What the compiler knows of the first lane would keep it from making vectors of whole rows.
    let [first, above] = std::hint::black_box([a[0], high[0]]);
    let mut different = [0; LANES];
    for (lane, index) in (0..LANES).zip(0..) {
        different[lane] = a[lane] ^ first.wrapping_add(size * index) | high[lane] ^ above;
    }
    let mut apart = different.iter().fold(0, |all, bits| all | bits);
    let mut uniform = 0;
    if place.uniform != ZERO_ROW {
        let rows = [place.uniform, crate::lower::following(place.uniform)].map(|row| warp.row(pool, row));
        apart |=
            rows.iter().flat_map(|row| row.iter().map(|word| word ^ row[0])).fold(0, |all, bits| all | bits);
        uniform = pair(rows[0][0], rows[1][0]);
    }
    // The upper words are alike: no carry may go into one.
    let fits = a[0].checked_add(size * LAST_LANE).is_some();
    let offset = i64::from(place.offset).cast_unsigned();
    let first = pair(a[0], high[0]).wrapping_add(uniform).wrapping_add(offset);
    (apart == 0 && fits && first.is_multiple_of(size.into())).then_some(first)
}

/// What all lanes of an access reach.
pub(super) enum Reached {
    /// Global memory.
    Global,
    /// Shared memory, there.
    Shared(Row),
    /// Each lane its own local memory, all at the same address.
    Local(u64),
    /// This and that.
    Mixed,
}

/// What the lanes reach, whether they run or not.
#[inline(always)]
pub(super) fn reached(context: &Context<'_>, space: Space, addresses: &[u64; LANES]) -> Reached {
    match space {
        Space::Global => Reached::Global,
        Space::Local if addresses.iter().all(|address| *address == addresses[0]) => {
            Reached::Local(addresses[0])
        }
        Space::Generic => generic(context, addresses),
        _ => Reached::Mixed,
    }
}

fn generic(context: &Context<'_>, addresses: &[u64; LANES]) -> Reached {
    let (mut in_shared, mut in_local) = (0, 0);
    for address in addresses {
        in_shared += u32::from(address.wrapping_sub(context.launch.shared_window) < WINDOW);
        in_local += u32::from(address.wrapping_sub(context.launch.local_window) < WINDOW);
    }
    match (in_shared, in_local) {
        (0, 0) => Reached::Global,
        (32, _) => {
            let base = context.launch.shared_window;
            Reached::Shared(crate::row::each(|lane| low(addresses[lane].wrapping_sub(base))))
        }
        _ => Reached::Mixed,
    }
}

/// Where a lane's address is: windows of generic addresses are resolved.
#[inline(always)]
pub(in crate::exec) fn resolve(context: &Context<'_>, space: Space, address: u64) -> (Space, u64) {
    if !matches!(space, Space::Generic | Space::Cluster) {
        return (space, address);
    }
    let shared = address.wrapping_sub(context.launch.shared_window);
    if space == Space::Cluster {
        // What is elsewhere is beyond any block's shared memory.
        return (Space::Shared, if shared < WINDOW { shared } else { u64::MAX });
    }
    let local = address.wrapping_sub(context.launch.local_window);
    if shared < WINDOW {
        (Space::Shared, shared)
    } else if local < WINDOW {
        (Space::Local, local)
    } else {
        (Space::Global, address)
    }
}

/// QSPC: whether lanes' generic addresses are in a space.
pub(in crate::exec) fn space(
    warp: &mut Warp,
    context: &Context<'_>,
    op: &Op,
    pool: &[Kept],
    mask: u32,
) -> Result<(), Cause> {
    let Detail::Asked(place, asked) = op.detail else { return Ok(()) };
    let addresses = addresses(warp, op, place, pool);
    let there = crate::row::mask(|lane| resolve(context, Space::Generic, addresses[lane]).0 == asked);
    warp.put_predicate(op.to[0], there, mask);
    Ok(())
}

/// Global address of a byte of a lane's local memory: words of a warp's lanes lie beside each other. Negative
/// addresses, of 32 bits, are those below the window's end.
pub(super) fn local(context: &Context<'_>, lane: usize, address: u64) -> Result<u64, Cause> {
    let memory = context.launch.local;
    let address = if address >> 24 == 0xff { address & (WINDOW - 1) } else { address };
    let high_start = WINDOW - u64::from(memory.high);
    let offset = if address < memory.low.into() {
        address
    } else if (high_start..WINDOW).contains(&address) {
        u64::from(memory.low).next_multiple_of(4) + (address - high_start)
    } else {
        return Err(OUT_OF_RANGE);
    };
    let warp = context.slot * memory.of_lane() * LANES as u64;
    let place = warp + (offset / 4 * LANES as u64 + lane as u64) * 4 + offset % 4;
    Ok(memory.base.wrapping_add(place))
}

/// Addresses in shared memory that an operation accesses, and the bytes of a lane, if all its lanes are
/// there.
pub(crate) fn touched(warp: &Warp, context: &Context<'_>, op: &Op, pool: &[Kept]) -> Option<(Row, u32)> {
    let (place, bytes) = match op.detail {
        Detail::Move(place, Unit::Small(bytes, _)) => (place, bytes.into()),
        Detail::Move(place, Unit::Words(count)) => (place, u32::from(count) * 4),
        Detail::Atomic(place, ..) => (place, 4),
        _ => return None,
    };
    if place.space == Space::Shared {
        return Some((short(warp, op, place, pool), bytes));
    }
    match reached(context, place.space, &addresses(warp, op, place, pool)) {
        Reached::Shared(addresses) => Some((addresses, bytes)),
        _ => None,
    }
}
