//! Loads and stores.

use super::context::{Context, Done, put};
use crate::fault::{Cause, Exception};
use crate::op::{Detail, Op, POOL, Place, Space, Unit, ZERO_ROW};
use crate::row::{ALL, LANES, Lanes, Row, ZERO, pair};
use crate::warp::Warp;

/// Words of a lane that an access moves at most.
const WORDS: usize = 4;

/// Bytes of a window of the generic address space.
const WINDOW: u64 = 1 << 24;

pub(super) const OUT_OF_RANGE: Cause = Cause::Exception(Exception::AddressOutOfRange);
pub(super) const MISALIGNED: Cause = Cause::Exception(Exception::MisalignedAddress);

/// Addresses of all lanes.
#[inline(always)]
pub(super) fn addresses(warp: &Warp, op: &Op, place: Place, pool: &[Row]) -> [u64; LANES] {
    let [a, high] = warp.rows(pool, op.a);
    let uniform = warp.row(pool, place.uniform);
    let offset = i64::from(place.offset).cast_unsigned();
    let mut found = [0; LANES];
    if matches!(place.space, Space::Shared | Space::Local) {
        let offset = place.offset.cast_unsigned();
        for lane in 0..LANES {
            let base = a[lane] << (place.scale % 32);
            found[lane] = base.wrapping_add(uniform[lane]).wrapping_add(offset).into();
        }
        return found;
    }
    let above = warp.row(pool, crate::lower::following(place.uniform));
    for lane in 0..LANES {
        let base = if place.wide { pair(a[lane], high[lane]) } else { a[lane].into() };
        found[lane] = base.wrapping_add(pair(uniform[lane], above[lane])).wrapping_add(offset);
    }
    found
}

