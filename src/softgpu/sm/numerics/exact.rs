//! Exact numbers: what operations compute before they round.

use super::rounding::Rounding;

/// Place of the leading one of a significand.
pub(super) const POINT: u32 = 126;

/// What a word of a floating point format means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// Not a number.
    Nan,
    /// Infinity.
    Infinity {
        /// Its sign.
        negative: bool,
    },
    /// Anything else.
    Number(Number),
}

/// `significand * 2^(exponent - 126)`: bit 126 of the significand is set, or it is 0. Its lowest bit may
/// stand for everything below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    pub(super) negative: bool,
    pub(super) exponent: i32,
    pub(super) significand: u128,
}

impl Number {
    /// A number whose significand is brought into place.
    #[must_use]
    pub const fn new(negative: bool, exponent: i32, significand: u128) -> Self {
        if significand == 0 {
            return Self { negative, exponent: 0, significand };
        }
        if significand >> 127 == 1 {
            return Self { negative, exponent: exponent.saturating_add(1), significand: jam(significand, 1) };
        }
        let shift = significand.leading_zeros() - 1;
        let exponent = exponent.saturating_sub(shift.cast_signed());
        Self { negative, exponent, significand: significand << shift }
    }

    /// A whole number.
    #[must_use]
    pub const fn whole(negative: bool, magnitude: u64) -> Self {
        Self::new(negative, 126, magnitude as u128)
    }

    /// Whether it is 0.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.significand == 0
    }
}

/// `word >> by`, with the lowest bit set if any was lost.
const fn jam(word: u128, by: u32) -> u128 {
    if by == 0 {
        word
    } else if by >= 128 {
        (word != 0) as u128
    } else {
        word >> by | (word << (128 - by) != 0) as u128
    }
}

impl Value {
    /// Whether its sign bit is set. NaN has none.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        match self {
            Self::Nan => false,
            Self::Infinity { negative } | Self::Number(Number { negative, .. }) => negative,
        }
    }

    /// The product of two values with 64 significant bits at most each: exact.
    #[must_use]
    pub const fn times(self, other: Self) -> Self {
        let negative = self.is_negative() != other.is_negative();
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Infinity { .. }, Self::Number(number)) | (Self::Number(number), Self::Infinity { .. })
                if number.is_zero() =>
            {
                Self::Nan
            }
            (Self::Infinity { .. }, _) | (_, Self::Infinity { .. }) => Self::Infinity { negative },
            (Self::Number(one), Self::Number(two)) => {
                // Bits 126 to 63 of each: the product's leading one is bit 126 or 127.
                let product = (one.significand >> 63) * (two.significand >> 63);
                Self::Number(Number::new(negative, one.exponent + two.exponent, product))
            }
        }
    }

    /// The sum. What it loses lies below all that a rounding to 106 bits sees, if neither operand has more
    /// significant bits. The rounding is that of the sign of an exact 0.
    #[must_use]
    pub const fn plus(self, other: Self, rounding: Rounding) -> Self {
        match (self, other) {
            (Self::Nan, _) | (_, Self::Nan) => Self::Nan,
            (Self::Infinity { negative }, Self::Infinity { negative: second }) => {
                if negative == second {
                    self
                } else {
                    Self::Nan
                }
            }
            (Self::Infinity { .. }, _) => self,
            (_, Self::Infinity { .. }) => other,
            (Self::Number(one), Self::Number(two)) => Self::Number(sum(one, two, rounding)),
        }
    }
}

const fn sum(one: Number, two: Number, rounding: Rounding) -> Number {
    let cancelled = matches!(rounding, Rounding::Down);
    if one.is_zero() && two.is_zero() {
        let negative = if one.negative == two.negative { one.negative } else { cancelled };
        return Number::new(negative, 0, 0);
    }
    if one.is_zero() {
        return two;
    }
    if two.is_zero() {
        return one;
    }
    let larger =
        one.exponent > two.exponent || one.exponent == two.exponent && one.significand >= two.significand;
    let (large, small) = if larger { (one, two) } else { (two, one) };
    let aligned = jam(small.significand, large.exponent.abs_diff(small.exponent));
    if large.negative == small.negative {
        return Number::new(large.negative, large.exponent, large.significand + aligned);
    }
    let difference = large.significand - aligned;
    let negative = if difference == 0 { cancelled } else { large.negative };
    Number::new(negative, large.exponent, difference)
}
