//! Words of single precision in parts.

use super::super::exact::{Number, POINT, Value};
use super::super::float;
use super::super::format::Format;
use super::super::rounding::Rounding;

pub(super) const SIGN: u32 = (-0.0_f32).to_bits();
pub(super) const INFINITY: u32 = f32::INFINITY.to_bits();
pub(super) const ONE: u32 = 1.0_f32.to_bits();

/// Exponent of a normal number.
pub(super) const fn exponent(word: u32) -> i32 {
    (word << 1 >> 24).cast_signed() - 127
}

pub(super) const fn mantissa(word: u32) -> u32 {
    word << 9 >> 9
}

/// `magnitude * 2^unit` as a word, cut, subnormal results as 0.
#[allow(clippy::cast_possible_truncation, reason = "a word of single precision")]
pub(super) fn number(negative: bool, magnitude: u128, unit: i32) -> u32 {
    let number = Number::new(negative, unit + POINT.cast_signed(), magnitude);
    if number.exponent > 127 {
        return u32::from(negative) << 31 | INFINITY;
    }
    float::flush(Format::SINGLE.word(Value::Number(number), Rounding::Zero) as u32)
}

/// A number in units of `2^-bits`, rounded down; its magnitude is cut off at 2^30 units above the point.
pub(super) fn fixed(word: u32, bits: i32) -> i64 {
    let magnitude = i64::from(mantissa(word) | 0x80_0000);
    let shift = exponent(word) - 23 + bits;
    if word & !SIGN == 0 {
        return 0;
    }
    let signed = if word & SIGN == 0 { magnitude } else { -magnitude };
    if shift >= 0 { signed << shift.min(36) } else { signed >> (-shift).min(62) }
}