/// Where a lane's address is: windows of generic addresses are resolved.
#[inline(always)]
pub(super) fn resolve(context: &Context<'_>, space: Space, address: u64) -> (Space, u64) {
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
fn local(context: &Context<'_>, lane: usize, address: u64) -> Result<u64, Cause> {
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
fn is_run(addresses: &[u64; LANES], size: u64) -> bool {
    let mut different = 0;
    for (lane, address) in addresses.iter().enumerate() {
        different |= address ^ addresses[0].wrapping_add(lane as u64 * size);
    }
    different == 0
}

#[inline(always)]
pub(super) fn load(warp: &mut Warp, context: &mut Context<'_>, op: &Op, pool: &[Row], mask: u32) -> Done {
    let Detail::Move(place, unit) = op.detail else { return Ok(()) };
    let addresses = addresses(warp, op, place, pool);
    let mut rows = [ZERO; WORDS];
    let count = match unit {
        Unit::Words(count) => usize::from(count).min(WORDS),
        Unit::Small(bytes, signed) => {
            load_small(context, place.space, &addresses, mask, (bytes, signed), &mut rows[0])?;
            1
        }
    };
    if matches!(unit, Unit::Words(_)) {
        let size = count as u64 * 4;
        if place.space == Space::Global
            && mask == ALL
            && addresses[0].is_multiple_of(size)
            && is_run(&addresses, size)
        {
            let mut words = [0; WORDS * LANES];
            let words = &mut words[..count * LANES];
            context.view.load(addresses[0], words)?;
            for (lane, words) in words.chunks_exact(count).enumerate() {
                for (row, word) in rows.iter_mut().zip(words) {
                    row[lane] = *word;
                }
            }
        } else if place.space == Space::Shared {
            load_shared(context, &addresses, mask, count, &mut rows)?;
        } else {
            for lane in Lanes(mask) {
                let mut words = [0; WORDS];
                load_lane(context, place.space, lane, addresses[lane], &mut words[..count])?;
                for (row, word) in rows.iter_mut().zip(words) {
                    row[lane] = word;
                }
            }
        }
    }
    let mut row = op.d;
    for value in &rows[..count] {
        put(warp, row, value, mask)?;
        row = crate::lower::following(row);
    }
    Ok(())
}

#[inline(always)]
fn load_shared(
    context: &Context<'_>,
    addresses: &[u64; LANES],
    mask: u32,
    count: usize,
    rows: &mut [Row; WORDS],
) -> Done {
    let words = &context.shared.words[..];
    for lane in Lanes(mask) {
        let address = addresses[lane];
        if !address.is_multiple_of(count as u64 * 4) {
            return Err(MISALIGNED);
        }
        let first = usize::try_from(address / 4).unwrap_or(usize::MAX);
        let found = words.get(first..).and_then(|words| words.get(..count)).ok_or(OUT_OF_RANGE)?;
        for (row, word) in rows.iter_mut().zip(found) {
            row[lane] = *word;
        }
    }
    Ok(())
}

/// Loads words of one lane.
pub(super) fn load_lane(
    context: &mut Context<'_>,
    space: Space,
    lane: usize,
    address: u64,
    words: &mut [u32],
) -> Done {
    if !address.is_multiple_of(words.len() as u64 * 4) {
        return Err(MISALIGNED);
    }
    match resolve(context, space, address) {
        (Space::Shared, address) => {
            let first = usize::try_from(address / 4).unwrap_or(usize::MAX);
            let found = context.shared.words.get(first..).and_then(|found| found.get(..words.len()));
            words.copy_from_slice(found.ok_or(OUT_OF_RANGE)?);
        }
        (Space::Local, address) => {
            for (index, word) in (0..).zip(words) {
                let at = local(context, lane, address + index * 4)?;
                context.view.load(at, std::slice::from_mut(word))?;
            }
        }
        (_, address) => context.view.load(address, words)?,
    }
    Ok(())
}

fn load_small(
    context: &mut Context<'_>,
    space: Space,
    addresses: &[u64; LANES],
    mask: u32,
    (bytes, signed): (u8, bool),
    row: &mut Row,
) -> Done {
    for lane in Lanes(mask) {
        if !addresses[lane].is_multiple_of(u64::from(bytes)) {
            return Err(MISALIGNED);
        }
        let mut word = 0;
        for byte in 0..bytes {
            let (space, address) = resolve(context, space, addresses[lane].wrapping_add(byte.into()));
            let found = match space {
                Space::Shared => {
                    let words = &context.shared.words;
                    let at = usize::try_from(address / 4).unwrap_or(usize::MAX);
                    let word = words.get(at).ok_or(OUT_OF_RANGE)?;
                    word.to_le_bytes()[usize::try_from(address % 4).unwrap_or(0)]
                }
                Space::Local => {
                    let at = local(context, lane, address)?;
                    context.view.load_byte(at)?
                }
                _ => context.view.load_byte(address)?,
            };
            word |= u32::from(found) << (8 * byte);
        }
        row[lane] = crate::numerics::integer::extend(word, 8 * u32::from(bytes), signed, false);
    }
    Ok(())
}

#[inline(always)]
pub(super) fn store(warp: &mut Warp, context: &mut Context<'_>, op: &Op, pool: &[Row], mask: u32) -> Done {
    let Detail::Move(place, unit) = op.detail else { return Ok(()) };
    let addresses = addresses(warp, op, place, pool);
    let Unit::Words(count) = unit else {
        return store_small(warp, context, op, pool, (place.space, unit, &addresses, mask));
    };
    let count = usize::from(count).min(WORDS);
    let size = count as u64 * 4;
    let mut row = op.b.row;
    let rows: [&Row; WORDS] = std::array::from_fn(|_| {
        let value = warp.row(pool, row);
        // An immediate or constant is one word.
        row = if row < POOL { crate::lower::following(row) } else { ZERO_ROW };
        value
    });
    if place.space == Space::Global
        && mask == ALL
        && addresses[0].is_multiple_of(size)
        && is_run(&addresses, size)
    {
        if count == 1 {
            context.view.store(addresses[0], rows[0])?;
            return Ok(());
        }
        let mut words = [0; WORDS * LANES];
        for (lane, words) in words.chunks_exact_mut(count).take(LANES).enumerate() {
            for (row, word) in rows.iter().zip(words) {
                *word = row[lane];
            }
        }
        context.view.store(addresses[0], &words[..count * LANES])?;
        return Ok(());
    }
    for lane in Lanes(mask) {
        let words = rows.map(|row| row[lane]);
        store_lane(context, place.space, lane, addresses[lane], &words[..count])?;
    }
    Ok(())
}

/// Stores words of one lane.
#[inline(always)]
fn store_lane(context: &mut Context<'_>, space: Space, lane: usize, address: u64, words: &[u32]) -> Done {
    if !address.is_multiple_of(words.len() as u64 * 4) {
        return Err(MISALIGNED);
    }
    match resolve(context, space, address) {
        (Space::Shared, address) => {
            let first = usize::try_from(address / 4).unwrap_or(usize::MAX);
            let found = context.shared.words.get_mut(first..).and_then(|found| found.get_mut(..words.len()));
            found.ok_or(OUT_OF_RANGE)?.copy_from_slice(words);
        }
        (Space::Local, address) => {
            for (index, word) in (0..).zip(words) {
                let at = local(context, lane, address + index * 4)?;
                context.view.store(at, std::slice::from_ref(word))?;
            }
        }
        (_, address) => context.view.store(address, words)?,
    }
    Ok(())
}

fn store_small(
    warp: &Warp,
    context: &mut Context<'_>,
    op: &Op,
    pool: &[Row],
    (space, unit, addresses, mask): (Space, Unit, &[u64; LANES], u32),
) -> Done {
    let Unit::Small(bytes, _) = unit else { return Ok(()) };
    let data = warp.row(pool, op.b.row);
    for lane in Lanes(mask) {
        if addresses[lane] % u64::from(bytes) != 0 {
            return Err(MISALIGNED);
        }
        for (index, byte) in (0..u64::from(bytes)).zip(data[lane].to_le_bytes()) {
            match resolve(context, space, addresses[lane].wrapping_add(index)) {
                (Space::Shared, address) => {
                    let at = usize::try_from(address / 4).unwrap_or(usize::MAX);
                    let word = context.shared.words.get_mut(at).ok_or(OUT_OF_RANGE)?;
                    let mut parts = word.to_le_bytes();
                    parts[usize::try_from(address % 4).unwrap_or(0)] = byte;
                    *word = u32::from_le_bytes(parts);
                }
                (Space::Local, address) => {
                    let at = local(context, lane, address)?;
                    context.view.store_byte(at, byte)?;
                }
                (_, address) => context.view.store_byte(address, byte)?,
            }
        }
    }
    Ok(())
}

/// LDC and its like.
#[inline(always)]
pub(super) fn constant(warp: &mut Warp, context: &mut Context<'_>, op: &Op, pool: &[Row], mask: u32) -> Done {
    let Detail::Constant(bank, offset, unit) = op.detail else { return Ok(()) };
    let base = warp.row(pool, op.a.row);
    let offsets: Row = crate::row::each(|lane| base[lane].wrapping_add(offset.cast_unsigned()));
    let constants = context.program.constants();
    let same = offsets == [offsets[0]; LANES];
    let rows = |more: u32| -> Row {
        if same {
            return [constants.word(bank, offsets[0].wrapping_add(more)); LANES];
        }
        crate::row::each(|lane| constants.word(bank, offsets[lane].wrapping_add(more)))
    };
    match unit {
        Unit::Small(bytes, signed) => {
            let words = rows(0);
            let value = crate::row::each(|lane| {
                let word = words[lane] >> (8 * (offsets[lane] % 4));
                crate::numerics::integer::extend(word, 8 * u32::from(bytes), signed, false)
            });
            put(warp, op.d, &value, mask)
        }
        Unit::Words(count) => {
            if Lanes(mask).any(|lane| !offsets[lane].is_multiple_of(4)) {
                return Err(MISALIGNED);
            }
            let mut row = op.d;
            for index in 0..u32::from(count) {
                put(warp, row, &rows(4 * index), mask)?;
                row = crate::lower::following(row);
            }
            Ok(())
        }
    }
}
