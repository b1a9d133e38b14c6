//! Sums and products to the nearest, as the host's own arithmetic has them, of whole rows.

use crate::numerics::float::{self, Mode};
use crate::numerics::rounding::Rounding;
use crate::row::{Row, each};

const SIGN: u32 = (-0.0_f32).to_bits();
const LEAST: u32 = f32::MIN_POSITIVE.to_bits();

/// FTZ alone.
const FLUSH: Mode = Mode { rounding: Rounding::Nearest, flush: true, zero_wins: false, saturate: false };

#[inline(always)]
const fn number(word: u32, sign: u32) -> f32 {
    f32::from_bits(word ^ sign)
}

#[inline(always)]
const fn flushed(word: u32, sign: u32) -> f32 {
    f32::from_bits(float::flush(word ^ sign))
}

/// `a + b`, with signs changed first.
#[inline(always)]
pub(in crate::exec) fn add([a, b]: [&Row; 2], [x, y]: [u32; 2]) -> Row {
    each(|lane| float::canonical(number(a[lane], x) + number(b[lane], y)))
}

/// The same, where subnormal numbers are 0. A sum that is one is exact.
#[inline(always)]
pub(in crate::exec) fn add_flushed([a, b]: [&Row; 2], [x, y]: [u32; 2]) -> Row {
    each(|lane| float::flush(float::canonical(flushed(a[lane], x) + flushed(b[lane], y))))
}

/// `a * b`, with signs changed first.
#[inline(always)]
pub(in crate::exec) fn multiply([a, b]: [&Row; 2], [x, y]: [u32; 2]) -> Row {
    each(|lane| float::canonical(number(a[lane], x) * number(b[lane], y)))
}

/// The same, where subnormal numbers are 0.
#[inline(always)]
pub(in crate::exec) fn multiply_flushed([a, b]: [&Row; 2], [x, y]: [u32; 2]) -> Row {
    let found = each(|lane| float::canonical(flushed(a[lane], x) * flushed(b[lane], y)));
    if may_be_rounded_up(&found) {
        return each(|lane| float::multiply(a[lane] ^ x, b[lane] ^ y, 0, FLUSH));
    }
    each(|lane| float::flush(found[lane]))
}

/// `a * b + c`, rounded once, with signs changed first.
#[inline(always)]
pub(in crate::exec) fn fused([a, b, c]: [&Row; 3], [x, y, z]: [u32; 3]) -> Row {
    each(|lane| float::canonical(number(a[lane], x).mul_add(number(b[lane], y), number(c[lane], z))))
}

/// The same, where subnormal numbers are 0.
#[inline(always)]
pub(in crate::exec) fn fused_flushed([a, b, c]: [&Row; 3], [x, y, z]: [u32; 3]) -> Row {
    let found =
        each(|lane| float::canonical(flushed(a[lane], x).mul_add(flushed(b[lane], y), flushed(c[lane], z))));
    if may_be_rounded_up(&found) {
        return each(|lane| float::fused(a[lane] ^ x, b[lane] ^ y, c[lane] ^ z, FLUSH));
    }
    each(|lane| float::flush(found[lane]))
}

/// Whether a result may have been below the smallest normal number before it was rounded: it is 0 then.
#[inline(always)]
fn may_be_rounded_up(found: &Row) -> bool {
    found.iter().fold(0, |any, word| any | u32::from(word & !SIGN == LEAST)) != 0
}
