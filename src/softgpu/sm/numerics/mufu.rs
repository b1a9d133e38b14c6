//! MUFU: functions by tables of quadratics, as an H200 computes them: each table has every result that was
//! measured, which are those of all mantissas of its range but for TANH below 2^-3.

mod parts;
mod turn;

use super::float::{self, NAN};
use super::format::Format;
use super::mufu_tables as tables;
use super::rounding::Rounding;
use parts::{INFINITY, ONE, SIGN, exponent, fixed, mantissa, number};
use turn::{tangent, turn};

/// The fraction in the upper word of a double.
const FRACTION_HIGH: u32 = u32::MAX >> 12;
/// Results from here on are infinite as halves.
const BEYOND_HALVES: u32 = 65_536.0_f32.to_bits();

/// What MUFU computes. The discriminants are the field's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// Cosine of a part of a turn.
    Cosine = 0,
    /// Sine of a part of a turn.
    Sine = 1,
    /// EX2.
    Power = 2,
    /// LG2.
    Logarithm = 3,
    /// RCP.
    Reciprocal = 4,
    /// RSQ.
    ReciprocalRoot = 5,
    /// RCP64H: of a double's upper word.
    ReciprocalHigh = 6,
    /// RSQ64H: of a double's upper word.
    ReciprocalRootHigh = 7,
    /// SQRT.
    Root = 8,
    /// TANH.
    Tangent = 9,
}

impl Function {
    /// Function of a field of four bits.
    #[must_use]
    pub const fn of(field: u32) -> Option<Self> {
        Some(match field {
            0 => Self::Cosine,
            1 => Self::Sine,
            2 => Self::Power,
            3 => Self::Logarithm,
            4 => Self::Reciprocal,
            5 => Self::ReciprocalRoot,
            6 => Self::ReciprocalHigh,
            7 => Self::ReciprocalRootHigh,
            8 => Self::Root,
            9 => Self::Tangent,
            _ => return None,
        })
    }

    /// The function of a word. Subnormal arguments and results are 0.
    #[must_use]
    pub fn of_word(self, word: u32) -> u32 {
        match self {
            Self::ReciprocalHigh => reciprocal_high(word),
            Self::ReciprocalRootHigh => reciprocal_root_high(word),
            _ if word & !SIGN > INFINITY => NAN,
            // Alone among them it takes subnormal numbers.
            Self::Tangent => tangent(word),
            _ => self.of_number(float::flush(word)),
        }
    }

    /// The function of a half in the lower bits of a word: the result of its number, cut. Bits above are 0.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "a half")]
    pub fn of_half(self, word: u32) -> u32 {
        let single = Format::SINGLE.word(Format::HALF.value(u64::from(word as u16)), Rounding::Zero) as u32;
        let result = self.of_word(single);
        match result & !SIGN {
            BEYOND_HALVES..=INFINITY => Format::HALF.infinity(result & SIGN != 0) as u32,
            _ => Format::HALF.word(Format::SINGLE.value(result.into()), Rounding::Zero) as u32,
        }
    }

    fn of_number(self, word: u32) -> u32 {
        match self {
            Self::Cosine => turn(word & !SIGN, 1 << 23),
            Self::Sine => turn(word, 0),
            Self::Power => power(word),
            Self::Logarithm => logarithm(word),
            Self::Reciprocal | Self::ReciprocalHigh => reciprocal(word),
            Self::ReciprocalRoot | Self::ReciprocalRootHigh => reciprocal_root(word),
            Self::Root => root(word),
            Self::Tangent => tangent(word),
        }
    }
}

fn reciprocal(word: u32) -> u32 {
    let sign = word & SIGN;
    match word & !SIGN {
        0 => sign | INFINITY,
        INFINITY => sign,
        _ => {
            let units = tables::RECIPROCAL.at(mantissa(word));
            number(sign != 0, units.into(), -24 - exponent(word))
        }
    }
}

/// Mantissa of a normal number below an even power of two, from 1 to below 4: whether it is 2 or more, and
/// half of that power's exponent.
const fn even(word: u32) -> (bool, i32) {
    let exponent = exponent(word);
    (exponent & 1 != 0, exponent >> 1)
}

