//! Loads and stores of words. Lanes whose words follow each other are served together.

mod address;
mod constant;
mod copy;
mod matrix;
mod shared;
mod small;

pub(super) use address::space;
pub(crate) use address::touched;
pub(super) use address::{MISALIGNED, OUT_OF_RANGE, addresses, resolve};
pub(super) use constant::constant;
pub(super) use copy::copy;
pub(super) use matrix::{matrices, store_matrices};

use address::{Reached, local, reached, run_of_warp, short};
use shared::{bytes, load_shared, store_shared};

use super::context::{Context, Done, put};
use crate::fault::Cause;
use crate::op::{Detail, Op, POOL, Place, Space, Unit, ZERO_ROW};
use crate::row::{ALL, Kept, LANES, Lanes, Row, ZERO, span};
use crate::warp::Warp;

#[inline(always)]
pub(super) fn load(warp: &mut Warp, context: &mut Context<'_>, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let Detail::Move(place, unit) = op.detail else { return Ok(()) };
    match unit {
        Unit::Words(1) => load_words::<1>(warp, context, (op, place), pool, mask),
        Unit::Words(2) => load_words::<2>(warp, context, (op, place), pool, mask),
        Unit::Words(_) => load_words::<4>(warp, context, (op, place), pool, mask),
        Unit::Small(bytes, signed) => {
            let addresses = addresses(warp, op, place, pool);
            let row = small::load(context, place.space, &addresses, mask, (bytes, signed))?;
            put(warp, op.d, &row, mask)
        }
    }
}

#[inline(always)]
pub(super) fn store(warp: &mut Warp, context: &mut Context<'_>, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let Detail::Move(place, unit) = op.detail else { return Ok(()) };
    match unit {
        Unit::Words(1) => store_words::<1>(warp, context, (op, place), pool, mask),
        Unit::Words(2) => store_words::<2>(warp, context, (op, place), pool, mask),
        Unit::Words(_) => store_words::<4>(warp, context, (op, place), pool, mask),
        Unit::Small(bytes, _) => {
            let addresses = addresses(warp, op, place, pool);
            small::store(context, place.space, &addresses, mask, warp.row(pool, op.b.row), bytes)
        }
    }
}

#[inline(always)]
fn load_words<const COUNT: usize>(
    warp: &mut Warp,
    context: &mut Context<'_>,
    (op, place): (&Op, Place),
    pool: &[Kept],
    mask: u32,
) -> Done {
    if mask == ALL
        && let Some(first) = run_of_warp(warp, op, place, pool, bytes::<COUNT>())
    {
        return load_run::<COUNT>(warp, context, op.d, first);
    }
    let mut rows = [ZERO; COUNT];
    if place.space == Space::Shared {
        load_shared(&context.shared.words, &short(warp, op, place, pool), mask, &mut rows)?;
    } else {
        let addresses = addresses(warp, op, place, pool);
        match reached(context, place.space, &addresses) {
            Reached::Global => load_global(context, &addresses, mask, &mut rows)?,
            Reached::Shared(at) => load_shared(&context.shared.words, &at, mask, &mut rows)?,
            Reached::Local(at) if mask == ALL && at.is_multiple_of(bytes::<COUNT>().into()) => {
                for (more, row) in (0..).step_by(4).zip(&mut rows) {
                    let first = local(context, 0, at + more)?;
                    context.view.load(first, row)?;
                }
            }
            _ => {
                for lane in Lanes(mask) {
                    let mut words = [0; COUNT];
                    load_lane(context, place.space, lane, addresses[lane], &mut words)?;
                    for (row, word) in rows.iter_mut().zip(words) {
                        row[lane] = word;
                    }
                }
            }
        }
    }
    let mut row = op.d;
    for value in &rows {
        put(warp, row, value, mask)?;
        row = crate::lower::following(row);
    }
    Ok(())
}

/// Loads words of all lanes, which follow each other.
#[inline(always)]
fn load_run<const COUNT: usize>(warp: &mut Warp, context: &mut Context<'_>, row: u16, first: u64) -> Done {
    if COUNT == 1
        && let Some(to) = warp.register(row)
    {
        // A register that is loaded in part is seen by nobody: the grid does not go on.
        return Ok(context.view.load(first, to)?);
    }
    let mut words = [[0; COUNT]; LANES];
    context.view.load(first, words.as_flattened_mut())?;
    let rows: [Row; COUNT] = std::array::from_fn(|index| crate::row::each(|lane| words[lane][index]));
    let mut to = row;
    for value in &rows {
        put(warp, to, value, ALL)?;
        to = crate::lower::following(to);
    }
    Ok(())
}

