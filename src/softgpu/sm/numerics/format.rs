//! Floating point formats, and how a word becomes an exact number and back.

use super::exact::{Number, POINT, Value};
use super::rounding::Rounding;

/// A binary format of IEEE 754's kind: sign, exponent, fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
    /// The NaN that operations make (contract, measured for half and single).
    nan: u64,
}

impl Format {
    /// F16.
    pub const HALF: Self = Self { exponent_bits: 5, fraction_bits: 10, nan: 0x7fff };
    /// BF16.
    pub const BFLOAT: Self = Self { exponent_bits: 8, fraction_bits: 7, nan: 0x7fff };
    /// TF32, without the 13 bits below it that its words have.
    pub const TENSOR: Self = Self { exponent_bits: 8, fraction_bits: 10, nan: 0x3_ffff };
    /// F32.
    pub const SINGLE: Self = Self { exponent_bits: 8, fraction_bits: 23, nan: 0x7fff_ffff };
    /// F64. This NaN is that of an operation without NaN as operand (contract, measured).
    pub const DOUBLE: Self = Self { exponent_bits: 11, fraction_bits: 52, nan: 0xfff8_0000_0000_0000 };

    /// Bits of a word.
    #[must_use]
    pub const fn bits(self) -> u32 {
        1 + self.exponent_bits + self.fraction_bits
    }

    /// Bits of the fraction, without the leading one.
    #[must_use]
    pub const fn fraction_bits(self) -> u32 {
        self.fraction_bits
    }

    /// Exponent of the smallest normal number.
    #[must_use]
    pub const fn least_exponent(self) -> i32 {
        2 - (1 << (self.exponent_bits - 1))
    }

    /// The word of a NaN.
    #[must_use]
    pub const fn nan(self) -> u64 {
        self.nan
    }

