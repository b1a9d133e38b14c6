//! Random numbers that are the same everywhere and always: recorded vectors name their inputs by a seed.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

/// Values at which operations do something else than elsewhere.
const SPECIAL: [u32; 40] = [
    0,
    1,
    2,
    3,
    31,
    32,
    33,
    63,
    64,
    0xff,
    0x8000_0000,
    0x7fff_ffff,
    0xffff_ffff,
    0xffff_fffe,
    // Floats: the ends of subnormal and normal numbers, infinity, NaNs, ones, halves, near powers of two.
    0x0000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x807f_ffff,
    0x8080_0000,
    0x7f7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7f80_0001,
    0xffff_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x3f7f_ffff,
    0x3f80_0001,
    0x4b00_0000,
    0x4f00_0000,
    0xcf00_0000,
    0x5f00_0000,
    // Doubles' upper words, and packed halves.
    0x7ff0_0000,
    0x3ff0_0000,
    0x0010_0000,
    0x7c00_3c00,
    0x0001_8001,
    0x7bff_fbff,
    0x7e00_03ff,
];

impl Random {
    /// A sequence of its own for each seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// The next 32 bits.
    pub fn word(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.bits().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u32) -> u32 {
        self.word().checked_rem(end).unwrap_or(0)
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: u32) -> bool {
        self.below(times) == 0
    }

    /// One of some.
    ///
    /// # Panics
    /// There are none.
    pub fn one_of<T: Copy>(&mut self, some: &[T]) -> T {
        let index = self.below(u32::try_from(some.len()).unwrap_or(u32::MAX));
        some[usize::try_from(index).unwrap_or(0)]
    }

    /// Sixteen operands of a thread: fours of words that have no more to do with each other than words of one
    /// kind, of two doubles, and of numbers that nearly cancel or are nearly whole.
    pub fn operands(&mut self) -> [u32; 16] {
        let mut words = [0; 16];
        for four in words.chunks_mut(4) {
            match self.below(8) {
                0 => {
                    let doubles = [self.double(), self.double()];
                    four.copy_from_slice(&doubles.concat());
                }
                1 => {
                    // Two doubles that differ in their last places, and by sign.
                    let [low, high] = self.double();
                    let near = low ^ self.word() >> self.below(32);
                    four.copy_from_slice(&[low, high, near, high ^ self.below(2) << 31]);
                }
                2 => {
                    let one = self.operand();
                    let near = |random: &mut Self| {
                        (one ^ random.below(2) << 31).wrapping_add(random.below(5)).wrapping_sub(2)
                    };
                    for word in four {
                        *word = near(self);
                    }
                }
                3 => {
                    // Around whole numbers and their middles, where conversions turn.
                    for word in four {
                        #[allow(clippy::cast_precision_loss, reason = "a number near it will do")]
                        let number = (self.word() >> self.below(32)) as f32 * 0.5;
                        *word = (number.to_bits() ^ self.below(2) << 31).wrapping_add(self.below(3));
                    }
                }
                _ => {
                    for word in four {
                        *word = self.operand();
                    }
                }
            }
        }
        words
    }

    /// A double: uniform bits, a special one, one near 1, or one near the ends of integers.
    fn double(&mut self) -> [u32; 2] {
        const HIGH: [u32; 14] = [
            0,
            0x8000_0000,
            0x7ff0_0000,
            0xfff0_0000,
            0x7ff8_0000,
            0x7ff0_0001,
            0x000f_ffff,
            0x0010_0000,
            0x7fef_ffff,
            0x3ff0_0000,
            0xbff0_0000,
            0x41e0_0000,
            0x43e0_0000,
            0xc1e0_0000,
        ];
        let high = match self.below(4) {
            0 => self.one_of(&HIGH),
            1 | 2 => self.word() & 0x800f_ffff | (993 + self.below(100)) << 20,
            _ => self.word(),
        };
        let low = match self.below(4) {
            0 => 0,
            1 => u32::MAX << self.below(32),
            _ => self.word(),
        };
        [low, high]
    }

    /// An operand: uniform bits, a special value, a float of a moderate size, or a small integer.
    pub fn operand(&mut self) -> u32 {
        match self.below(8) {
            0 | 1 => self.one_of(&SPECIAL),
            // Exponents around 1, as numbers are that programs compute with.
            2 | 3 => self.word() & 0x807f_ffff | (117 + self.below(20)) << 23,
            4 => self.word() >> self.below(32),
            // Halves of a moderate size.
            5 => self.word() & 0x87ff_87ff | (10 + self.below(10)) << 26 | (10 + self.below(10)) << 10,
            _ => self.word(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_those_of_the_publication() {
        let mut random = Random::new(1_234_567);
        let numbers: Vec<_> = (0..3).map(|_| random.bits()).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
