//! Single precision: FADD, FMUL, FFMA, FMNMX, FSETP, FCHK, FSWZADD.

use super::exact::Value;
use super::format::Format;
use super::rounding::Rounding;

/// The NaN of single precision (contract, measured).
pub const NAN: u32 = 0x7fff_ffff;

const SIGN: u32 = (-0.0_f32).to_bits();
const INFINITY: u32 = f32::INFINITY.to_bits();

/// Modifiers of an operation on singles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// How the result is rounded.
    pub rounding: Rounding,
    /// FTZ: subnormal operands and results are 0 of the same sign.
    pub flush: bool,
    /// DNZ, printed as FMZ: 0 times anything is +0. Flushes, too.
    pub zero_wins: bool,
    /// SAT: the result is clamped to 0 to 1, NaN becomes 0.
    pub saturate: bool,
}

impl Mode {
    /// Whether the host's own arithmetic does it.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        matches!(self.rounding, Rounding::Nearest) && !self.flush && !self.zero_wins && !self.saturate
    }

    /// Whether it does, but for subnormal numbers that may be 0.
    #[must_use]
    pub const fn is_ordinary(self) -> bool {
        matches!(self.rounding, Rounding::Nearest) && !self.zero_wins && !self.saturate
    }

    const fn flushes(self) -> bool {
        self.flush || self.zero_wins
    }

    #[inline(always)]
    const fn operand(self, word: u32) -> u32 {
        if self.flushes() { flush(word) } else { word }
    }

    /// The result, where it is `word` and `exact` before it was rounded: 2^-126 may have been below it.
    #[inline(always)]
    fn result(self, word: u32, exact: impl FnOnce() -> Value) -> u32 {
        const LEAST: u32 = f32::MIN_POSITIVE.to_bits();
        let tiny = || word & !SIGN == LEAST && Format::SINGLE.is_tiny(exact(), self.rounding);
        let word = if self.flushes() && tiny() { word & SIGN } else { word };
        let word = if self.flushes() { flush(word) } else { word };
        if self.saturate { saturate(word) } else { word }
    }
}

/// A subnormal number as 0 of the same sign.
#[must_use]
#[inline(always)]
pub const fn flush(word: u32) -> u32 {
    if word & INFINITY == 0 { word & SIGN } else { word }
}

/// Clamped to 0 to 1; NaN is 0.
#[must_use]
#[inline(always)]
pub const fn saturate(word: u32) -> u32 {
    const ONE: u32 = 0x3f80_0000;
    if word & SIGN != 0 || word > INFINITY {
        0
    } else if word > ONE {
        ONE
    } else {
        word
    }
}

/// A result of the host's arithmetic, as the GPU has it: one NaN.
#[must_use]
#[inline(always)]
pub const fn canonical(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() }
}

#[allow(clippy::cast_possible_truncation, reason = "a word of single precision")]
const fn single(value: Value, rounding: Rounding) -> u32 {
    Format::SINGLE.word(value, rounding) as u32
}

const fn value(word: u32) -> Value {
    Format::SINGLE.value(word as u64)
}

/// `a + b`.
#[must_use]
#[inline(always)]
pub fn add(a: u32, b: u32, mode: Mode) -> u32 {
    let (a, b) = (mode.operand(a), mode.operand(b));
    let sum = match mode.rounding {
        Rounding::Nearest => canonical(f32::from_bits(a) + f32::from_bits(b)),
        rounding => single(value(a).plus(value(b), rounding), rounding),
    };
    // A sum below 2^-126 is exact.
    mode.result(sum, || value(sum))
}

/// `a * b * 2^scale`. The scale is that of FMUL's field, -3 to 3 (0 for nearly all); it is applied before the
/// product is rounded.
#[must_use]
#[inline(always)]
pub fn multiply(a: u32, b: u32, scale: i32, mode: Mode) -> u32 {
    let (a, b) = (mode.operand(a), mode.operand(b));
    if mode.zero_wins && (a << 1 == 0 || b << 1 == 0) {
        return 0;
    }
    let exact = || value(a).times(value(b)).times(value(2f32.powi(scale).to_bits()));
    let product = match mode.rounding {
        Rounding::Nearest if scale == 0 => canonical(f32::from_bits(a) * f32::from_bits(b)),
        rounding => single(exact(), rounding),
    };
    mode.result(product, exact)
}

