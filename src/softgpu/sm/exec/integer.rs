//! Integers, moves, logic and predicates.

use gpuvmk_isa::Opcode as O;
use gpuvmk_isa::modifier::BoolOp;

use super::context::{Done, put, put_wide};
use super::sums::{bit, lea, signed, sum};
use crate::numerics::integer as words;
use crate::op::{Condition, Detail, Op};
use crate::row::{Kept, Row, each, each_wide, mask as lanes, pair};
use crate::warp::Warp;

/// A comparison's result with a predicate.
#[inline(always)]
pub(super) fn combine(result: u32, with: u32, how: BoolOp) -> u32 {
    match how {
        BoolOp::And => result & with,
        BoolOp::Or => result | with,
        BoolOp::Xor => result ^ with,
    }
}

/// MOV, SEL, PRMT, sums.
#[inline(always)]
pub(super) fn run(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let result = match (op.opcode, op.detail) {
        (O::Mov | O::Umov, _) => *warp.row(pool, op.b.row),
        (O::Sel | O::Usel, _) => {
            let (a, b, first) = (warp.row(pool, op.a.row), warp.row(pool, op.b.row), warp.lanes(op.from[0]));
            each(|lane| if bit(first, lane) == 1 { a[lane] } else { b[lane] })
        }
        (_, Detail::Permute(mode)) => {
            let [a, b, c] = [op.a, op.b, op.c].map(|source| warp.row(pool, source.row));
            each(|lane| words::permute(a[lane], b[lane], c[lane], mode))
        }
        _ => return sum(warp, op, pool, mask),
    };
    put(warp, op.d, &result, mask)
}

/// IMAD in its forms.
#[inline(always)]
pub(super) fn multiply(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let Detail::Integer { extended, signed: is_signed, high } = op.detail else { return Ok(()) };
    let carry = if extended { warp.lanes(op.from[0]) } else { 0 };
    if matches!(op.opcode, O::ImadWide | O::UimadWide) || high {
        let (a, b) = (warp.row(pool, op.a.row), warp.row(pool, op.b.row));
        let [c, d] = warp.rows(pool, op.c);
        if op.to[0] == crate::op::TRUE && !high && !extended && !op.b.negate && !op.c.negate {
            // Two loops, each of which the compiler makes of vectors.
            let sum = |lane: usize, signed: bool| {
                words::product(a[lane], b[lane], signed).wrapping_add(pair(c[lane], d[lane]))
            };
            let result = if is_signed {
                each_wide(|lane| sum(lane, true))
            } else {
                each_wide(|lane| sum(lane, false))
            };
            return put_wide(warp, op.d, &result, mask);
        }
        let (mut over, mut flip) = (0, 0);
        if op.b.negate {
            flip = u64::MAX;
        }
        let result = each_wide(|lane| {
            let product = (words::product(a[lane], b[lane], is_signed) ^ flip).wrapping_sub(flip);
            let addend = pair(c[lane], d[lane]);
            let addend =
                if op.c.negate { if extended { !addend } else { addend.wrapping_neg() } } else { addend };
            let (sum, first) = product.overflowing_add(addend);
            let (sum, second) = sum.overflowing_add(u64::from(bit(carry, lane)));
            over |= u32::from(first || second) << lane;
            sum
        });
        if high {
            put(warp, op.d, &result[1], mask)?;
        } else {
            put_wide(warp, op.d, &result, mask)?;
        }
        warp.put_predicate(op.to[0], over, mask);
        return Ok(());
    }
    if !op.b.negate && !op.c.negate && !extended {
        let (a, b, c) = (warp.row(pool, op.a.row), warp.row(pool, op.b.row), warp.row(pool, op.c.row));
        let result = each(|lane| a[lane].wrapping_mul(b[lane]).wrapping_add(c[lane]));
        return put(warp, op.d, &result, mask);
    }
    let a = *warp.row(pool, op.a.row);
    let b = signed(warp, pool, op.b, false);
    let c = signed(warp, pool, op.c, extended);
    let result =
        each(|lane| a[lane].wrapping_mul(b[lane]).wrapping_add(c[lane]).wrapping_add(bit(carry, lane)));
    put(warp, op.d, &result, mask)
}

/// Values of a table at three masks, first one highest.
fn table(table: u8, masks: [u32; 3]) -> u32 {
    words::logic(masks[0], masks[1], masks[2], table.into())
}

/// The relation of numbers that are equal, in a set of them.
const EQUAL: u8 = 1 << 1;

