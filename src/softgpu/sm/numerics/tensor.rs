//! Sums of products, as the matrix units make them: one sum an instruction and result (contract, measured:
//! 180,000 random sums of an H100).
//!
//! Products are exact. All of them and the accumulator are aligned to the largest exponent, cut 25 bits below
//! it, and added exactly. An exponent is that of the operands' exponents' sum: products are not normalised.
//! Not measured: infinities, NaN, overflow, the sign of 0, other chips than GH100.

use super::exact::{Number, POINT, Value};
use super::format::Format;
use super::rounding::Rounding;

/// Bits below the largest exponent that a term keeps.
const KEPT: i32 = 25;

/// What a sum is of, and how it is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Format of the factors.
    pub factors: Format,
    /// Format of accumulator and result: F32, which is cut, or F16, which is rounded to the nearest.
    pub accumulator: Format,
}

/// One term: `magnitude * 2^(unit)`, of exponent `exponent`.
#[derive(Clone, Copy)]
struct Term {
    negative: bool,
    exponent: i32,
    magnitude: u64,
    unit: i32,
}

impl Term {
    /// A term in units of `2^unit`, cut.
    fn aligned(self, unit: i32) -> i64 {
        let shift = self.unit - unit;
        let magnitude = if shift >= 0 {
            // The largest exponent has 25 bits below it, and a magnitude is below 2^2 times its exponent's.
            self.magnitude << shift.clamp(0, 40)
        } else {
            self.magnitude >> (-shift).clamp(0, 63)
        };
        let magnitude = magnitude.cast_signed();
        if self.negative { -magnitude } else { magnitude }
    }
}

/// Sign, exponent and significand of a finite factor, not normalised: the least exponent for subnormals.
fn parts(format: Format, word: u32) -> (bool, i32, u64) {
    let word = u64::from(word);
    let fraction_bits = format.fraction_bits();
    let infinity = format.infinity(false);
    let fraction = word & ((1 << fraction_bits) - 1);
    let field = i32::try_from((word & infinity) >> fraction_bits).unwrap_or(0);
    let negative = word & format.zero(true) != 0;
    if field == 0 {
        (negative, format.least_exponent(), fraction)
    } else {
        (negative, format.least_exponent() - 1 + field, fraction | 1 << fraction_bits)
    }
}

fn product(format: Format, a: u32, b: u32) -> Option<Term> {
    let (one, two) = (parts(format, a), parts(format, b));
    let magnitude = one.2 * two.2;
    let exponent = one.1 + two.1;
    let bits = format.fraction_bits().cast_signed();
    (magnitude != 0).then_some(Term {
        negative: one.0 != two.0,
        exponent,
        magnitude,
        unit: exponent - 2 * bits,
    })
}

fn addend(format: Format, value: Value) -> Option<Term> {
    let Value::Number(number) = value else { return None };
    #[allow(clippy::cast_possible_truncation, reason = "bits 126 to 63")]
    let magnitude = (number.significand >> 63) as u64;
    (!number.is_zero()).then_some(Term {
        negative: number.negative,
        exponent: number.exponent.max(format.least_exponent()),
        magnitude: magnitude >> 32,
        unit: number.exponent - 31,
    })
}

