//! Loads of constants.

use super::address::MISALIGNED;
use crate::exec::context::{Context, Done, put};
use crate::op::{Detail, Op, Unit, ZERO_ROW};
use crate::row::{ALL, Kept, LANES, Lanes, Row, each};
use crate::warp::Warp;

/// LDC and its like.
#[inline(always)]
pub(in crate::exec) fn constant(
    warp: &mut Warp,
    context: &mut Context<'_>,
    op: &Op,
    pool: &[Kept],
    mask: u32,
) -> Done {
    let Detail::Constant(bank, offset, unit) = op.detail else { return Ok(()) };
    let offset = offset.cast_unsigned();
    match unit {
        Unit::Words(count) if mask == ALL && op.a.row == ZERO_ROW && offset.is_multiple_of(4) => {
            let mut row = op.d;
            for index in 0..u32::from(count) {
                let word = context.program.constants().word(bank, offset.wrapping_add(4 * index));
                put(warp, row, &[word; LANES], ALL)?;
                row = crate::lower::following(row);
            }
            Ok(())
        }
        _ => by_lanes(warp, context, (op, bank, offset, unit), pool, mask),
    }
}

/// Each lane's own constant.
fn by_lanes(
    warp: &mut Warp,
    context: &mut Context<'_>,
    (op, bank, offset, unit): (&Op, u8, u32, Unit),
    pool: &[Kept],
    mask: u32,
) -> Done {
    let base = warp.row(pool, op.a.row);
    let offsets = each(|lane| base[lane].wrapping_add(offset));
    let constants = context.program.constants();
    let rows = |more: u32| -> Row { each(|lane| constants.word(bank, offsets[lane].wrapping_add(more))) };
    match unit {
        Unit::Small(bytes, signed) => {
            let words = rows(0);
            let value = each(|lane| {
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
