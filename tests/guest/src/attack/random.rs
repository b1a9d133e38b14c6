//! Random words that are the same in every run: an attack that finds something can be made again.

/// A generator (xorshift64*).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn word(&mut self) -> u32 {
        // The upper half, which is the better one.
        super::low(self.word64() >> 32)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u32) -> u32 {
        self.word() % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_words_and_others_differ() {
        let words = |seed| {
            let mut random = Random::new(seed);
            [random.word64(), random.word64(), u64::from(random.below(10))]
        };
        assert_eq!(words(1), words(1));
        assert_ne!(words(1), words(2));
        assert!(words(7)[2] < 10);
    }
}
