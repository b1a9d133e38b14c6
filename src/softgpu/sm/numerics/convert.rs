//! Conversions: F2F, F2I, I2F, FRND, F2FP.

use super::exact::{Number, POINT, Value};
use super::float;
use super::format::Format;
use super::rounding::Rounding;

/// An integer's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    /// 8, 16, 32 or 64.
    pub bits: u32,
    /// Two's complement.
    pub signed: bool,
}

impl Integer {
    const fn largest(self) -> u64 {
        u64::MAX >> (64 - self.bits + self.signed as u32)
    }

    /// A word with bits above the format's as copies of its sign, or 0.
    #[must_use]
    pub const fn extend(self, word: u64) -> u64 {
        let above = 64 - self.bits;
        if self.signed {
            ((word << above).cast_signed() >> above).cast_unsigned()
        } else {
            word << above >> above
        }
    }

    /// What NaN becomes (PTX manual: 0, but for 64-bit results and double operands the least number's word).
    const fn nan(self, from: Format) -> u64 {
        if self.bits == 64 || from.bits() == 64 { 1 << (self.bits - 1) } else { 0 }
    }
}

/// A word of one floating point format as one of another.
#[must_use]
pub fn float_to_float(word: u64, from: Format, to: Format, rounding: Rounding) -> u64 {
    let value = from.value(word);
    if value == Value::Nan {
        // To and from doubles a NaN keeps its sign and its upper bits, and is made quiet (seen on an H100).
        if from == Format::DOUBLE || to == Format::DOUBLE {
            let fraction = word & ((1 << from.fraction_bits()) - 1);
            let fraction = fraction << (52 - from.fraction_bits()) >> (52 - to.fraction_bits());
            let quiet = 1 << (to.fraction_bits() - 1);
            return to.infinity(word & from.zero(true) != 0) | fraction | quiet;
        }
    }
    to.word(value, rounding)
}

/// A value as a whole one.
#[must_use]
pub const fn round(value: Value, rounding: Rounding) -> Value {
    match value {
        Value::Number(number) => {
            let (magnitude, overflow) = whole(number, rounding);
            if overflow {
                // 2^64 and above is whole in all formats.
                value
            } else {
                Value::Number(Number::whole(number.negative, magnitude))
            }
        }
        Value::Nan | Value::Infinity { .. } => value,
    }
}

/// FRND: a word as the word of a whole number.
#[must_use]
pub const fn round_word(word: u64, format: Format, rounding: Rounding) -> u64 {
    match format.value(word) {
        // A double's NaN goes on.
        Value::Nan if format.bits() == 64 => word | 1 << (format.fraction_bits() - 1),
        value => format.word(round(value, rounding), Rounding::Nearest),
    }
}

/// The magnitude as a whole number, and whether it has more than 64 bits.
const fn whole(number: Number, rounding: Rounding) -> (u64, bool) {
    if number.exponent > 63 {
        return (u64::MAX, true);
    }
    if number.is_zero() {
        return (0, false);
    }
    let dropped = POINT.cast_signed() - number.exponent;
    let (kept, rest, half) = if dropped > POINT.cast_signed() + 1 {
        (0, 1, 2)
    } else {
        let one = 1_u128 << dropped;
        (number.significand >> dropped, number.significand & (one - 1), one >> 1)
    };
    let rounded = kept + rounding.up(number.negative, kept & 1 == 1, rest, half) as u128;
    (low(rounded), rounded >> 64 != 0)
}

#[allow(clippy::cast_possible_truncation, reason = "the caller looks at the upper half")]
const fn low(word: u128) -> u64 {
    word as u64
}

/// F2I: a word as an integer; numbers beyond its range become the range's ends.
#[must_use]
pub const fn float_to_integer(word: u64, from: Format, to: Integer, rounding: Rounding) -> u64 {
    let mask = u64::MAX >> (64 - to.bits);
    let (negative, magnitude, over) = match from.value(word) {
        Value::Nan => return to.nan(from),
        Value::Infinity { negative } => (negative, 0, true),
        Value::Number(number) => {
            let (magnitude, over) = whole(number, rounding);
            (number.negative, magnitude, over)
        }
    };
    let limit = if !negative {
        to.largest()
    } else if to.signed {
        1 << (to.bits - 1)
    } else {
        0
    };
    let magnitude = if over || magnitude > limit { limit } else { magnitude };
    (if negative { magnitude.wrapping_neg() } else { magnitude }) & mask
}

/// I2F: an integer as a floating point word.
#[must_use]
pub const fn integer_to_float(word: u64, from: Integer, to: Format, rounding: Rounding) -> u64 {
    let word = from.extend(word);
    let negative = from.signed && word.cast_signed() < 0;
    let magnitude = if negative { word.wrapping_neg() } else { word };
    to.word(Value::Number(Number::whole(negative, magnitude)), rounding)
}

/// Modifiers of F2FP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pack {
    /// F16 or BF16.
    pub to: Format,
    /// How halves are rounded.
    pub rounding: Rounding,
    /// RELU: negative results are +0.
    pub relu: bool,
    /// FTZ: subnormal operands are 0.
    pub flush: bool,
    /// SATFINITE: infinity and what is beyond the largest number become that number.
    pub finite: bool,
}