/// Lanes whose numbers have one of the accepted relations: less, equal, greater, from the lowest bit on.
#[inline(always)]
pub(super) fn compared(a: &Row, b: &Row, accepted: u8, signed: bool) -> u32 {
    let flip = u32::from(signed) << 31;
    let less = lanes(|lane| (a[lane] ^ flip) < (b[lane] ^ flip));
    let equal = lanes(|lane| a[lane] == b[lane]);
    let of = |bit: u8, lanes: u32| if accepted >> bit & 1 == 1 { lanes } else { 0 };
    of(0, less) | of(1, equal) | of(2, !(less | equal))
}

/// ISETP and PLOP3.
#[inline(always)]
pub(super) fn predicates(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    match op.detail {
        Detail::Compare { accepted, combine: how, signed, extended, .. } => {
            let (a, b) = (warp.row(pool, op.a.row), warp.row(pool, op.b.row));
            let result = if extended {
                // EX: where upper halves are equal, the lower halves' result stands.
                let (equal, others) =
                    (compared(a, b, EQUAL, signed), compared(a, b, accepted & !EQUAL, signed));
                others & !equal | equal & warp.lanes(op.from[2])
            } else {
                compared(a, b, accepted, signed)
            };
            let with = warp.lanes(op.from[0]);
            warp.put_predicate(op.to[0], combine(result, with, how), mask);
            warp.put_predicate(op.to[1], combine(!result, with, how), mask);
        }
        Detail::Table(first, second, _) => {
            let masks = [warp.lanes(op.from[0]), warp.lanes(op.from[1]), warp.lanes(op.from[2])];
            warp.put_predicate(op.to[0], table(first, masks), mask);
            warp.put_predicate(op.to[1], table(second, masks), mask);
        }
        _ => {}
    }
    Ok(())
}

/// Shifts, logic and counts.
#[inline(always)]
pub(super) fn bits(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let (a, b, c) = (warp.row(pool, op.a.row), warp.row(pool, op.b.row), warp.row(pool, op.c.row));
    let result = match (op.opcode, op.detail) {
        (_, Detail::Lea { shift, high, extended, signed }) => {
            return lea(warp, op, pool, mask, (shift.into(), high, extended, signed));
        }
        (_, Detail::Shift(how)) => shift(a, b, c, how),
        (O::Lop3 | O::Ulop3, Detail::Table(table, _, all)) => {
            let result = logic(a, b, c, table);
            if op.to[0] != crate::op::TRUE {
                let with = warp.lanes(op.from[0]);
                let some = lanes(|lane| result[lane] != 0);
                let some = if all { some & with } else { some | with };
                warp.put_predicate(op.to[0], some, mask);
            }
            result
        }
        (O::Iabs, _) => each(|lane| b[lane].cast_signed().unsigned_abs()),
        (O::Popc | O::Upopc, _) => {
            let flip = if op.b.negate { u32::MAX } else { 0 };
            each(|lane| (b[lane] ^ flip).count_ones())
        }
        (O::Brev | O::Ubrev, _) => each(|lane| b[lane].reverse_bits()),
        (O::Flo | O::Uflo, Detail::Bits(signed, above)) => {
            let flip = if op.b.negate { u32::MAX } else { 0 };
            let found = each(|lane| words::leading(b[lane] ^ flip, signed, above));
            // The predicate tells that no bit was found.
            let none = lanes(|lane| found[lane] == u32::MAX);
            warp.put_predicate(op.to[0], none, mask);
            found
        }
        (O::Bmsk | O::Ubmsk, Detail::Bits(_, wrap)) => each(|lane| words::bit_mask(a[lane], b[lane], wrap)),
        (O::Sgxt | O::Usgxt, Detail::Bits(signed, wrap)) => {
            each(|lane| words::extend(a[lane], b[lane], signed, wrap))
        }
        _ => return Ok(()),
    };
    put(warp, op.d, &result, mask)
}

/// SHF. A half that nothing of the other one is shifted into is shifted alone.
#[inline(always)]
pub(super) fn shift(lower: &Row, count: &Row, upper: &Row, how: words::Funnel) -> Row {
    let counted = match (how.wrap, how.wide) {
        (false, _) => u32::MAX,
        (true, false) => 31,
        (true, true) => 63,
    };
    match (how.right, how.high, how.signed) {
        (false, false, _) => each(|lane| lower[lane].checked_shl(count[lane] & counted).unwrap_or(0)),
        (true, true, false) => each(|lane| upper[lane].checked_shr(count[lane] & counted).unwrap_or(0)),
        (true, true, true) => {
            each(|lane| (upper[lane].cast_signed() >> (count[lane] & counted).min(31)).cast_unsigned())
        }
        _ => each(|lane| words::funnel(lower[lane], count[lane], upper[lane], how)),
    }
}