fn reciprocal_root(word: u32) -> u32 {
    match word {
        0 | SIGN => word | INFINITY,
        INFINITY => 0,
        _ if word & SIGN != 0 => NAN,
        _ => {
            let (upper, half) = even(word);
            let mantissa = mantissa(word);
            let units = if upper {
                tables::RECIPROCAL_ROOT_2.at(mantissa)
            } else if mantissa == 0 {
                // The one exception from the table: an exact 1.
                1 << 24
            } else {
                tables::RECIPROCAL_ROOT_1.at(mantissa)
            };
            number(false, units.into(), -24 - half)
        }
    }
}

fn root(word: u32) -> u32 {
    match word {
        0 | SIGN | INFINITY => word,
        _ if word & SIGN != 0 => NAN,
        _ => {
            let (upper, half) = even(word);
            let mantissa = mantissa(word);
            let units = if upper { tables::ROOT_2.at(mantissa) } else { tables::ROOT_1.at(mantissa) };
            number(false, units.into(), half - 23)
        }
    }
}

fn power(word: u32) -> u32 {
    // The magnitude has 23 bits below the point, others are cut off. That of a negative argument is
    // complemented bit by bit, unless nothing is below the point (measured on an H200).
    match exponent(word) {
        7.. if word & SIGN == 0 => return INFINITY,
        8.. => return 0,
        _ => {}
    }
    let magnitude = fixed(word & !SIGN, 23);
    let argument = match word & SIGN {
        0 => magnitude,
        _ if magnitude % (1 << 23) == 0 => -magnitude,
        _ => !magnitude,
    };
    let fraction = u32::try_from(argument.rem_euclid(1 << 23)).unwrap_or(0);
    let whole = i32::try_from(argument >> 23).unwrap_or(0);
    number(false, tables::POWER.at(fraction).into(), whole - 23)
}

fn logarithm(word: u32) -> u32 {
    match word {
        0 | SIGN => return SIGN | INFINITY,
        INFINITY => return word,
        _ if word & SIGN != 0 => return NAN,
        ONE => return 0,
        _ => {}
    }
    // 1 + log2 of the mantissa, with bits below the unit; those are kept where the whole part leaves room.
    let fine = tables::LOGARITHM.fine_bits();
    let whole = i128::from(exponent(word) - 1) << (23 + fine);
    let sum = i128::from(tables::LOGARITHM.sum(mantissa(word))) + whole;
    // What is below 2^-36 is lost (measured on an H200).
    let lost = fine - 13;
    number(sum < 0, sum.unsigned_abs() >> lost, -36)
}

/// The reciprocal of a double by its upper word, from the singles' table.
fn reciprocal_high(word: u32) -> u32 {
    let sign = word & SIGN;
    let field = field_high(word);
    match field {
        0 => sign | 0x7ff0_0000,
        0x7ff if word & FRACTION_HIGH != 0 => NAN,
        0x7ff => sign,
        _ => {
            let units = tables::RECIPROCAL.at((word & FRACTION_HIGH) << 3);
            // 2^24 units are 1.
            let (mantissa, shift) = if units >> 24 == 1 { (0, 0) } else { (units - (1 << 23), 1) };
            high_word(sign, 2046 - field - shift, mantissa >> 3)
        }
    }
}

fn reciprocal_root_high(word: u32) -> u32 {
    let field = field_high(word);
    match field {
        0 => word & SIGN | 0x7ff0_0000,
        0x7ff if word & FRACTION_HIGH != 0 => NAN,
        _ if word & SIGN != 0 => NAN,
        0x7ff => 0,
        _ => {
            let exponent = field - 1023;
            let mantissa = (word & FRACTION_HIGH) << 3;
            let units = if exponent & 1 != 0 {
                tables::RECIPROCAL_ROOT_2.at(mantissa)
            } else if mantissa == 0 {
                1 << 24
            } else {
                tables::RECIPROCAL_ROOT_1.at(mantissa)
            };
            let (mantissa, shift) = if units >> 24 == 1 { (0, 0) } else { (units - (1 << 23), 1) };
            high_word(0, 1023 - (exponent >> 1) - shift, mantissa >> 3)
        }
    }
}

/// Exponent's field of the upper word of a double.
const fn field_high(word: u32) -> i32 {
    (word << 1 >> 21).cast_signed()
}

const fn high_word(sign: u32, field: i32, mantissa: u32) -> u32 {
    if field <= 0 { sign } else { sign | field.cast_unsigned() << 20 | mantissa }
}

#[cfg(test)]
mod tests;
