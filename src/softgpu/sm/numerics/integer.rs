//! Integers: logic, shifts, bytes, products, bit counts.

/// LOP3: each result bit is the table's bit at the operands' bits, the first operand highest.
#[must_use]
#[inline(always)]
pub const fn logic(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut result = 0;
    let mut row = 0;
    while row < 8 {
        if table >> row & 1 != 0 {
            let one = if row & 4 != 0 { a } else { !a };
            let two = if row & 2 != 0 { b } else { !b };
            let three = if row & 1 != 0 { c } else { !c };
            result |= one & two & three;
        }
        row += 1;
    }
    result
}

/// What SHF shifts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Funnel {
    /// To the right.
    pub right: bool,
    /// The result is the upper half.
    pub high: bool,
    /// The pair is a 64-bit number; else each shift has 32 at most.
    pub wide: bool,
    /// The number is signed: a shift to the right copies its sign.
    pub signed: bool,
    /// W: the count is taken modulo 32 or 64; else it is clamped.
    pub wrap: bool,
}

/// SHF: a shift of the pair `high:low`.
#[must_use]
#[inline(always)]
pub const fn funnel(low: u32, count: u32, high: u32, how: Funnel) -> u32 {
    let limit = if how.wide { 64 } else { 32 };
    let count = if how.wrap {
        count & (limit - 1)
    } else if count > limit {
        limit
    } else {
        count
    };
    let pair = (high as u64) << 32 | low as u64;
    let shifted = if !how.right {
        if count == 64 { 0 } else { pair << count }
    } else if how.signed {
        (pair.cast_signed() >> (if count > 63 { 63 } else { count })).cast_unsigned()
    } else if count == 64 {
        0
    } else {
        pair >> count
    };
    if how.high { upper(shifted) } else { lower(shifted) }
}

#[allow(clippy::cast_possible_truncation, reason = "the lower half is asked for")]
#[inline(always)]
const fn lower(pair: u64) -> u32 {
    pair as u32
}

#[inline(always)]
const fn upper(pair: u64) -> u32 {
    lower(pair >> 32)
}

/// How PRMT makes its four selectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Permute {
    /// A nibble each: three bits of the byte's number, one for copies of its sign.
    #[default]
    Index = 0,
    /// F4E: four bytes from the number on.
    Forward = 1,
    /// B4E: four bytes from the number on, downwards.
    Backward = 2,
    /// RC8: one byte.
    Byte = 3,
    /// ECL: not below the number.
    ClampLow = 4,
    /// ECR: not above the number.
    ClampHigh = 5,
    /// RC16: one half.
    Half = 6,
}

impl Permute {
    /// Mode of a field of three bits. 7 is none.
    #[must_use]
    pub const fn of(field: u32) -> Option<Self> {
        Some(match field {
            0 => Self::Index,
            1 => Self::Forward,
            2 => Self::Backward,
            3 => Self::Byte,
            4 => Self::ClampLow,
            5 => Self::ClampHigh,
            6 => Self::Half,
            _ => return None,
        })
    }

    const fn selector(self, selector: u32, place: u32) -> u32 {
        let number = selector & 3;
        match self {
            Self::Index => (selector >> (4 * place)) % 16,
            Self::Forward => (number + place) & 7,
            Self::Backward => number.wrapping_sub(place) & 7,
            Self::Byte => number,
            Self::ClampLow => {
                if place > number {
                    place
                } else {
                    number
                }
            }
            Self::ClampHigh => {
                if place < number {
                    place
                } else {
                    number
                }
            }
            Self::Half => (number & 1) * 2 + (place & 1),
        }
    }
}

/// PRMT: bytes of the pair `high:low`, by a selector.
#[must_use]
#[inline(always)]
pub const fn permute(low: u32, selector: u32, high: u32, mode: Permute) -> u32 {
    let pair = (high as u64) << 32 | low as u64;
    let mut result = 0;
    let mut place = 0;
    while place < 4 {
        let one = mode.selector(selector, place);
        let byte = lower(pair >> (8 * (one & 7))) % 256;
        let byte = if one & 8 == 0 { byte } else { (byte >> 7) * 0xff };
        result |= byte << (8 * place);
        place += 1;
    }
    result
}

/// Sum of three words and two bits, with its carry: 0 to 4.
#[must_use]
#[inline(always)]
pub const fn add3(a: u32, b: u32, c: u32, carry: u32) -> (u32, u32) {
    let sum = a as u64 + b as u64 + c as u64 + carry as u64;
    (lower(sum), upper(sum))
}

/// 32 bits times 32 bits, as 64.
#[must_use]
#[inline(always)]
pub const fn product(a: u32, b: u32, signed: bool) -> u64 {
    if signed {
        (a.cast_signed() as i64 * b.cast_signed() as i64).cast_unsigned()
    } else {
        a as u64 * b as u64
    }
}

