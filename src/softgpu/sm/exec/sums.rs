//! Sums of integers, with what carries: IADD3 and LEA.

use super::context::{Done, put};
use crate::numerics::integer as words;
use crate::op::{Detail, Op, Source, TRUE};
use crate::row::{Kept, LANES, Row, each, low, mask as lanes, pair};
use crate::warp::Warp;

/// A source with its sign changed, or, where a longer number goes on, its complement.
#[inline(always)]
pub(super) fn signed(warp: &Warp, pool: &[Kept], source: Source, complement: bool) -> Row {
    let row = warp.row(pool, source.row);
    match (source.negate, complement) {
        (false, _) => *row,
        (true, false) => each(|lane| row[lane].wrapping_neg()),
        (true, true) => each(|lane| !row[lane]),
    }
}

/// All ones if a source's sign is changed.
#[inline(always)]
const fn complement(source: Source) -> u32 {
    if source.negate { u32::MAX } else { 0 }
}

/// Each lane's bit of a condition.
#[inline(always)]
pub(super) fn bit(mask: u32, lane: usize) -> u32 {
    mask >> lane & 1
}

/// IADD3 and its like.
#[inline(always)]
pub(super) fn sum(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let extended = matches!(op.detail, Detail::Integer { extended: true, .. });
    if op.to == [TRUE; 2] && !extended {
        let (a, b, c) = (warp.row(pool, op.a.row), warp.row(pool, op.b.row), warp.row(pool, op.c.row));
        let (of_a, of_b, of_c) = (complement(op.a), complement(op.b), complement(op.c));
        // The sign is changed by the complement and one more.
        let one = 0_u32.wrapping_sub(of_a).wrapping_sub(of_b).wrapping_sub(of_c);
        let result = each(|lane| {
            let sum = (a[lane] ^ of_a).wrapping_add(b[lane] ^ of_b).wrapping_add(c[lane] ^ of_c);
            sum.wrapping_add(one)
        });
        return put(warp, op.d, &result, mask);
    }
    // A negated operand is its complement and a carry of one, but where another sum's carry comes in.
    let [a, b, c] = [op.a, op.b, op.c].map(|source| signed(warp, pool, source, true));
    let ones = [op.a, op.b, op.c].iter().map(|source| u32::from(source.negate)).sum::<u32>();
    let carries = extended.then(|| [op.from[0], op.from[1]].map(|from| warp.lanes(from)));
    let more = if extended { 0 } else { ones };
    let (result, [one, two]) = carried([&a, &b, &c], [0; 3], carries, more);
    put(warp, op.d, &result, mask)?;
    warp.put_predicate(op.to[0], one, mask);
    warp.put_predicate(op.to[1], two, mask);
    Ok(())
}

/// Sums of three words, bits of which are flipped, of carries and of a number up to 3; with the lanes whose
/// sums carry once or more often, and those where they do so more than once.
#[inline(always)]
pub(super) fn carried(
    [a, b, c]: [&Row; 3],
    [x, y, z]: [u32; 3],
    carries: Option<[u32; 2]>,
    more: u32,
) -> (Row, [u32; 2]) {
    let (mut sums, mut over) = ([0; LANES], [0; LANES]);
    let [first, second] = carries.unwrap_or([0; 2]);
    for lane in 0..LANES {
        let (a, b, c) = (a[lane] ^ x, b[lane] ^ y, c[lane] ^ z);
        let carry = bit(first, lane) + bit(second, lane) + more;
        let two = a.wrapping_add(b);
        let three = two.wrapping_add(c);
        let sum = three.wrapping_add(carry);
        sums[lane] = sum;
        over[lane] = u32::from(two < a) + u32::from(three < c) + u32::from(sum < carry);
    }
    (sums, [lanes(|lane| over[lane] > 0), lanes(|lane| over[lane] > 1)])
}

/// LEA without signs that are changed: a shifted word, or the upper half of a shifted pair, which may be the
/// sign's, and a sum with it; and the lanes whose sums carry.
#[inline(always)]
pub(super) fn scaled(
    [a, b, c]: [&Row; 3],
    shift: u32,
    high: Option<bool>,
    carries: Option<u32>,
) -> (Row, u32) {
    let shifted = match high {
        None => each(|lane| a[lane] << shift),
        Some(sign) => {
            let below = |lane: usize| a[lane].checked_shr(32 - shift).unwrap_or(0);
            if sign {
                each(|lane| (a[lane].cast_signed() >> 31).cast_unsigned() << shift | below(lane))
            } else {
                each(|lane| c[lane] << shift | below(lane))
            }
        }
    };
    let (mut sums, mut over) = ([0; LANES], [0; LANES]);
    let carries = carries.unwrap_or(0);
    for lane in 0..LANES {
        let carry = bit(carries, lane);
        let two = shifted[lane].wrapping_add(b[lane]);
        sums[lane] = two.wrapping_add(carry);
        over[lane] = u32::from(two < b[lane]) | u32::from(sums[lane] < carry);
    }
    (sums, lanes(|lane| over[lane] != 0))
}

/// LEA in its forms.
#[inline(always)]
pub(super) fn lea(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32, how: (u32, bool, bool, bool)) -> Done {
    let (shift, high, extended, sign) = how;
    let (a, c) = (warp.row(pool, op.a.row), warp.row(pool, op.c.row));
    let shifted = each(|lane| {
        let upper = if sign { (a[lane].cast_signed() >> 31).cast_unsigned() } else { c[lane] };
        let number = pair(a[lane], if high { upper } else { 0 });
        // The pair is negated as a whole.
        let number = if op.a.negate && !extended && high { number.wrapping_neg() } else { number };
        let number = if high {
            low(number >> 32 << shift | (number & u64::from(u32::MAX)) >> (32 - shift))
        } else {
            low(number << shift)
        };
        if op.a.negate && (extended || !high) { !number } else { number }
    });
    let b = signed(warp, pool, op.b, true);
    let one = if extended { 0 } else { u32::from(op.b.negate) + u32::from(op.a.negate && !high) };
    let carries = if extended { warp.lanes(op.from[0]) } else { 0 };
    let (mut result, mut over) = ([0; 32], 0);
    for lane in 0..32 {
        let (word, carry) = words::add3(shifted[lane], b[lane], 0, one + bit(carries, lane));
        result[lane] = word;
        over |= u32::from(carry > 0) << lane;
    }
    put(warp, op.d, &result, mask)?;
    warp.put_predicate(op.to[0], over, mask);
    Ok(())
}