    /// The word of infinity.
    #[must_use]
    pub const fn infinity(self, negative: bool) -> u64 {
        self.sign(negative) | ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    const fn sign(self, negative: bool) -> u64 {
        (negative as u64) << (self.exponent_bits + self.fraction_bits)
    }

    /// What a word means. Bits above the format's are ignored.
    #[must_use]
    pub const fn value(self, word: u64) -> Value {
        let negative = word & self.sign(true) != 0;
        let fraction = word & ((1 << self.fraction_bits) - 1);
        let top = (1 << self.exponent_bits) - 1;
        let exponent = word >> self.fraction_bits & top;
        if exponent == top {
            return if fraction == 0 { Value::Infinity { negative } } else { Value::Nan };
        }
        let (exponent, significand) = if exponent == 0 {
            (self.least_exponent(), fraction)
        } else {
            (self.least_exponent() - 1 + small(exponent), fraction | 1 << self.fraction_bits)
        };
        Value::Number(Number::new(negative, exponent, (significand as u128) << (POINT - self.fraction_bits)))
    }

    /// The word of a number with magnitude 0.
    #[must_use]
    pub const fn zero(self, negative: bool) -> u64 {
        self.sign(negative)
    }

    /// Whether a word is of a number below the normal ones, 0 included.
    #[must_use]
    pub const fn is_subnormal(self, word: u64) -> bool {
        word & self.infinity(false) == 0
    }

    /// Whether a number is below the normal ones when it is rounded as if exponents had no end (measured on
    /// an H200).
    #[must_use]
    pub const fn is_tiny(self, value: Value, rounding: Rounding) -> bool {
        let Value::Number(number) = value else { return false };
        if number.is_zero() || number.exponent + 1 < self.least_exponent() {
            return true;
        }
        if number.exponent >= self.least_exponent() {
            return false;
        }
        // Just below: it may be rounded up to the least normal number.
        let one = 1_u128 << (POINT - self.fraction_bits);
        let (kept, rest) = (number.significand / one, number.significand % one);
        let up = rounding.up(number.negative, kept % 2 == 1, rest, one >> 1);
        kept + (up as u128) < 2 << self.fraction_bits
    }

    /// A word with a subnormal number as 0 of the same sign.
    #[must_use]
    pub const fn flush(self, word: u64) -> u64 {
        if self.is_subnormal(word) { word & self.sign(true) } else { word }
    }

    /// The word nearest to a value in the rounding's sense.
    #[must_use]
    pub const fn word(self, value: Value, rounding: Rounding) -> u64 {
        match value {
            Value::Nan => self.nan,
            Value::Infinity { negative } => self.infinity(negative),
            Value::Number(number) => self.round(number, rounding),
        }
    }

    const fn round(self, number: Number, rounding: Rounding) -> u64 {
        let sign = self.sign(number.negative);
        if number.significand == 0 {
            return sign;
        }
        let under = self.least_exponent() as i64 - number.exponent as i64;
        let subnormal = under > 0;
        let dropped = (POINT - self.fraction_bits) as i64 + if subnormal { under } else { 0 };
        let (kept, rest, half) = if dropped > POINT as i64 + 1 {
            // Less than half of the smallest number.
            (0, 1, 2)
        } else {
            let one = 1_u128 << dropped;
            (number.significand >> dropped, number.significand & (one - 1), one >> 1)
        };
        let kept = kept + rounding.up(number.negative, kept & 1 == 1, rest, half) as u128;
        // A carry out of the fraction goes into the exponent, as it should. Both fit: fractions have 53 bits.
        let infinity = self.infinity(false) as i128;
        let magnitude = if subnormal {
            kept as i128
        } else {
            ((1 - under as i128) << self.fraction_bits) + kept as i128 - (1 << self.fraction_bits)
        };
        if magnitude < infinity {
            return sign | low(magnitude);
        }
        let finite = match rounding {
            Rounding::Nearest => false,
            Rounding::Zero => true,
            Rounding::Down => !number.negative,
            Rounding::Up => number.negative,
        };
        sign | (self.infinity(false) - finite as u64)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "an exponent's field has 11 bits at most")]
const fn small(field: u64) -> i32 {
    field as i32
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to infinity's word")]
const fn low(magnitude: i128) -> u64 {
    magnitude as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_survive_in_every_format() {
        for word in 0..=0xffff_u64 {
            for format in [Format::HALF, Format::BFLOAT] {
                let value = format.value(word);
                if value != Value::Nan {
                    assert_eq!(format.word(value, Rounding::Nearest), word);
                }
            }
        }
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..100_000 {
            let (single, double) = (random.u32(..), random.u64(..));
            if !f32::from_bits(single).is_nan() {
                let value = Format::SINGLE.value(single.into());
                assert_eq!(Format::SINGLE.word(value, Rounding::Down), single.into());
                // A single is a double, too.
                let wide = f64::from(f32::from_bits(single)).to_bits();
                assert_eq!(Format::DOUBLE.word(value, Rounding::Nearest), wide);
            }
            if !f64::from_bits(double).is_nan() {
                let value = Format::DOUBLE.value(double);
                assert_eq!(Format::DOUBLE.word(value, Rounding::Up), double);
                #[allow(clippy::cast_possible_truncation, reason = "the rounding is what is tested")]
                let narrow = f64::from_bits(double) as f32;
                assert_eq!(Format::SINGLE.word(value, Rounding::Nearest), narrow.to_bits().into());
            }
        }
    }

    #[test]
    fn directed_roundings_are_neighbours() {
        // 1 + 2^-30, between 1 and the next single.
        let value = Format::DOUBLE.value((1.0 + 2f64.powi(-30)).to_bits());
        let rounded = |rounding| Format::SINGLE.word(value, rounding);
        assert_eq!(rounded(Rounding::Nearest), 0x3f80_0000);
        assert_eq!(rounded(Rounding::Down), 0x3f80_0000);
        assert_eq!(rounded(Rounding::Up), 0x3f80_0001);
        assert_eq!(rounded(Rounding::Zero), 0x3f80_0000);
        // Smaller than half of the smallest half, and larger than the largest.
        let tiny = Format::DOUBLE.value((-2f64.powi(-60)).to_bits());
        assert_eq!(Format::HALF.word(tiny, Rounding::Nearest), 0x8000);
        assert_eq!(Format::HALF.word(tiny, Rounding::Down), 0x8001);
        assert_eq!(Format::HALF.word(tiny, Rounding::Up), 0x8000);
        let large = Format::DOUBLE.value(65520f64.to_bits());
        assert_eq!(Format::HALF.word(large, Rounding::Nearest), 0x7c00);
        assert_eq!(Format::HALF.word(large, Rounding::Zero), 0x7bff);
        assert_eq!(Format::HALF.word(large, Rounding::Up), 0x7c00);
        assert_eq!(Format::HALF.word(large, Rounding::Down), 0x7bff);
    }
}