/// How two words relate: 1 less, 2 equal, 4 greater.
#[must_use]
#[inline(always)]
pub const fn relation(a: u32, b: u32, signed: bool) -> u32 {
    let flip = (signed as u32) << 31;
    let (a, b) = (a ^ flip, b ^ flip);
    (a < b) as u32 | ((a == b) as u32) << 1 | ((a > b) as u32) << 2
}

/// FLO: place of the highest bit that differs from the sign (that is set, if unsigned); all ones if none.
/// With `from_above`, SH: the shift that brings it to the top.
#[must_use]
#[inline(always)]
pub const fn leading(word: u32, signed: bool, from_above: bool) -> u32 {
    let word = if signed && word.cast_signed() < 0 { !word } else { word };
    match (word == 0, from_above) {
        (true, _) => u32::MAX,
        (false, true) => word.leading_zeros(),
        (false, false) => 31 - word.leading_zeros(),
    }
}

/// BMSK: `width` bits from `start` on. Counts are clamped, or with W taken modulo 32.
#[must_use]
#[inline(always)]
pub const fn bit_mask(start: u32, width: u32, wrap: bool) -> u32 {
    let (start, width) = if wrap { (start & 31, width & 31) } else { (start, width) };
    if start > 31 {
        return 0;
    }
    let ones = if width > 31 { u32::MAX } else { (1 << width) - 1 };
    ones << start
}

/// SGXT: the lowest `width` bits, with the highest of them (if signed) or 0 above. The count is clamped to
/// 32, or with W taken modulo 32.
#[must_use]
#[inline(always)]
pub const fn extend(word: u32, width: u32, signed: bool, wrap: bool) -> u32 {
    let width = if wrap { width & 31 } else { width };
    match width {
        0 => 0,
        1..32 if signed => ((word << (32 - width)).cast_signed() >> (32 - width)).cast_unsigned(),
        1..32 => word & ((1 << width) - 1),
        _ => word,
    }
}

/// IDP.4A: bytes times bytes, summed up, and a word.
#[must_use]
#[inline(always)]
pub const fn dot4(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let mut sum = c;
    let mut place = 0;
    while place < 32 {
        let one = extend(a >> place, 8, a_signed, false);
        let two = extend(b >> place, 8, b_signed, false);
        sum = sum.wrapping_add(one.wrapping_mul(two));
        place += 8;
    }
    sum
}

/// IDP.2A: the halves of `a` times two bytes of `b`, its low or `upper_bytes`, and a word.
#[must_use]
#[inline(always)]
pub const fn dot2(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool, upper_bytes: bool) -> u32 {
    let b = if upper_bytes { b >> 16 } else { b };
    let low = extend(a, 16, a_signed, false).wrapping_mul(extend(b, 8, b_signed, false));
    let high = extend(a >> 16, 16, a_signed, false).wrapping_mul(extend(b >> 8, 8, b_signed, false));
    c.wrapping_add(low).wrapping_add(high)
}

/// VABSDIFF: `|a - b| + c`.
#[must_use]
#[inline(always)]
pub const fn absolute_difference(a: u32, b: u32, c: u32, signed: bool) -> u32 {
    let difference = if signed { a.cast_signed().abs_diff(b.cast_signed()) } else { a.abs_diff(b) };
    difference.wrapping_add(c)
}

/// VABSDIFF4: the same of four bytes, summed up.
#[must_use]
#[inline(always)]
pub const fn absolute_difference4(a: u32, b: u32, c: u32, signed: bool) -> u32 {
    let mut sum = c;
    let mut place = 0;
    while place < 32 {
        let one = extend(a >> place, 8, signed, false);
        let two = extend(b >> place, 8, signed, false);
        sum = absolute_difference(one, two, sum, true);
        place += 8;
    }
    sum
}

/// The same, each byte for itself.
#[must_use]
#[inline(always)]
pub const fn absolute_differences(a: u32, b: u32) -> u32 {
    let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (a.to_le_bytes(), b.to_le_bytes());
    u32::from_le_bytes([a0.abs_diff(b0), a1.abs_diff(b1), a2.abs_diff(b2), a3.abs_diff(b3)])
}

