//! Sine, cosine and the hyperbolic tangent.

use super::super::float::NAN;
use super::super::mufu_measured as tables;
use super::parts::{INFINITY, ONE, SIGN, exponent, fixed, mantissa, number};

/// Units of a quarter of a turn: arguments have 25 bits below the point (contract, measured).
const QUARTER: i64 = 1 << 23;

/// Sine of a part of a turn that `ahead` units of 2^-25 were added to. The second quadrant is the first at
/// the complement of its bits, the others are the first two's, negative.
pub(super) fn turn(word: u32, ahead: i64) -> u32 {
    if word & !SIGN == INFINITY {
        return NAN;
    }
    let parts = fixed(word & !SIGN, 25) + ahead;
    let quadrant = parts / QUARTER % 4;
    let place = u32::try_from(parts % QUARTER).unwrap_or(0);
    let place = if quadrant & 1 == 0 { place } else { 0x7f_ffff - place };
    let negative = (quadrant & 2 != 0) != (word & SIGN != 0);
    // What is below 2^-37 is lost (measured on an H200).
    let sum = tables::SINE.sum(place) >> (tables::SINE.fine_bits() - 13);
    number(negative, sum.unsigned_abs().into(), -37)
}

/// Rows of a binade: the first one, and how many bits of the mantissa are left out (measured on an H200).
struct Binade {
    row: usize,
    dropped: u32,
}

/// From 2^-8 on. Below, the tangent is its argument; from 8 on it is 1.
const BINADES: [Binade; 11] = [
    Binade { row: 0, dropped: 6 },
    Binade { row: 1, dropped: 6 },
    Binade { row: 2, dropped: 6 },
    Binade { row: 3, dropped: 5 },
    Binade { row: 5, dropped: 5 },
    Binade { row: 7, dropped: 4 },
    Binade { row: 11, dropped: 4 },
    Binade { row: 15, dropped: 4 },
    Binade { row: 19, dropped: 3 },
    Binade { row: 27, dropped: 2 },
    Binade { row: 43, dropped: 3 },
];

/// The hyperbolic tangent. Subnormal numbers are not 0.
pub(super) fn tangent(word: u32) -> u32 {
    let sign = word & SIGN;
    let exponent = exponent(word);
    let Ok(index) = usize::try_from(exponent + 8) else { return word };
    let Some(binade) = BINADES.get(index) else { return sign | ONE };
    let argument = mantissa(word) >> binade.dropped;
    let row = binade.row + (argument >> tables::TANGENT.low_bits) as usize;
    let sum = tables::TANGENT.sum_of_row(row, argument);
    // Units are the last place of a number of the binade; those from 1/2 on have that of numbers below 1.
    let unit = exponent.min(-1) - 23;
    number(sign != 0, sum.unsigned_abs().into(), unit - tables::TANGENT.fine_bits().cast_signed())
}
