//! Double precision.

use gpuvmk_isa::Opcode as O;

use super::context::{Done, put_wide};
use super::integer::combine;
use crate::numerics::double;
use crate::op::{Detail, Op, Source};
use crate::row::{Kept, Row, each_wide, mask as lanes, pair};
use crate::warp::Warp;

/// A lane's double, with magnitude and sign as the modifiers say. A NaN stays as it is (seen on an H100).
#[inline(always)]
fn value(rows: [&Row; 2], source: Source, lane: usize) -> u64 {
    const SIGN: u64 = 1 << 63;
    let word = pair(rows[0][lane], rows[1][lane]);
    if f64::from_bits(word).is_nan() {
        return word;
    }
    let word = if source.absolute { word & !SIGN } else { word };
    if source.negate { word ^ SIGN } else { word }
}

pub(super) fn run(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let [a, b, c] = [op.a, op.b, op.c].map(|source| (warp.rows(pool, source), source));
    let at = |(rows, source): ([&Row; 2], Source), lane| value(rows, source, lane);
    let result = match (op.opcode, op.detail) {
        (O::Dadd, Detail::Double(rounding)) => {
            each_wide(|lane| double::add(at(a, lane), at(b, lane), rounding))
        }
        (O::Dmul, Detail::Double(rounding)) => {
            each_wide(|lane| double::multiply(at(a, lane), at(b, lane), rounding))
        }
        (O::Dfma, Detail::Double(rounding)) => {
            each_wide(|lane| double::fused(at(a, lane), at(b, lane), at(c, lane), rounding))
        }
        (_, Detail::Compare { accepted, combine: how, .. }) => {
            let found = lanes(|lane| double::relation(at(a, lane), at(b, lane)) & u32::from(accepted) != 0);
            let with = warp.lanes(op.from[0]);
            warp.put_predicate(op.to[0], combine(found, with, how), mask);
            warp.put_predicate(op.to[1], combine(!found, with, how), mask);
            return Ok(());
        }
        (_, Detail::Pick(larger, how)) => {
            let pick = |lane| double::pick(at(a, lane), at(b, lane), larger);
            let with = warp.lanes(op.from[0]);
            let (first, none) = (lanes(|lane| pick(lane).0), lanes(|lane| pick(lane).1));
            warp.put_predicate(op.to[0], combine(first, with, how), mask);
            warp.put_predicate(op.to[1], combine(none, with, how), mask);
            return Ok(());
        }
        _ => return Ok(()),
    };
    put_wide(warp, op.d, &result, mask)
}
