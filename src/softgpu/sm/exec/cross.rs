//! Across the lanes of the group that runs.

use gpuvmk_isa::Opcode as O;
use gpuvmk_isa::modifier::Shuffle;

use super::context::{Done, put};
use crate::numerics::float;
use crate::op::{Detail, Op};
use crate::row::{ALL, Kept, LANES, Lanes, each, pair};
use crate::warp::Warp;

pub(super) fn run(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let [a, b, c] = [op.a, op.b, op.c].map(|source| *warp.row(pool, source.row));
    // Where the result is the warp's, the lanes that take part are still those that the guard lets run.
    let lanes = warp.lanes(op.guard) & warp.group.mask;
    match (op.opcode, op.detail) {
        (O::Vote | O::Voteu, Detail::Choice(how, _)) => {
            let group = lanes;
            let holds = warp.lanes(op.from[0]) & group;
            let result = match how {
                0 => holds == group,
                1 => holds != 0,
                _ => holds == 0 || holds == group,
            };
            put(warp, op.d, &[holds; LANES], mask)?;
            warp.put_predicate(op.to[0], if result { ALL } else { 0 }, mask);
            Ok(())
        }
        (O::Match, Detail::Choice(how, wide)) => {
            let upper = if wide != 0 { *warp.row(pool, op.a.high) } else { crate::row::ZERO };
            let word = |lane: usize| pair(a[lane], upper[lane]);
            let same = each(|lane| {
                Lanes(mask).filter(|other| word(*other) == word(lane)).fold(0, |all, other| all | 1 << other)
            });
            let all = how == 0;
            let agree = same[Warp::first_lane(mask)] == mask;
            let result = each(|lane| if all && !agree { 0 } else { same[lane] });
            put(warp, op.d, &result, mask)?;
            if all {
                warp.put_predicate(op.to[0], if agree { ALL } else { 0 }, mask);
            }
            Ok(())
        }
        (O::Redux, Detail::Choice(how, signed)) => {
            let flip = u32::from(signed) << 31;
            let words = || Lanes(lanes).map(|lane| a[lane]);
            let result = match how {
                0 => words().fold(ALL, |all, word| all & word),
                1 => words().fold(0, |all, word| all | word),
                2 => words().fold(0, |all, word| all ^ word),
                3 => words().fold(0_u32, u32::wrapping_add),
                4 => words().map(|word| word ^ flip).min().unwrap_or(0) ^ flip,
                _ => words().map(|word| word ^ flip).max().unwrap_or(0) ^ flip,
            };
            let to = if op.uniform { ALL } else { mask };
            put(warp, op.d, &[result; LANES], to)
        }
        (O::Shfl, Detail::Shuffle(how)) => {
            let (mut result, mut inside) = (a, 0);
            for lane in Lanes(mask) {
                let (from, valid) = shuffled(how, lane, b[lane], c[lane]);
                // A lane that does not run gives 0.
                result[lane] = if mask >> from & 1 == 1 { a[from] } else { 0 };
                inside |= u32::from(valid) << lane;
            }
            put(warp, op.d, &result, mask)?;
            warp.put_predicate(op.to[0], inside, mask);
            Ok(())
        }
        (O::Elect, _) => {
            let lane = Warp::first_lane(lanes);
            put(warp, op.d, &[u32::try_from(lane).unwrap_or(0); LANES], ALL)?;
            warp.put_predicate(op.to[0], 1 << lane, lanes);
            Ok(())
        }
        (O::R2ur, _) => {
            let lane = Warp::first_lane(lanes);
            put(warp, op.d, &[a[lane]; LANES], ALL)
        }
        (O::Fswzadd, Detail::Float(mode, _)) => {
            let operations = c[0];
            let result = each(|lane| float::quad_add(a[lane], b[lane], operations, lane, mode));
            put(warp, op.d, &result, mask)
        }
        _ => Ok(()),
    }
}

/// The lane that SHFL reads from, and whether it is inside its segment (PTX manual: shfl.sync). Bits 4:0 of
/// the bound are the clamp, bits 12:8 the segments' mask.
fn shuffled(how: Shuffle, lane: usize, by: u32, bound: u32) -> (usize, bool) {
    let lane = u32::try_from(lane).unwrap_or(0);
    let (by, clamp, segment) = (by % 32, bound % 32, (bound >> 8) % 32);
    let highest = lane & segment | clamp & !segment;
    let lowest = lane & segment;
    let (from, valid) = match how {
        Shuffle::Up => {
            (lane.wrapping_sub(by), lane.cast_signed() - by.cast_signed() >= highest.cast_signed())
        }
        Shuffle::Down => (lane + by, lane + by <= highest),
        Shuffle::Bfly => (lane ^ by, (lane ^ by) <= highest),
        Shuffle::Idx => {
            let from = lowest | by & !segment;
            (from, from <= highest)
        }
    };
    let from = if valid { from } else { lane };
    (from as usize % LANES, valid)
}
