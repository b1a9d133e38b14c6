//! What the shaders should compute, by the processor: eight words for invocation `index` of `groups` groups.

use super::{GROUP, RESULTS};

type Results = [u32; RESULTS];

/// Lanes of a subgroup.
const LANES: usize = 32;

/// `integers.comp`.
pub fn integers(words: &[u32], index: usize, _: usize) -> Results {
    let (a, b) = (words[index], words[index + 1]);
    let (signed_a, signed_b) = (a.cast_signed(), b.cast_signed());
    let shift = b & 31;
    let at = shift & 15;
    let highest = |number: u32| 31u32.wrapping_sub(number.leading_zeros());
    let lowest = if b == 0 { u32::MAX } else { b.trailing_zeros() };
    let highest_signed = highest(if signed_a < 0 { !a } else { a });
    let field = a >> at & 0x1ff;
    let signed_field = (a >> at << 21).cast_signed() >> 21;
    let mask = 0x1fff << at;
    let [low, high] = halves(u64::from(a) * u64::from(b));
    let [_, signed_high] = halves((i64::from(signed_a) * i64::from(signed_b)).cast_unsigned());
    let (sum, carry) = a.overflowing_add(b);
    let (difference, borrow) = a.overflowing_sub(b);
    let quotient = signed_a.wrapping_div((b >> 12 | 1).cast_signed());
    // GLSL leaves it open; glslang makes it that of the divisor's sign.
    let remainder = signed_a.rem_euclid((b >> 18 | 1).cast_signed());
    [
        a.count_ones()
            .wrapping_add(highest(a).wrapping_mul(64))
            .wrapping_add(lowest.wrapping_mul(4096))
            .wrapping_add(highest_signed.wrapping_mul(262_144)),
        field ^ signed_field.cast_unsigned(),
        (a & !mask | b << at & mask).wrapping_add(b.reverse_bits()),
        high ^ low.wrapping_mul(3) ^ signed_high,
        sum.wrapping_add(u32::from(carry) * 7).wrapping_add(difference ^ u32::from(borrow)),
        (a / (b | 1)).wrapping_add(a % (b >> 20 | 1)),
        quotient.cast_unsigned() ^ remainder.cast_unsigned(),
        (a << shift)
            .wrapping_add(a >> shift)
            .wrapping_add((signed_a >> shift).cast_unsigned())
            .wrapping_add(signed_a.min(signed_b).cast_unsigned())
            .wrapping_add(a.max(b))
            .wrapping_add(signed_a.unsigned_abs()),
    ]
}

/// `floats.comp`.
pub fn floats(words: &[u32], index: usize, _: usize) -> Results {
    let word = words[index];
    let a = (float(word & 0xffff) - 32768.0) * 0.0625;
    let b = float(words[index + 1] & 0xfff) * 0.0625 - 100.0;
    let kept = word & 0x3fff_3fff | 0x0400_0400;
    let larger = if a > b { b } else { a };
    let comparisons = u32::from(a < b) + 2 * u32::from(a >= 0.0) + 4 * u32::from(a != b);
    [
        (a.floor() + b.ceil()).to_bits(),
        (a.trunc() - b.round_ties_even()).to_bits(),
        a.mul_add(b, 0.25).to_bits(),
        whole(a) ^ whole(b * 4.0),
        half((a * 0.125).floor()) | half(b.floor()) << 16,
        of_half(kept & 0xffff).to_bits() ^ of_half(kept >> 16).to_bits(),
        (a.clamp(-20.0, b.abs()) + a.min(b) - (-a).max(b)).to_bits(),
        comparisons.wrapping_add(larger.to_bits().wrapping_mul(8)),
    ]
}

/// `subgroups.comp`.
pub fn subgroups(words: &[u32], index: usize, _: usize) -> Results {
    let lane = index % LANES;
    let all = &words[index - lane..][..LANES];
    let word = words[index];
    let sum = |words: &[u32]| words.iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
    let odd = (0..LANES).filter(|lane| all[*lane] & 1 == 1);
    let ballot = odd.clone().fold(0u32, |ballot, lane| ballot | 1 << lane);
    let of_odd = odd.clone().fold(0u32, |sum, lane| sum.wrapping_add(all[lane] >> 4));
    let first = odd.clone().next() == Some(lane);
    let before = all[..lane].iter().map(|word| word & 0xffff).max().unwrap_or(0);
    let any = all.iter().any(|word| *word > 0xf000_0000);
    let every = all.iter().all(|word| *word != 0);
    [
        sum(all),
        sum(&all[..=lane]) ^ before,
        ballot,
        all[(lane * 7 + 3) % LANES],
        all[lane ^ 5].wrapping_add(all[17]),
        all.iter().copied().min().unwrap_or(0) ^ all.iter().fold(0, |all, word| all ^ word),
        u32::from(any) + 2 * u32::from(every) + 4 * ballot.count_ones(),
        if word & 1 == 1 { of_odd.wrapping_add(u32::from(first)) } else { 0 },
    ]
}

