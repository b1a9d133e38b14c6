//! MUFU: functions by tables of quadratics (contract, measured: each table has every result of an H100 for
//! all mantissas of its range).

use super::exact::{Number, POINT, Value};
use super::float::{self, NAN};
use super::format::Format;
use super::mufu_tables as tables;
use super::rounding::Rounding;

const SIGN: u32 = (-0.0_f32).to_bits();
const INFINITY: u32 = f32::INFINITY.to_bits();
/// The fraction in the upper word of a double.
const FRACTION_HIGH: u32 = u32::MAX >> 12;
const ONE: u32 = 1.0_f32.to_bits();

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
            _ => self.of_number(float::flush(word)),
        }
    }

    fn of_number(self, word: u32) -> u32 {
        match self {
            Self::Cosine => turn(word, 1 << 23),
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

/// Exponent of a normal number.
const fn exponent(word: u32) -> i32 {
    (word << 1 >> 24).cast_signed() - 127
}

const fn mantissa(word: u32) -> u32 {
    word << 9 >> 9
}

/// `magnitude * 2^unit` as a word, cut, subnormal results as 0.
#[allow(clippy::cast_possible_truncation, reason = "a word of single precision")]
fn number(negative: bool, magnitude: u128, unit: i32) -> u32 {
    let number = Number::new(negative, unit + POINT.cast_signed(), magnitude);
    if number.exponent > 127 {
        return u32::from(negative) << 31 | INFINITY;
    }
    float::flush(Format::SINGLE.word(Value::Number(number), Rounding::Zero) as u32)
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

/// A number in units of `2^-bits`, rounded down; its magnitude is cut off at 2^30 units above the point.
fn fixed(word: u32, bits: i32) -> i64 {
    let magnitude = i64::from(mantissa(word) | 0x80_0000);
    let shift = exponent(word) - 23 + bits;
    if word & !SIGN == 0 {
        return 0;
    }
    let signed = if word & SIGN == 0 { magnitude } else { -magnitude };
    if shift >= 0 { signed << shift.min(36) } else { signed >> (-shift).min(62) }
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

/// Sine of a part of a turn that `ahead` 2^-25 were added to (contract, measured: arguments have 25 bits
/// below the point). The quadrant's curve is not the table of hardware: results differ in their last places.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 2^24")]
fn turn(word: u32, ahead: i64) -> u32 {
    if word & !SIGN == INFINITY {
        return NAN;
    }
    let parts = fixed(word, 25) + ahead;
    let quadrant = (parts >> 23).rem_euclid(4);
    let place = parts.rem_euclid(1 << 23);
    let place = if quadrant & 1 == 0 { place } else { 0x7f_ffff - place };
    #[allow(clippy::cast_precision_loss, reason = "23 bits")]
    let sine = (place as f64 * (std::f64::consts::FRAC_PI_2 / f64::from(1 << 23))).sin();
    number(quadrant & 2 != 0, (sine * f64::from(1 << 24)) as u128, -24)
}

/// Not hardware's table, which is coarser: results differ in their last places.
#[allow(clippy::cast_possible_truncation, reason = "the rounding is meant")]
fn tangent(word: u32) -> u32 {
    (f64::from(f32::from_bits(word)).tanh() as f32).to_bits()
}

/// The reciprocal of a double by its upper word, from the singles' table: a seed, of which hardware's last
/// bits are not known.
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
