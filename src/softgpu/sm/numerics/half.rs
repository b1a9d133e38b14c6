//! Pairs of halves (F16 or BF16) in a word: HADD2, HMUL2, HFMA2, HMNMX2, HSETP2.

use super::exact::Value;
use super::float;
use super::format::Format;
use super::rounding::Rounding;

/// Which half of a word each half of an operand is. The discriminants are the field's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Swizzle {
    /// As it lies.
    #[default]
    H1H0 = 0,
    /// The word is a single, and both halves of the operand.
    Single = 1,
    /// The low half, twice.
    H0H0 = 2,
    /// The high half, twice.
    H1H1 = 3,
}

/// Words of 16 bits are below it.
const HALF: u32 = 0x1_0000;

impl Swizzle {
    /// Swizzle of a field of two bits; others are ignored.
    #[must_use]
    pub const fn of(field: u32) -> Self {
        match field & 3 {
            0 => Self::H1H0,
            1 => Self::Single,
            2 => Self::H0H0,
            _ => Self::H1H1,
        }
    }

    /// The low and the high half.
    #[must_use]
    pub const fn halves(self, word: u32) -> [u32; 2] {
        match self {
            Self::H1H0 => [word % HALF, word >> 16],
            Self::Single => [word; 2],
            Self::H0H0 => [word % HALF; 2],
            Self::H1H1 => [word >> 16; 2],
        }
    }
}

/// An operand: a word, read as its modifiers say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    /// Which half is which.
    pub swizzle: Swizzle,
    /// The magnitude is taken.
    pub absolute: bool,
    /// The sign is changed, after that.
    pub negate: bool,
}

/// Modifiers of an operation on halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// F16 or BF16.
    pub format: Format,
    /// F32: the result is a single, that of the low halves.
    pub single: bool,
    /// FTZ: subnormal operands and results are 0 of the same sign.
    pub flush: bool,
    /// SAT: results are clamped to 0 to 1, NaN becomes 0.
    pub saturate: bool,
    /// RELU: negative results are +0; NaN stays.
    pub relu: bool,
    /// FMZ: 0 times anything is +0.
    pub zero_wins: bool,
    /// OOB, which is FTZ and FMZ together, and neither: see [`outside`].
    pub outside: bool,
}

impl Mode {
    /// No modifiers.
    #[must_use]
    pub const fn plain(format: Format) -> Self {
        Self {
            format,
            single: false,
            flush: false,
            saturate: false,
            relu: false,
            zero_wins: false,
            outside: false,
        }
    }

    /// Values of an operand's halves.
    #[must_use]
    pub fn operand(self, word: u32, operand: Operand) -> [Value; 2] {
        let format = if operand.swizzle == Swizzle::Single { Format::SINGLE } else { self.format };
        operand.swizzle.halves(word).map(|half| {
            let sign = format.zero(true);
            let half = u64::from(half);
            let half = if operand.absolute { half & !sign } else { half };
            let half = if operand.negate { half ^ sign } else { half };
            format.value(if self.flush { format.flush(half) } else { half })
        })
    }

    fn word(self, value: Value) -> u64 {
        let format = if self.single { Format::SINGLE } else { self.format };
        let word = format.word(value, Rounding::Nearest);
        let word = if self.flush && format.is_tiny(value, Rounding::Nearest) {
            word & format.zero(true)
        } else {
            word
        };
        let nan = value == Value::Nan;
        let negative = word & format.zero(true) != 0;
        if self.saturate {
            let one = format.word(Format::SINGLE.value(0x3f80_0000), Rounding::Nearest);
            return if nan || negative { 0 } else { word.min(one) };
        }
        if self.relu && negative && !nan { 0 } else { word }
    }

    /// Both results in a word.
    #[must_use]
    pub fn pack(self, values: [Value; 2]) -> u32 {
        let [low, high] = values.map(|value| self.word(value));
        halves(low, if self.single { 0 } else { high })
    }
}

#[allow(clippy::cast_possible_truncation, reason = "two words of 16 bits")]
const fn halves(low: u64, high: u64) -> u32 {
    (low | high << 16) as u32
}

/// `a + b`.
#[must_use]
pub fn add(a: [Value; 2], b: [Value; 2], mode: Mode) -> u32 {
    let near = Rounding::Nearest;
    mode.pack([a[0].plus(b[0], near), a[1].plus(b[1], near)])
}

fn product(a: Value, b: Value, mode: Mode) -> Value {
    let zero = |value| matches!(value, Value::Number(number) if number.is_zero());
    if mode.zero_wins && (zero(a) || zero(b)) { mode.format.value(0) } else { a.times(b) }
}

/// `a * b`.
#[must_use]
pub fn multiply(a: [Value; 2], b: [Value; 2], mode: Mode) -> u32 {
    mode.pack([product(a[0], b[0], mode), product(a[1], b[1], mode)])
}

/// `a * b + c`, rounded once.
#[must_use]
pub fn fused(a: [Value; 2], b: [Value; 2], c: [Value; 2], mode: Mode) -> u32 {
    let near = Rounding::Nearest;
    mode.pack([0, 1].map(|half: usize| product(a[half], b[half], mode).plus(c[half], near)))
}

