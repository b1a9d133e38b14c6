//! Double precision: DADD, DMUL, DFMA, DSETP.
//!
//! A NaN operand goes on as it is, made quiet: the second one before the third, and the first last. An
//! operation without one makes 0xfff8_0000_0000_0000 (measured on an H200).

use super::exact::Value;
use super::format::Format;
use super::rounding::Rounding;

const QUIET: u64 = 1 << 51;

const fn nan_of(operands: &[u64]) -> Option<u64> {
    let mut index = 0;
    while index < operands.len() {
        if f64::from_bits(operands[index]).is_nan() {
            return Some(operands[index] | QUIET);
        }
        index += 1;
    }
    None
}

const fn value(word: u64) -> Value {
    Format::DOUBLE.value(word)
}

#[inline(always)]
const fn canonical(result: f64, operands: &[u64]) -> u64 {
    if !result.is_nan() {
        return result.to_bits();
    }
    match nan_of(operands) {
        Some(nan) => nan,
        None => Format::DOUBLE.nan(),
    }
}

fn directed(result: Value, rounding: Rounding, operands: &[u64]) -> u64 {
    match (result, nan_of(operands)) {
        (Value::Nan, Some(nan)) => nan,
        _ => Format::DOUBLE.word(result, rounding),
    }
}

/// `a + b`.
#[must_use]
#[inline(always)]
pub fn add(a: u64, b: u64, rounding: Rounding) -> u64 {
    match rounding {
        Rounding::Nearest => canonical(f64::from_bits(a) + f64::from_bits(b), &[b, a]),
        _ => directed(value(a).plus(value(b), rounding), rounding, &[b, a]),
    }
}

/// `a * b`.
#[must_use]
#[inline(always)]
pub fn multiply(a: u64, b: u64, rounding: Rounding) -> u64 {
    match rounding {
        Rounding::Nearest => canonical(f64::from_bits(a) * f64::from_bits(b), &[b, a]),
        _ => directed(value(a).times(value(b)), rounding, &[b, a]),
    }
}

/// `a * b + c`, rounded once.
#[must_use]
#[inline(always)]
pub fn fused(a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
    match rounding {
        Rounding::Nearest => {
            canonical(f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)), &[b, c, a])
        }
        _ => directed(value(a).times(value(b)).plus(value(c), rounding), rounding, &[b, c, a]),
    }
}

/// DSETP.MIN and DSETP.MAX: whether the first operand is the smaller or larger number, and whether both are
/// NaN. A number wins over NaN, -0 is below +0; of equal ones the first is the smaller one.
#[must_use]
pub const fn pick(a: u64, b: u64, larger: bool) -> (bool, bool) {
    match (f64::from_bits(a).is_nan(), f64::from_bits(b).is_nan()) {
        (true, both) => (false, both),
        (false, true) => (true, false),
        (false, false) if larger => (order(a) > order(b), false),
        (false, false) => (order(a) <= order(b), false),
    }
}

const fn order(word: u64) -> i64 {
    let word = word.cast_signed();
    word ^ ((word >> 63) & i64::MAX)
}

/// How two operands relate: 1 less, 2 equal, 4 greater, 8 not ordered.
#[must_use]
#[inline(always)]
pub fn relation(a: u64, b: u64) -> u32 {
    let (a, b) = (f64::from_bits(a), f64::from_bits(b));
    u32::from(a < b)
        | u32::from(a == b) << 1
        | u32::from(a > b) << 2
        | u32::from(a.is_nan() || b.is_nan()) << 3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(random: &mut fastrand::Rng) -> u64 {
        let sign = random.u64(..) & 1 << 63;
        match random.u32(0..4) {
            0 => sign | [0, 1, 1 << 52, 0x7ff << 52, (0x7ff << 52) - 1, 0x3ff << 52][random.usize(0..6)],
            1 => sign | (random.u64(990..1060) << 52) | random.u64(..) >> 12,
            _ => random.u64(..),
        }
    }

    #[test]
    fn exact_way_and_host_agree_to_the_nearest() {
        let mut random = fastrand::Rng::with_seed(3);
        let near = Rounding::Nearest;
        for _ in 0..200_000 {
            let [a, b, c] = [(); 3].map(|()| word(&mut random));
            let [x, y, z] = [a, b, c].map(value);
            assert_eq!(add(a, b, near), directed(x.plus(y, near), near, &[b, a]), "{a:x} + {b:x}");
            assert_eq!(multiply(a, b, near), directed(x.times(y), near, &[b, a]), "{a:x} * {b:x}");
            let exact = directed(x.times(y).plus(z, near), near, &[b, c, a]);
            assert_eq!(fused(a, b, c, near), exact, "{a:x} * {b:x} + {c:x}");
        }
    }

    #[test]
    fn not_a_number() {
        let infinity = 0x7ff0_0000_0000_0000;
        assert_eq!(add(infinity, infinity | 1 << 63, Rounding::Nearest), 0xfff8_0000_0000_0000);
        assert_eq!(add(infinity, infinity | 1 << 63, Rounding::Up), 0xfff8_0000_0000_0000);
        let nan = 0x7fff_ffff_e000_0000;
        assert_eq!(add(1 << 62, nan, Rounding::Nearest), nan);
        assert_eq!(multiply(nan ^ QUIET, 0, Rounding::Zero), nan);
        assert_eq!(relation(nan, 0), 8);
        assert_eq!(pick(nan, 1, false), (false, false));
        assert_eq!(pick(1, nan, false), (true, false));
        assert_eq!(pick(nan, nan, true), (false, true));
        assert_eq!(pick(0, 1 << 63, false), (false, false));
        assert_eq!(pick(0, 1 << 63, true), (true, false));
    }
}