impl Sum {
    /// `c + a0 * b0 + a1 * b1 ...`, as words. Pairs beyond 16 do not count.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "the accumulator has 32 bits at most")]
    pub fn of(self, c: u32, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> u32 {
        let pairs = pairs.take(16);
        let special = self.special(c, pairs.clone());
        let value = special.unwrap_or_else(|| self.finite(c, pairs));
        let rounding = if self.accumulator == Format::SINGLE { Rounding::Zero } else { Rounding::Nearest };
        let word = self.accumulator.word(value, rounding);
        // A cut result of a larger exponent than the largest number's is infinite.
        let largest = self.accumulator.infinity(false) - 1;
        // There is no -0.
        let word = if word & !self.accumulator.zero(true) == 0 { 0 } else { word };
        let finite = matches!(value, Value::Number(_)) && word & !self.accumulator.zero(true) == largest;
        if finite && overflows(self.accumulator, value) { (word + 1) as u32 } else { word as u32 }
    }

    /// The sum, if an operand is infinite or NaN.
    fn special(self, c: u32, pairs: impl Iterator<Item = (u32, u32)>) -> Option<Value> {
        let factor = |word: u32| self.factors.value(word.into());
        let mut found = match self.accumulator.value(c.into()) {
            Value::Number(_) => None,
            special => Some(special),
        };
        for (a, b) in pairs {
            let (a, b) = (factor(a), factor(b));
            if matches!((a, b), (Value::Number(_), Value::Number(_))) {
                continue;
            }
            let product = a.times(b);
            found = Some(found.map_or(product, |sum| sum.plus(product, Rounding::Nearest)));
        }
        found
    }

    fn finite(self, c: u32, pairs: impl Iterator<Item = (u32, u32)>) -> Value {
        let zero = Value::Number(Number::whole(false, 0));
        let mut terms = [None; 17];
        terms[0] = addend(self.accumulator, self.accumulator.value(c.into()));
        for (term, (a, b)) in terms[1..].iter_mut().zip(pairs) {
            *term = product(self.factors, a, b);
        }
        let Some(largest) = terms.iter().flatten().map(|term| term.exponent).max() else { return zero };
        let unit = largest - KEPT;
        let sum: i64 = terms.iter().flatten().map(|term| term.aligned(unit)).sum();
        Value::Number(Number::new(sum < 0, unit + POINT.cast_signed(), sum.unsigned_abs().into()))
    }
}

/// True for what is beyond the largest number when it is cut: 2^128 and above, of singles.
fn overflows(format: Format, value: Value) -> bool {
    matches!(value, Value::Number(number) if number.exponent > 1 - format.least_exponent())
}

/// IMMA: whole numbers, exactly; the sum wraps, or with SAT is clamped.
#[must_use]
pub fn integer_sum(c: u32, products: impl Iterator<Item = i32>, saturate: bool) -> u32 {
    let sum: i64 = i64::from(c.cast_signed()) + products.map(i64::from).sum::<i64>();
    let sum = if saturate { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
    #[allow(clippy::cast_possible_truncation, reason = "sums wrap")]
    let word = sum as i32;
    word.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALVES: Sum = Sum { factors: Format::HALF, accumulator: Format::SINGLE };

    #[test]
    #[allow(clippy::cast_possible_truncation, reason = "halves")]
    fn sums_without_loss_are_exact() {
        let mut random = fastrand::Rng::with_seed(2);
        for _ in 0..10_000 {
            let mut whole = || random.i32(-20..20);
            let (c, pairs) = (whole(), [(); 16].map(|()| (whole(), whole())));
            let exact: i32 = c + pairs.iter().map(|(a, b)| a * b).sum::<i32>();
            let half = |value: i32| {
                let value = Value::Number(Number::whole(value < 0, value.unsigned_abs().into()));
                Format::HALF.word(value, Rounding::Nearest) as u32
            };
            let words = pairs.iter().map(|(a, b)| (half(*a), half(*b)));
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let [c_single, single] = [c, exact].map(|value| (value as f32).to_bits());
            assert_eq!(HALVES.of(c_single, words.clone()), single);
            let halves = Sum { accumulator: Format::HALF, ..HALVES };
            if exact.abs() < 2048 {
                assert_eq!(halves.of(half(c), words), half(exact));
            }
        }
    }

    #[test]
    fn terms_are_cut_25_bits_below_the_largest() {
        // 2^15 * 2^10 = 2^25, and 17 * 2^-4: its last bit is lost.
        let pairs = [(0x7800, 0x6400), (0x4c40, 0x2c00)];
        assert_eq!(HALVES.of(0, pairs.into_iter()), 0x4c00_0000);
        // With 2^24 as the largest, the sum has one bit more than a single, which is cut.
        assert_eq!(HALVES.of(0x4b80_0000, [(0x3c00, 0x3c00), (0x3800, 0x3c00)].into_iter()), 0x4b80_0000);
        // Two halves that cancel the large terms are not lost: they are above the cut.
        let pairs = [(0x7800, 0x6000), (0xf800, 0x6000), (0x3800, 0x3c00)];
        assert_eq!(HALVES.of(0, pairs.into_iter()), 0x3f00_0000);
        let pairs = [(0x7800, 0x7800), (0xf800, 0x7800), (0x1400, 0x1400)];
        assert_eq!(HALVES.of(0, pairs.into_iter()), 0);
    }

    #[test]
    fn specials() {
        let infinite = [(0x7c00, 0x3c00)];
        assert_eq!(HALVES.of(0, infinite.into_iter()), 0x7f80_0000);
        assert_eq!(HALVES.of(0xff80_0000, infinite.into_iter()), 0x7fff_ffff);
        assert_eq!(HALVES.of(0, [(0x7c00, 0)].into_iter()), 0x7fff_ffff);
        assert_eq!(HALVES.of(0, [].into_iter()), 0);
        let brain = Sum { factors: Format::BFLOAT, accumulator: Format::SINGLE };
        assert_eq!(brain.of(0x7f7f_ffff, [(0x7f00, 0x3f80)].into_iter()), 0x7f80_0000);
        // Above the largest number by three quarters of its last place: cut.
        assert_eq!(brain.of(0x7f7f_ffff, [(0x7340, 0x3f00)].into_iter()), 0x7f7f_ffff);
    }

    #[test]
    fn whole_numbers() {
        assert_eq!(integer_sum(5, [3, -4].into_iter(), false), 4);
        assert_eq!(integer_sum(0x7fff_ffff, [1].into_iter(), false), 0x8000_0000);
        assert_eq!(integer_sum(0x7fff_ffff, [1].into_iter(), true), 0x7fff_ffff);
    }
}