/// LOP3, with its commonest tables as they are.
#[inline(always)]
pub(super) fn logic(a: &Row, b: &Row, c: &Row, table: u8) -> Row {
    match table {
        0xc0 => each(|lane| a[lane] & b[lane]),
        0xfc => each(|lane| a[lane] | b[lane]),
        0x3c => each(|lane| a[lane] ^ b[lane]),
        0x96 => each(|lane| a[lane] ^ b[lane] ^ c[lane]),
        _ => each(|lane| words::logic(a[lane], b[lane], c[lane], table.into())),
    }
}

/// The smaller or the larger one, by a predicate.
#[inline(always)]
pub(super) fn pick(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let Detail::Integer { signed: is_signed, .. } = op.detail else { return Ok(()) };
    let [mut a, mut b, c] = [op.a, op.b, op.c].map(|source| signed(warp, pool, source, false));
    if op.opcode == O::Viaddmnmx {
        a = each(|lane| a[lane].wrapping_add(b[lane]));
        b = c;
    }
    let flip = u32::from(is_signed) << 31;
    let smaller = warp.lanes(op.from[0]);
    let first = lanes(|lane| ((a[lane] ^ flip) < (b[lane] ^ flip)) == (bit(smaller, lane) == 1));
    let result = each(|lane| if bit(first, lane) == 1 { a[lane] } else { b[lane] });
    put(warp, op.d, &result, mask)?;
    warp.put_predicate(op.to[0], first, mask);
    Ok(())
}

/// VABSDIFF and VABSDIFF4: the latter's bytes are added, or stay where they are.
pub(super) fn differences(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let Detail::Bits(is_signed, added) = op.detail else { return Ok(()) };
    let [a, b, c] = [op.a, op.b, op.c].map(|source| warp.row(pool, source.row));
    let result = match (op.opcode, added) {
        (O::Vabsdiff, _) => each(|lane| words::absolute_difference(a[lane], b[lane], c[lane], is_signed)),
        (_, true) => each(|lane| words::absolute_difference4(a[lane], b[lane], c[lane], is_signed)),
        (_, false) => each(|lane| words::absolute_differences(a[lane], b[lane])),
    };
    put(warp, op.d, &result, mask)
}

/// VIMNMX of two halves.
pub(super) fn pick_halves(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let Detail::Integer { signed, .. } = op.detail else { return Ok(()) };
    let [a, b] = [op.a, op.b].map(|source| warp.row(pool, source.row));
    let smaller = warp.lanes(op.from[0]);
    let result = each(|lane| words::pick_halves(a[lane], b[lane], bit(smaller, lane) == 1, signed));
    put(warp, op.d, &result, mask)
}

/// IDP: a sum of products of bytes, or of halves and bytes.
pub(super) fn dot(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let Detail::Dot(dot) = op.detail else { return Ok(()) };
    let [a, b] = [op.a, op.b].map(|source| warp.row(pool, source.row));
    let c = signed(warp, pool, op.c, false);
    let (first, second) = dot.signed;
    let result = each(|lane| {
        let (a, b, c) = (a[lane], b[lane], c[lane]);
        if dot.bytes {
            words::dot4(a, b, c, first, second)
        } else {
            words::dot2(a, b, c, first, second, dot.high)
        }
    });
    put(warp, op.d, &result, mask)
}

/// P2R and R2P: predicates as the low bits of a register.
pub(super) fn packed_predicates(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    let [a, b] = [op.a, op.b].map(|source| *warp.row(pool, source.row));
    if op.opcode == O::P2r {
        let predicates: [u32; 7] = std::array::from_fn(|index| {
            warp.lanes(Condition { index: u8::try_from(index).unwrap_or(0), negate: false })
        });
        let result = each(|lane| {
            let packed = (0..7).fold(0, |word, index| word | bit(predicates[index], lane) << index);
            a[lane] & !b[lane] | packed & b[lane]
        });
        return put(warp, op.d, &result, mask);
    }
    for index in 0..7_u8 {
        let chosen = lanes(|lane| b[lane] >> index & 1 == 1);
        let value = lanes(|lane| a[lane] >> index & 1 == 1);
        warp.put_predicate(index, value, mask & chosen);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_that_are_shifted_alone_are_those_of_the_pair() {
        let mut random = fastrand::Rng::with_seed(9);
        for flags in 0..32 {
            let flag = |bit: u32| flags >> bit & 1 == 1;
            let how = words::Funnel {
                right: flag(0),
                high: flag(1),
                wide: flag(2),
                signed: flag(3),
                wrap: flag(4),
            };
            for _ in 0..50 {
                let [lower, upper] = [(); 2].map(|()| each(|_| random.u32(..)));
                let count = each(|_| [random.u32(0..70), random.u32(..), 31, 32, 33, 64][random.usize(0..6)]);
                let found = shift(&lower, &count, &upper, how);
                let expected = each(|lane| words::funnel(lower[lane], count[lane], upper[lane], how));
                assert_eq!(found, expected, "{how:?} {count:?}");
            }
        }
    }
}