/// `a * b + c`, rounded once.
#[must_use]
#[inline(always)]
pub fn fused(a: u32, b: u32, c: u32, mode: Mode) -> u32 {
    let (a, b, c) = (mode.operand(a), mode.operand(b), mode.operand(c));
    let (a, b) = if mode.zero_wins && (a << 1 == 0 || b << 1 == 0) { (0, 0) } else { (a, b) };
    let exact = || value(a).times(value(b)).plus(value(c), mode.rounding);
    let sum = match mode.rounding {
        Rounding::Nearest => canonical(f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c))),
        rounding => single(exact(), rounding),
    };
    mode.result(sum, exact)
}

/// Modifiers of FMNMX and HMNMX2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extreme {
    /// NAN: the result is NaN if an operand is.
    pub nan_wins: bool,
    /// XORSIGN: the result's sign is that of the operands' product. Signs are those of the words, whatever
    /// the operands' modifiers say.
    pub signs: bool,
}

/// FMNMX: the smaller number, or the larger one. A number wins over NaN, unless `nan_wins`; -0 is below +0.
#[must_use]
#[inline(always)]
pub const fn pick(a: u32, b: u32, larger: bool, nan_wins: bool, flushes: bool) -> u32 {
    let (a, b) = if flushes { (flush(a), flush(b)) } else { (a, b) };
    match (is_nan(a), is_nan(b)) {
        (true, true) => NAN,
        (true, false) | (false, true) if nan_wins => NAN,
        (true, false) => b,
        (false, true) => a,
        (false, false) => {
            if (order(a) < order(b)) == larger {
                b
            } else {
                a
            }
        }
    }
}

const fn is_nan(word: u32) -> bool {
    word & !SIGN > INFINITY
}

/// A whole number that is ordered as the words' numbers are.
const fn order(word: u32) -> i32 {
    let word = word.cast_signed();
    word ^ ((word >> 31) & i32::MAX)
}

/// How two operands relate: 1 less, 2 equal, 4 greater, 8 not ordered. The comparison's field of FSETP is the
/// set of relations that it accepts.
#[must_use]
#[inline(always)]
pub fn relation(a: u32, b: u32, flushes: bool) -> u32 {
    let (a, b) = if flushes { (flush(a), flush(b)) } else { (a, b) };
    let (a, b) = (f32::from_bits(a), f32::from_bits(b));
    u32::from(a < b)
        | u32::from(a == b) << 1
        | u32::from(a > b) << 2
        | u32::from(a.is_nan() || b.is_nan()) << 3
}

/// FCHK: whether `a / b` needs the long way of a compiled division, by the exponents' fields (measured on an
/// H200).
#[must_use]
pub const fn division_is_special(a: u32, b: u32) -> bool {
    let (a, b) = ((a << 1 >> 24).cast_signed(), (b << 1 >> 24).cast_signed());
    let difference = a - b;
    // The remainder must not be subnormal, nor reciprocal or quotient leave the normal numbers.
    a < 25 || a == 0xff || b < 2 || b > 251 || difference < -124 || difference > 126
}