/// `control.comp`.
pub fn control(words: &[u32], index: usize, groups: usize) -> Results {
    let word = words[index];
    let mut own = [0u32; 16];
    for ((at, slot), more) in (1..).zip(&mut own).zip(&words[index..]) {
        *slot = word.wrapping_mul(at).wrapping_add(*more);
    }
    let chosen = match word & 7 {
        0 => word.wrapping_add(1),
        1 => word.wrapping_mul(5),
        2 => !word ^ word >> 3,
        3 => word >> 3,
        6 => 600,
        _ => 7777,
    };
    let mut total = 0u32;
    for outer in 0..word & 15 {
        let met = (0..8).take_while(|inner| (outer + inner) & 3 == 3 || *inner <= outer);
        total += met.filter(|inner| (outer + inner) & 3 != 3).map(|inner| outer * 17 + inner).sum::<u32>();
    }
    let place = |number: u32| (number & 15) as usize;
    let (mut at, mut walked) = (word & 15, 0u32);
    for _ in 0..20 {
        walked = walked.wrapping_add(own[place(at)]);
        own[place(at * 3 + 1)] ^= walked;
        at = (at * 5 + (walked & 3)) & 15;
    }
    let looked = own[place(word >> 4)];
    let [fifth, sixth, seventh] = if word & 32 == 0 {
        [own[15], small(index % GROUP + index / GROUP * 1000), small(groups)]
    } else {
        [1, 2, 3]
    };
    [steps((word & 1023) + 1), chosen, total, walked, looked, fifth, sixth, seventh]
}

/// `atomics.comp`, of the words of a group.
pub fn atomics_of_group(words: &[u32]) -> Results {
    let sum = |of: fn(u32) -> u32| words.iter().fold(0u32, |sum, word| sum.wrapping_add(of(*word)));
    let numbers: usize = (0..words.len()).sum();
    [
        sum(|word| word),
        words.iter().copied().min().unwrap_or(u32::MAX),
        words.iter().copied().max().unwrap_or(0),
        words.iter().fold(0, |all, word| all | 1 << (word & 31)),
        words.iter().fold(u32::MAX, |all, word| all & !(1 << (word >> 27))),
        words.iter().fold(0, |all, word| all ^ word),
        small(words.len()),
        sum(|word| word & 0xff).wrapping_add(small(numbers)),
    ]
}

/// The same shader's words of all groups.
pub fn atomics_of_all(words: &[u32]) -> Vec<u32> {
    vec![
        words.iter().fold(0u32, |sum, word| sum.wrapping_add(*word)),
        words.iter().map(|word| word ^ 0x5555_5555).max().unwrap_or(0),
        words.iter().fold(0, |all, word| all ^ word.wrapping_mul(3)),
        words.iter().fold(0, |all, word| all | word & 0x1111_1111),
        words.iter().fold(0u32, |sum, word| sum.wrapping_add(word >> 8)),
    ]
}

/// Steps until a number is one: halved if even, else three times as large and one more.
fn steps(mut number: u32) -> u32 {
    let mut count = 0;
    while number != 1 && count < 200 {
        number = if number.is_multiple_of(2) { number / 2 } else { number * 3 + 1 };
        count += 1;
    }
    count
}

fn halves(number: u64) -> [u32; 2] {
    let [low, high] = [number & u64::from(u32::MAX), number >> 32];
    [low, high].map(|half| u32::try_from(half).unwrap_or(0))
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn float(number: u32) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "below 2^24, so exact")]
    let float = number as f32;
    float
}

/// Towards zero.
fn whole(number: f32) -> u32 {
    // CAST: below 2^24.
    #[expect(clippy::cast_possible_truncation, reason = "below 2^24")]
    let whole = number as i32;
    whole.cast_unsigned()
}

/// A whole number of eleven bits at most as a half float.
fn half(number: f32) -> u32 {
    if number == 0.0 {
        return number.to_bits() >> 16;
    }
    let bits = number.to_bits();
    let exponent = (bits >> 23 & 0xff) + 15 - 127;
    bits >> 16 & 0x8000 | exponent << 10 | bits >> 13 & 0x3ff
}

/// A half float that is neither subnormal nor infinite.
fn of_half(half: u32) -> f32 {
    let exponent = (half >> 10 & 0x1f) + 127 - 15;
    f32::from_bits((half & 0x8000) << 16 | exponent << 23 | (half & 0x3ff) << 13)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_those_of_their_floats() {
        for (number, bits) in [(0.0, 0), (1.0, 0x3c00), (-2.0, 0xc000), (255.0, 0x5bf8), (-100.0, 0xd640)] {
            assert_eq!(half(number), bits, "{number}");
        }
        assert!(
            (of_half(0x3c00) - 1.0).abs() < f32::EPSILON && (of_half(0x0400) - 6.103_515_6e-5).abs() < 1e-12
        );
    }

    #[test]
    fn known_results_of_whole_numbers_and_loops() {
        assert_eq!(integers(&[0, 0], 0, 1)[0], 0u32.wrapping_sub(64 + 4096 + 262_144));
        assert_eq!(integers(&[7, 3], 0, 1)[5], 2);
        assert_eq!([steps(1), steps(2), steps(27)], [0, 1, 111]);
    }
}