/// Loads runs of lanes: each run is one access.
#[inline(always)]
fn load_global<const COUNT: usize>(
    context: &mut Context<'_>,
    addresses: &[u64; LANES],
    mask: u32,
    rows: &mut [Row; COUNT],
) -> Done {
    let size = u64::from(bytes::<COUNT>());
    let mut left = mask;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let run = run(addresses, left, size)?;
        let mut words = [[0; COUNT]; LANES];
        context.view.load(addresses[first], words[..run].as_flattened_mut())?;
        for (lane, words) in words[..run].iter().enumerate() {
            for (row, word) in rows.iter_mut().zip(words) {
                row[(first + lane) % LANES] = *word;
            }
        }
        left &= !span(first, run);
    }
    Ok(())
}

/// How many lanes from the lowest one of `left` on access words that follow each other: one at least.
///
/// # Errors
/// The first one's address is not aligned. The others' then are, too.
#[inline(always)]
fn run(addresses: &[u64; LANES], left: u32, size: u64) -> Result<usize, Cause> {
    let first = left.trailing_zeros() as usize;
    let mut next = addresses[first % LANES];
    if !next.is_multiple_of(size) {
        return Err(MISALIGNED);
    }
    let mut count = 0;
    while first + count < LANES && left >> (first + count) & 1 == 1 && addresses[first + count] == next {
        count += 1;
        next = next.wrapping_add(size);
    }
    Ok(count)
}

/// Loads words of one lane.
fn load_lane(context: &mut Context<'_>, space: Space, lane: usize, address: u64, words: &mut [u32]) -> Done {
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

#[inline(always)]
fn store_words<const COUNT: usize>(
    warp: &mut Warp,
    context: &mut Context<'_>,
    (op, place): (&Op, Place),
    pool: &[Kept],
    mask: u32,
) -> Done {
    let mut rows = [&ZERO; COUNT];
    let mut row = op.b.row;
    for value in &mut rows {
        *value = warp.row(pool, row);
        // An immediate or constant is one word.
        row = if row < POOL { crate::lower::following(row) } else { ZERO_ROW };
    }
    if place.space == Space::Shared {
        return store_shared(&mut context.shared.words, &short(warp, op, place, pool), mask, rows);
    }
    if mask == ALL
        && let Some(first) = run_of_warp(warp, op, place, pool, bytes::<COUNT>())
    {
        if COUNT == 1 {
            return Ok(context.view.store(first, rows[0])?);
        }
        let mut words = [[0; COUNT]; LANES];
        for (lane, words) in words.iter_mut().enumerate() {
            for (word, row) in words.iter_mut().zip(rows) {
                *word = row[lane];
            }
        }
        return Ok(context.view.store(first, words.as_flattened())?);
    }
    let addresses = addresses(warp, op, place, pool);
    match reached(context, place.space, &addresses) {
        Reached::Global => store_global(context, &addresses, mask, rows)?,
        Reached::Shared(at) => store_shared(&mut context.shared.words, &at, mask, rows)?,
        Reached::Local(at) if mask == ALL && at.is_multiple_of(bytes::<COUNT>().into()) => {
            for (more, row) in (0..).step_by(4).zip(rows) {
                let first = local(context, 0, at + more)?;
                context.view.store(first, row)?;
            }
        }
        _ => {
            for lane in Lanes(mask) {
                let mut words = [0; COUNT];
                for (word, row) in words.iter_mut().zip(rows) {
                    *word = row[lane];
                }
                store_lane(context, place.space, lane, addresses[lane], &words)?;
            }
        }
    }
    Ok(())
}

/// Stores runs of lanes: each run is one access.
#[inline(always)]
fn store_global<const COUNT: usize>(
    context: &mut Context<'_>,
    addresses: &[u64; LANES],
    mask: u32,
    rows: [&Row; COUNT],
) -> Done {
    let size = u64::from(bytes::<COUNT>());
    let mut left = mask;
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let run = run(addresses, left, size)?;
        let mut words = [[0; COUNT]; LANES];
        for (lane, words) in words[..run].iter_mut().enumerate() {
            for (word, row) in words.iter_mut().zip(rows) {
                *word = row[(first + lane) % LANES];
            }
        }
        context.view.store(addresses[first], words[..run].as_flattened())?;
        left &= !span(first, run);
    }
    Ok(())
}

/// Stores words of one lane.
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

#[cfg(test)]
mod tests;