/// F2FP.PACK_AB: two singles as halves; the second one is the low half.
#[must_use]
#[allow(clippy::cast_possible_truncation, reason = "halves have 16 bits")]
pub fn pack(high: u32, low: u32, mode: Pack) -> u32 {
    let half = |word: u32| {
        let word = if mode.flush { float::flush(word) } else { word };
        let value = Format::SINGLE.value(word.into());
        let half = mode.to.word(value, mode.rounding) as u32;
        let infinite = half % 0x8000 == mode.to.infinity(false) as u32;
        let half = if mode.finite && infinite { half - 1 } else { half };
        if mode.relu && value != Value::Nan && half >> 15 != 0 { 0 } else { half }
    };
    half(low) | half(high) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const S32: Integer = Integer { bits: 32, signed: true };
    const U32: Integer = Integer { bits: 32, signed: false };
    const S64: Integer = Integer { bits: 64, signed: true };
    const U64: Integer = Integer { bits: 64, signed: false };

    #[test]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the reference saturates, too"
    )]
    fn integers_of_floats() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..100_000 {
            let word = random.u32(80..200) << 23 | random.u32(..) & 0x807f_ffff;
            let value = f32::from_bits(word);
            let by = |to, rounding| float_to_integer(word.into(), Format::SINGLE, to, rounding);
            assert_eq!(by(S32, Rounding::Zero), u64::from((value as i32).cast_unsigned()));
            assert_eq!(by(U32, Rounding::Down), u64::from(value.floor() as u32));
            assert_eq!(by(S64, Rounding::Up), (value.ceil() as i64).cast_unsigned());
            assert_eq!(by(U64, Rounding::Nearest), value.round_ties_even() as u64);
            assert_eq!(
                by(Integer { bits: 8, signed: true }, Rounding::Zero) as u8,
                (value as i8).cast_unsigned()
            );
            let whole = round_word(word.into(), Format::SINGLE, Rounding::Nearest);
            assert_eq!(whole, u64::from(value.round_ties_even().to_bits()));
        }
        // Measured.
        let by = |word: u32, to| float_to_integer(word.into(), Format::SINGLE, to, Rounding::Nearest);
        assert_eq!([by(0x7fc0_0000, S32), by(0xffc0_0000, U32)], [0, 0]);
        assert_eq!(by(0xff80_0000, S32), 0x8000_0000);
        assert_eq!(by(0x7f80_0000, U32), 0xffff_ffff);
        assert_eq!(by(0x7fc0_0000, S64), 1 << 63);
    }

    #[test]
    #[allow(clippy::cast_precision_loss, reason = "the rounding is what is tested")]
    fn floats_of_integers() {
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..100_000 {
            let word = random.u64(..) >> random.u32(0..64);
            let near = Rounding::Nearest;
            assert_eq!(integer_to_float(word, U64, Format::SINGLE, near), u64::from((word as f32).to_bits()));
            let signed = word.cast_signed() as f64;
            assert_eq!(integer_to_float(word, S64, Format::DOUBLE, near), signed.to_bits());
            let narrow = (word & 0xffff_ffff) as u32;
            let single = (narrow.cast_signed() as f32).to_bits();
            assert_eq!(integer_to_float(word, S32, Format::SINGLE, near), u64::from(single));
        }
        let byte = Integer { bits: 8, signed: true };
        assert_eq!(integer_to_float(0xff, byte, Format::SINGLE, Rounding::Nearest), 0xbf80_0000);
    }

    #[test]
    fn floats_of_floats() {
        let by = |word, from, to| float_to_float(word, from, to, Rounding::Nearest);
        assert_eq!(by(0x477f_f000, Format::SINGLE, Format::HALF), 0x7c00);
        assert_eq!(by(0x477f_e000, Format::SINGLE, Format::HALF), 0x7bff);
        assert_eq!(by(0xffc0_0001, Format::SINGLE, Format::HALF), 0x7fff);
        // As an H100 gave them.
        assert_eq!(by(0x7f80_0001, Format::SINGLE, Format::DOUBLE) >> 32, 0x7ff8_0000);
        assert_eq!(by(0xffff_0000, Format::SINGLE, Format::DOUBLE) >> 32, 0xffff_e000);
        assert_eq!(by(0x7ff0_0000, Format::SINGLE, Format::DOUBLE) >> 32, 0x7ffe_0000);
        assert_eq!(by(0xffff_ffff_3e09_043d, Format::DOUBLE, Format::SINGLE), 0xffff_fff9);
        assert_eq!(by(0x7ff0_0000_4f00_0000, Format::DOUBLE, Format::SINGLE), 0x7fc0_0002);
        assert_eq!(by(0xffff_0000_8080_0000, Format::DOUBLE, Format::SINGLE), 0xfff8_0004);
        assert_eq!(by(1, Format::HALF, Format::SINGLE), 0x3380_0000);
        let mode =
            Pack { to: Format::HALF, rounding: Rounding::Nearest, relu: true, flush: false, finite: false };
        assert_eq!(pack(0x3f80_0000, 0xbf80_0000, mode), 0x3c00_0000);
        assert_eq!(pack(0x3f80_0000, 0xbf80_0000, Pack { relu: false, ..mode }), 0x3c00_bc00);
        // Infinity and NaN.
        assert_eq!(pack(0x7f80_0000, 0x7fc0_0000, Pack { finite: true, ..mode }), 0x7bff_7fff);
        assert_eq!(by(0x7e1a, Format::HALF, Format::DOUBLE), 0x7ff8_6800_0000_0000);
    }
}