/// VIMNMX of halves: of each the smaller one, or the larger.
#[must_use]
#[inline(always)]
pub const fn pick_halves(a: u32, b: u32, smaller: bool, signed: bool) -> u32 {
    let flip = if signed { 0x8000_8000 } else { 0 };
    let (one, two) = (a ^ flip, b ^ flip);
    let low = (one << 16 < two << 16) == smaller;
    let high = (one >> 16 < two >> 16) == smaller;
    let upper = if high { a >> 16 } else { b >> 16 };
    let lower = if low { a } else { b };
    upper << 16 | lower << 16 >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_logic() {
        let (a, b, c) = (0xf0f0_1234, 0xcccc_5678, 0xaaaa_9abc);
        assert_eq!(logic(a, b, c, 0xc0), a & b);
        assert_eq!(logic(a, b, c, 0xfc), a | b);
        assert_eq!(logic(a, b, c, 0x3c), a ^ b);
        assert_eq!(logic(a, b, c, 0x96), a ^ b ^ c);
        assert_eq!(logic(a, b, c, 0x33), !b);
        assert_eq!(logic(a, b, c, 0xe2), (a & b) | (c & !b));
    }

    #[test]
    fn shifts() {
        let left = Funnel::default();
        let right = Funnel { right: true, ..left };
        assert_eq!(funnel(1, 31, 0, left), 1 << 31);
        assert_eq!(funnel(1, 32, 0, left), 0);
        assert_eq!(funnel(1, 33, 0, Funnel { wrap: true, ..left }), 2);
        assert_eq!(funnel(0x8000_0000, 1, 0, Funnel { high: true, ..left }), 1);
        assert_eq!(funnel(0, 4, 0x8000_0000, Funnel { high: true, signed: true, ..right }), 0xf800_0000);
        let wide = Funnel { wide: true, high: true, ..right };
        assert_eq!(funnel(0, 64, 0x8000_0000, wide), 0);
        assert_eq!(funnel(0, 200, 0x8000_0000, Funnel { signed: true, ..wide }), u32::MAX);
        assert_eq!(funnel(0x1234_5678, 8, 0x9a, right), 0x9a12_3456);
    }

    #[test]
    fn bytes() {
        let (low, high) = (0x8070_6050, 0x1020_3040);
        assert_eq!(permute(low, 0x3210, high, Permute::Index), low);
        assert_eq!(permute(low, 0x7654, high, Permute::Index), high);
        assert_eq!(permute(low, 0xb0b0, high, Permute::Index), 0xff50_ff50);
        assert_eq!(permute(low, 1, high, Permute::Forward), 0x4080_7060);
        assert_eq!(permute(low, 0, high, Permute::Backward), 0x3020_1050);
        assert_eq!(permute(low, 2, high, Permute::Byte), 0x7070_7070);
        assert_eq!(permute(low, 1, high, Permute::Half), 0x8070_8070);
        assert_eq!(permute(low, 2, high, Permute::ClampLow), 0x8070_7070);
        assert_eq!(permute(low, 2, high, Permute::ClampHigh), 0x7070_6050);
        assert_eq!(Permute::of(7), None);
    }

    #[test]
    fn counts_and_masks() {
        assert_eq!(leading(0, false, false), u32::MAX);
        assert_eq!(leading(0x10, false, false), 4);
        assert_eq!(leading(0x10, false, true), 27);
        assert_eq!(leading(0xffff_fff0, true, false), 3);
        assert_eq!(bit_mask(4, 8, false), 0xff0);
        assert_eq!(bit_mask(0, 40, false), u32::MAX);
        assert_eq!(bit_mask(33, 1, true), 2);
        assert_eq!(bit_mask(33, 1, false), 0);
        assert_eq!(extend(0x80, 8, true, false), 0xffff_ff80);
        assert_eq!(extend(0x1ff, 8, false, false), 0xff);
        assert_eq!(extend(7, 0, true, false), 0);
        assert_eq!(extend(0x8000_0001, 99, true, false), 0x8000_0001);
    }

    #[test]
    fn products_and_sums() {
        assert_eq!(product(u32::MAX, 2, true), (-2_i64).cast_unsigned());
        assert_eq!(product(u32::MAX, 2, false), 0x1_ffff_fffe);
        assert_eq!(add3(u32::MAX, u32::MAX, u32::MAX, 2), (u32::MAX, 2));
        assert_eq!(dot4(0x01ff_0203, 0x0102_0304, 10, true, false), 10 + 1 - 2 + 6 + 12);
        assert_eq!(dot2(0xffff_0002, 0x0605_0403, 1, true, false, false), 1 + 6 - 4);
        assert_eq!(dot2(0xffff_0002, 0x0605_0403, 1, true, false, true), 1 + 10 - 6);
        assert_eq!(absolute_difference(u32::MAX, 1, 5, true), 7);
        assert_eq!(absolute_difference(u32::MAX, 1, 5, false), 5_u32.wrapping_add(u32::MAX - 1));
        assert_eq!(absolute_difference4(0x0a00_ff01, 0x0b05_0102, 0, false), 1 + 5 + 254 + 1);
        assert_eq!([relation(1, 2, true), relation(2, 2, false), relation(u32::MAX, 0, true)], [1, 2, 1]);
    }
}