/// FSWZADD: one lane's sum, by its place in its quad: `+`, `b - a`, `a - b` or `b`, two bits a place.
#[must_use]
pub fn quad_add(a: u32, b: u32, operations: u32, lane: usize, mode: Mode) -> u32 {
    match operations >> (2 * (lane & 3)) & 3 {
        0 => add(a, b, mode),
        1 => add(a ^ SIGN, b, mode),
        2 => add(a, b ^ SIGN, mode),
        _ => mode.result(mode.operand(b), || value(b)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Mode = Mode { rounding: Rounding::Nearest, flush: false, zero_wins: false, saturate: false };

    /// Words with many specials and near misses among them.
    fn word(random: &mut fastrand::Rng) -> u32 {
        const SPECIAL: [u32; 12] = [
            0,
            1,
            0x7f_ffff,
            0x80_0000,
            0x3f80_0000,
            0x3f7f_ffff,
            0x7f7f_ffff,
            0x7f80_0000,
            0x7fc0_0001,
            0x7f80_0001,
            0x4b00_0001,
            0x3380_0000,
        ];
        let sign = random.u32(..) & SIGN;
        match random.u32(0..4) {
            0 => sign | SPECIAL[random.usize(0..12)],
            1 => sign | (random.u32(100..150) << 23) | random.u32(..) & 0x7f_ffff,
            _ => random.u32(..),
        }
    }

    #[test]
    fn exact_way_and_host_agree_to_the_nearest() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200_000 {
            let (a, b, c) = (word(&mut random), word(&mut random), word(&mut random));
            let [x, y, z] = [a, b, c].map(value);
            let near = Rounding::Nearest;
            assert_eq!(add(a, b, PLAIN), single(x.plus(y, near), near), "{a:x} + {b:x}");
            assert_eq!(multiply(a, b, 0, PLAIN), single(x.times(y), near), "{a:x} * {b:x}");
            let fused_exactly = single(x.times(y).plus(z, near), near);
            assert_eq!(fused(a, b, c, PLAIN), fused_exactly, "{a:x} * {b:x} + {c:x}");
        }
    }

    #[test]
    fn directed_roundings_enclose_the_result() {
        let mut random = fastrand::Rng::with_seed(8);
        let mode = |rounding| Mode { rounding, ..PLAIN };
        for _ in 0..50_000 {
            let (a, b, c) = (word(&mut random), word(&mut random), word(&mut random));
            let by = |rounding| fused(a, b, c, mode(rounding));
            let [near, down, up, zero] =
                [Rounding::Nearest, Rounding::Down, Rounding::Up, Rounding::Zero].map(by);
            if near == NAN {
                assert_eq!([down, up, zero], [NAN; 3]);
                continue;
            }
            assert!(near == down || near == up, "{a:x} {b:x} {c:x}");
            assert!(order(up).abs_diff(order(down)) <= 1 || up << 1 == 0);
            assert!(zero & SIGN == 0 && zero == down || zero & SIGN != 0 && zero == up || zero << 1 == 0);
        }
    }

    #[test]
    fn modifiers() {
        let flush = Mode { flush: true, ..PLAIN };
        assert_eq!(add(1, 0, flush), 0);
        assert_eq!(add(0x8000_0001, 0x8000_0000, flush), SIGN);
        assert_eq!(multiply(0x0080_0000, 0x3f00_0000, 0, flush), 0);
        assert_eq!(multiply(0x0080_0000, 0x3f00_0000, 0, PLAIN), 0x0040_0000);
        let zero = Mode { zero_wins: true, ..PLAIN };
        assert_eq!(multiply(SIGN, INFINITY, 0, zero), 0);
        assert_eq!(fused(0, NAN, 0x3f80_0000, zero), 0x3f80_0000);
        let clamp = Mode { saturate: true, ..PLAIN };
        assert_eq!(add(0x4000_0000, 0, clamp), 0x3f80_0000);
        assert_eq!(add(0xbf80_0000, 0, clamp), 0);
        assert_eq!(add(NAN, 0, clamp), 0);
        assert_eq!(multiply(0x4040_0000, 0x3f80_0000, 1, PLAIN), 0x40c0_0000);
        // Any NaN becomes the one NaN; so does a difference of infinities (measured).
        for nan in [0x7fc1_2345, 0x7f81_2345, 0xffc0_0001] {
            assert_eq!(add(nan, 0, PLAIN), NAN);
            assert_eq!(fused(nan, 0, 0, PLAIN), NAN);
        }
        assert_eq!(add(INFINITY, INFINITY | SIGN, PLAIN), NAN);
    }

    #[test]
    fn smaller_and_larger() {
        assert_eq!(pick(0, SIGN, false, false, false), SIGN);
        assert_eq!(pick(SIGN, 0, true, false, false), 0);
        assert_eq!(pick(0x7fc1_2345, 5, true, false, false), 5);
        assert_eq!(pick(0x7fc1_2345, 5, true, true, false), NAN);
        assert_eq!(pick(NAN, NAN, true, false, false), NAN);
        assert_eq!(pick(0xbf80_0000, 0xc000_0000, false, false, false), 0xc000_0000);
        assert_eq!(pick(5, 1, true, false, true), 0);
    }

    #[test]
    fn relations() {
        assert_eq!(relation(0, SIGN, false), 2);
        assert_eq!(relation(0x3f80_0000, 0x4000_0000, false), 1);
        assert_eq!(relation(0x4000_0000, 0x3f80_0000, false), 4);
        assert_eq!(relation(NAN, 0, false), 8);
        assert_eq!(relation(1, 0, false), 4);
        assert_eq!(relation(1, 0, true), 2);
    }
}
