//! Where lanes' addresses are.

use crate::exec::context::Context;
use crate::fault::{Cause, Exception};
use crate::op::{Detail, Op, Place, Space, Unit};
use crate::row::{LANES, Row, ZERO, low, pair};
use crate::warp::Warp;

/// Bytes of a window of the generic address space.
const WINDOW: u64 = 1 << 24;

pub(in crate::exec) const OUT_OF_RANGE: Cause = Cause::Exception(Exception::AddressOutOfRange);
pub(in crate::exec) const MISALIGNED: Cause = Cause::Exception(Exception::MisalignedAddress);

/// Addresses of all lanes in shared or local memory.
#[inline(always)]
pub(super) fn short(warp: &Warp, op: &Op, place: Place, pool: &[Row]) -> Row {
    let (a, uniform) = (warp.row(pool, op.a.row), warp.row(pool, place.uniform));
    let (offset, scale) = (place.offset.cast_unsigned(), place.scale % 32);
    crate::row::each(|lane| (a[lane] << scale).wrapping_add(uniform[lane]).wrapping_add(offset))
}

/// Addresses of all lanes.
#[inline(always)]
pub(in crate::exec) fn addresses(warp: &Warp, op: &Op, place: Place, pool: &[Row]) -> [u64; LANES] {
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
    if space != Space::Generic {
        return (space, address);
    }
    let shared = address.wrapping_sub(context.launch.shared_window);
    let local = address.wrapping_sub(context.launch.local_window);
    if shared < WINDOW {
        (Space::Shared, shared)
    } else if local < WINDOW {
        (Space::Local, local)
    } else {
        (Space::Global, address)
    }
}

/// Global address of a byte of a lane's local memory: words of a warp's lanes lie beside each other.
pub(super) fn local(context: &Context<'_>, lane: usize, address: u64) -> Result<u64, Cause> {
    let memory = context.launch.local;
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

/// Whether all lanes' accesses of `size` bytes follow each other.
#[inline(always)]
pub(super) fn is_run(addresses: &[u64; LANES], size: u64) -> bool {
    let mut different = 0;
    for (lane, address) in addresses.iter().enumerate() {
        different |= address ^ addresses[0].wrapping_add(lane as u64 * size);
    }
    different == 0
}

/// Addresses in shared memory that an operation accesses, and the bytes of a lane, if all its lanes are
/// there.
pub(crate) fn touched(warp: &Warp, context: &Context<'_>, op: &Op, pool: &[Row]) -> Option<(Row, u32)> {
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
