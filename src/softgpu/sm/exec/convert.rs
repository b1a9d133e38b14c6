//! Conversions. Their source is the second one; values of 64 bits are pairs.

use super::context::{Done, put, put_wide};
use super::float;
use crate::numerics::convert;
use crate::numerics::exact::Value;
use crate::numerics::float::{flush, saturate};
use crate::numerics::format::Format;
use crate::numerics::half::Swizzle;
use crate::numerics::rounding::Rounding;
use crate::op::{Detail, Op};
use crate::row::{Kept, Row, each, each_wide, low, pair};
use crate::warp::Warp;

/// The source of a lane, with a float's modifiers, in the low bits.
fn word(warp: &Warp, op: &Op, pool: &[Kept], format: Format, lane: usize) -> u64 {
    let [first, second] = warp.rows(pool, op.b);
    let word = match format.bits() {
        64 => pair(first[lane], second[lane]),
        16 if op.b.swizzle == Swizzle::H1H1 => u64::from(first[lane] >> 16),
        16 => u64::from(first[lane] << 16 >> 16),
        _ => u64::from(first[lane]),
    };
    let sign = format.zero(true);
    // What is to and from doubles leaves a NaN as it is.
    let doubles = match op.detail {
        Detail::FloatFloat(from, to, _) => from == Format::DOUBLE || to == Format::DOUBLE,
        _ => false,
    };
    if doubles && format.value(word) == Value::Nan {
        return word;
    }
    let word = if op.b.absolute { word & !sign } else { word };
    if op.b.negate { word ^ sign } else { word }
}

fn store(warp: &mut Warp, op: &Op, bits: u32, result: &[Row; 2], mask: u32) -> Done {
    if bits == 64 { put_wide(warp, op.d, result, mask) } else { put(warp, op.d, &result[0], mask) }
}

pub(super) fn run(warp: &mut Warp, op: &Op, pool: &[Kept], mask: u32) -> Done {
    match op.detail {
        Detail::FloatFloat(from, to, mode) => {
            let whole = op.opcode == gpuvmk_isa::Opcode::Frnd;
            let result = each_wide(|lane| {
                let word = word(warp, op, pool, from, lane);
                let word = if mode.flush && from == Format::SINGLE { from.flush(word) } else { word };
                let word = if whole {
                    convert::round_word(word, from, mode.rounding)
                } else {
                    convert::float_to_float(word, from, to, mode.rounding)
                };
                match (to == Format::SINGLE, mode.flush, mode.saturate) {
                    (true, flushes, saturates) => {
                        let single = if flushes { flush(low(word)) } else { low(word) };
                        u64::from(if saturates { saturate(single) } else { single })
                    }
                    _ => word,
                }
            });
            store(warp, op, to.bits(), &result, mask)
        }
        Detail::FloatInteger(from, to, mode) => {
            let result = each_wide(|lane| {
                let word = word(warp, op, pool, from, lane);
                let word = if mode.flush { from.flush(word) } else { word };
                let integer = convert::float_to_integer(word, from, to, mode.rounding);
                // The word of a double's NaN is not extended.
                let extends = to.bits < 32 && from.value(word) != Value::Nan;
                if extends { to.extend(integer) } else { integer }
            });
            store(warp, op, to.bits, &result, mask)
        }
        // The host's own conversions round to the nearest.
        Detail::IntegerFloat(from, Format::SINGLE, Rounding::Nearest, 0) if from.bits == 32 => {
            let words = warp.row(pool, op.b.row);
            #[allow(clippy::cast_precision_loss, reason = "it is rounded as it is asked for")]
            let result = if from.signed {
                each(|lane| (words[lane].cast_signed() as f32).to_bits())
            } else {
                each(|lane| (words[lane] as f32).to_bits())
            };
            put(warp, op.d, &result, mask)
        }
        Detail::IntegerFloat(from, to, rounding, lowest) => {
            let [first, second] = warp.rows(pool, op.b);
            let result = each_wide(|lane| {
                convert::integer_to_float(pair(first[lane], second[lane]) >> lowest, from, to, rounding)
            });
            store(warp, op, to.bits(), &result, mask)
        }
        Detail::Pack(mode) => {
            let [a, b] = [op.a, op.b].map(|source| float::source(warp, pool, source));
            let result = each(|lane| convert::pack(a[lane], b[lane], mode));
            put(warp, op.d, &result, mask)
        }
        _ => Ok(()),
    }
}