/// What a load beyond a tensor's bounds gives, but for its sign: of either format the same.
const OUTSIDE: u32 = 0x7ff7;

/// A fused product's halves, 0 where a factor's half is [`OUTSIDE`] (PTX manual, `fma.oob`).
#[must_use]
pub fn outside(result: u32, a: [u32; 2], b: [u32; 2]) -> u32 {
    let is = |half: u32| half % 0x8000 == OUTSIDE;
    let kept = |index: usize| if is(a[index]) || is(b[index]) { 0 } else { 0xffff };
    result & (kept(0) | kept(1) << 16)
}

/// The smaller numbers, or the larger ones, as for singles.
#[must_use]
pub fn pick(a: [Value; 2], b: [Value; 2], larger: bool, nan_wins: bool, mode: Mode) -> u32 {
    let half = |index: usize| {
        // Halves are singles: what is picked among those is a half again.
        let [one, two] = [a, b].map(|pair| single(pair[index]));
        Format::SINGLE.value(float::pick(one, two, larger, nan_wins, false).into())
    };
    mode.pack([half(0), half(1)])
}

/// Halves with other signs, but for NaN.
#[must_use]
pub const fn with_signs(word: u32, signs: [u32; 2]) -> u32 {
    const SIGN: u32 = 0x8000;
    const NAN: u32 = 0x7fff;
    let (low, high) = (word % HALF, word >> 16);
    let low = if low == NAN { NAN } else { low % SIGN + signs[0] / SIGN % 2 * SIGN };
    let high = if high == NAN { NAN } else { high % SIGN + signs[1] / SIGN % 2 * SIGN };
    low | high << 16
}

/// How the low and the high halves relate: see [`float::relation`].
#[must_use]
pub fn relation(a: [Value; 2], b: [Value; 2]) -> [u32; 2] {
    [0, 1].map(|half: usize| float::relation(single(a[half]), single(b[half]), false))
}

/// A half as a single: exact.
#[allow(clippy::cast_possible_truncation, reason = "a word of single precision")]
#[must_use]
pub fn single(value: Value) -> u32 {
    Format::SINGLE.word(value, Rounding::Nearest) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Mode = Mode::plain(Format::HALF);
    const AS_IT_IS: Operand = Operand { swizzle: Swizzle::H1H0, absolute: false, negate: false };

    /// 1.0 and 2.0.
    const ONE_TWO: u32 = 0x3c00 | 0x4000 << 16;

    #[test]
    fn pairs() {
        let pair = HALF.operand(ONE_TWO, AS_IT_IS);
        assert_eq!(add(pair, pair, HALF), 0x4000 | 0x4400 << 16);
        assert_eq!(multiply(pair, pair, HALF), 0x3c00 | 0x4400 << 16);
        assert_eq!(fused(pair, pair, pair, HALF), 0x4000 | 0x4600 << 16);
        let low = HALF.operand(ONE_TWO, Operand { swizzle: Swizzle::H0H0, absolute: true, negate: true });
        assert_eq!(add(pair, low, HALF), 0x3c00 << 16);
        let one = HALF.operand(0x3f80_0000, Operand { swizzle: Swizzle::Single, ..AS_IT_IS });
        assert_eq!(add(one, one, HALF), 0x4000_4000);
        assert_eq!(pick(pair, low, true, false, HALF), ONE_TWO);
        assert_eq!(relation(pair, one), [2, 4]);
    }

    #[test]
    fn sum_is_rounded_once() {
        // 2049 is between two halves; a little more than the tie decides, though it is far below.
        let word = |value: f32| {
            halves(Format::HALF.word(Format::SINGLE.value(value.to_bits().into()), Rounding::Nearest), 0)
        };
        let [a, b, c] = [word(2048.0), word(1.0), word(1.0)].map(|word| HALF.operand(word, AS_IT_IS));
        assert_eq!(fused(a, b, c, HALF) & 0xffff, 0x6800);
        let tiny = HALF.operand(1, AS_IT_IS);
        // (2048 + 1) with a product of 1 + 2^-10 squared instead of 1: above the tie.
        let above = HALF.operand(0x3c01, AS_IT_IS);
        assert_eq!(fused(above, above, a, HALF) & 0xffff, 0x6801);
        assert_eq!(multiply(tiny, above, HALF) & 0xffff, 1);
    }

    #[test]
    fn modifiers() {
        let pair = HALF.operand(ONE_TWO, AS_IT_IS);
        let negative = HALF.operand(ONE_TWO, Operand { negate: true, ..AS_IT_IS });
        let clamp = Mode { saturate: true, ..HALF };
        assert_eq!(add(pair, pair, clamp), 0x3c00_3c00);
        assert_eq!(add(negative, negative, clamp), 0);
        let relu = Mode { relu: true, ..HALF };
        assert_eq!(add(negative, negative, relu), 0);
        assert_eq!(add(pair, [Value::Nan; 2], relu), 0x7fff_7fff);
        assert_eq!(add(pair, [Value::Nan; 2], clamp), 0);
        let brain = Mode::plain(Format::BFLOAT);
        let one = brain.operand(0x3f80_3f80, AS_IT_IS);
        assert_eq!(add(one, one, brain), 0x4000_4000);
    }
}
