//! Packed halves.

use gpuvmk_isa::Opcode as O;

use super::context::{Done, put};
use super::integer::combine;
use crate::numerics::half::{self, Mode, Operand};
use crate::op::{Detail, Op, POOL, Source, UNIFORM_ROWS};
use crate::row::{Kept, LANES, Row, each};
use crate::warp::Warp;

fn operand(source: Source) -> Operand {
    Operand { swizzle: source.swizzle, absolute: source.absolute, negate: source.negate }
}

/// Whether a source is the same for all lanes: uniform registers, zero, immediates, constants.
const fn is_alike(source: &Source) -> bool {
    source.row < UNIFORM_ROWS || source.row >= POOL
}

pub(super) fn run(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let rows = [op.a, op.b, op.c].map(|source| *warp.row(pool, source.row));
    let [how_a, how_b, how_c] = [op.a, op.b, op.c].map(operand);
    let result = match op.detail {
        Detail::Half(mode) => {
            let a = |lane: usize| mode.operand(rows[0][lane], how_a);
            let b = |lane: usize| mode.operand(rows[1][lane], how_b);
            let c = |lane: usize| mode.operand(rows[2][lane], how_c);
            match op.opcode {
                O::Hadd2 => each(|lane| half::add(a(lane), b(lane), mode)),
                O::Hmul2 => each(|lane| half::multiply(a(lane), b(lane), mode)),
                _ if mode.outside => each(|lane| {
                    let result = half::fused(a(lane), b(lane), c(lane), mode);
                    let [a, b] = [(0, how_a), (1, how_b)].map(|(at, how)| how.swizzle.halves(rows[at][lane]));
                    half::outside(result, a, b)
                }),
                // Constants are moved so: nothing is left of the product, and all lanes are alike.
                _ if [op.a, op.b, op.c].iter().all(is_alike) => [half::fused(a(0), b(0), c(0), mode); LANES],
                _ => each(|lane| half::fused(a(lane), b(lane), c(lane), mode)),
            }
        }
        Detail::Extreme(mode, how) => {
            let smaller = warp.lanes(op.from[0]);
            each(|lane| {
                let [a, b] = [(0, how_a), (1, how_b)].map(|(at, how)| mode.operand(rows[at][lane], how));
                let picked = half::pick(a, b, smaller >> lane & 1 == 0, how.nan_wins, mode);
                if !how.signs {
                    return picked;
                }
                let [a, b] = [(0, how_a), (1, how_b)].map(|(at, how)| how.swizzle.halves(rows[at][lane]));
                half::with_signs(picked, [a[0] ^ b[0], a[1] ^ b[1]])
            })
        }
        Detail::HalfCompare(mode, accepted, how, both) => {
            let found = relations(&rows, [how_a, how_b], mode, accepted);
            let with = warp.lanes(op.from[0]);
            if op.opcode == O::Hsetp2 {
                let [low, high] = found;
                let (one, two) = if both { (low & high, !(low & high)) } else { (low, high) };
                warp.put_predicate(op.to[0], combine(one, with, how), mask);
                warp.put_predicate(op.to[1], combine(two, with, how), mask);
                return Ok(());
            }
            let holds: u32 = match (both, mode.format == crate::numerics::Format::HALF) {
                (false, _) => u32::from(u16::MAX),
                (true, true) => 0x3c00,
                (true, false) => 0x3f80,
            };
            let [low, high] = found.map(|found| combine(found, with, how));
            each(|lane| ((low >> lane & 1) * holds) | ((high >> lane & 1) * (holds << 16)))
        }
        _ => return Ok(()),
    };
    put(warp, op.d, &result, mask)
}

fn relations(rows: &[Row; 3], how: [Operand; 2], mode: Mode, accepted: u8) -> [u32; 2] {
    let mut found = [0; 2];
    for (lane, (a, b)) in rows[0].iter().zip(&rows[1]).enumerate() {
        let relation = half::relation(mode.operand(*a, how[0]), mode.operand(*b, how[1]));
        for (found, relation) in found.iter_mut().zip(relation) {
            *found |= u32::from(relation & u32::from(accepted) != 0) << lane;
        }
    }
    found
}
