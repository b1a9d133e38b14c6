//! What reductions make of a value in memory and an operand. Whoever carries one out sees to it that no other
//! comes between reading and writing.

/// Width of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// 32 bits.
    Word,
    /// 64 bits.
    DoubleWord,
}

impl Operand {
    /// That of 64 bits where `wide`, else that of 32.
    pub const fn of(wide: bool) -> Self {
        if wide { Self::DoubleWord } else { Self::Word }
    }

    /// Bytes of a value.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Word => 4,
            Self::DoubleWord => 8,
        }
    }

    /// Bits of a value.
    pub const fn mask(self) -> u64 {
        match self {
            Self::Word => 0xffff_ffff,
            Self::DoubleWord => u64::MAX,
        }
    }

    /// True when the sign bit is set.
    pub const fn is_negative(self, value: u64) -> bool {
        let sign = match self {
            Self::Word => 1 << 31,
            Self::DoubleWord => 1 << 63,
        };
        value & sign != 0
    }

    /// The order of two values.
    fn less(self, signed: bool, a: u64, b: u64) -> bool {
        match (signed, self.is_negative(a), self.is_negative(b)) {
            (true, a_negative, b_negative) if a_negative != b_negative => a_negative,
            _ => a < b,
        }
    }
}

/// How values are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
    /// Bits that differ.
    Xor,
    /// Bits of both.
    And,
    /// Bits of either.
    Or,
    /// The sum.
    Add,
    /// The value plus one; from 0 again after the operand.
    Increment,
    /// The value less one; from the operand again after 0.
    Decrement,
}

impl Reduction {
    /// By the numbering of the host unit and the copy engines.
    pub fn of_host(number: u32) -> Option<Self> {
        [Self::Min, Self::Max, Self::Xor, Self::And, Self::Or, Self::Add, Self::Increment, Self::Decrement]
            .get(usize::try_from(number).ok()?)
            .copied()
    }

    /// By the numbering of the graphics classes.
    pub fn of_graphics(number: u32) -> Option<Self> {
        [Self::Add, Self::Min, Self::Max, Self::Increment, Self::Decrement, Self::And, Self::Or, Self::Xor]
            .get(usize::try_from(number).ok()?)
            .copied()
    }

    /// False for combinations that hardware does not have.
    pub fn supports(self, operand: Operand, signed: bool) -> bool {
        match (self, operand) {
            (Self::Increment | Self::Decrement, Operand::Word) | (Self::Add, Operand::DoubleWord) => !signed,
            (Self::Increment | Self::Decrement, Operand::DoubleWord) => false,
            _ => true,
        }
    }

    /// The new value of memory that holds `value`. Bits of `value` and `by` above the operand's do not count.
    pub fn apply(self, operand: Operand, signed: bool, value: u64, by: u64) -> u64 {
        let (value, by) = (value & operand.mask(), by & operand.mask());
        let result = match self {
            Self::Min if operand.less(signed, value, by) => value,
            Self::Max if operand.less(signed, by, value) => value,
            Self::Min | Self::Max => by,
            Self::Xor => value ^ by,
            Self::And => value & by,
            Self::Or => value | by,
            Self::Add => value.wrapping_add(by),
            Self::Increment => {
                if value >= by {
                    0
                } else {
                    value.wrapping_add(1)
                }
            }
            Self::Decrement => {
                if value == 0 || value > by {
                    by
                } else {
                    value.wrapping_sub(1)
                }
            }
        };
        result & operand.mask()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_follows_the_sign() {
        let minus_one = 0xffff_ffff;
        assert_eq!(Reduction::Min.apply(Operand::Word, true, minus_one, 5), minus_one);
        assert_eq!(Reduction::Min.apply(Operand::Word, false, minus_one, 5), 5);
        assert_eq!(Reduction::Max.apply(Operand::Word, true, minus_one, 5), 5);
        assert_eq!(Reduction::Max.apply(Operand::DoubleWord, true, minus_one, 5), minus_one);
        assert_eq!(Reduction::Max.apply(Operand::DoubleWord, true, u64::MAX, 5), 5);
        assert_eq!(Reduction::Min.apply(Operand::Word, false, 0x1_0000_0001, 5), 1, "above its bits");
    }

    #[test]
    fn counters_wrap_at_the_operand() {
        let step = |reduction: Reduction, value| reduction.apply(Operand::Word, false, value, 2);
        assert_eq!([0, 1, 2, 7].map(|value| step(Reduction::Increment, value)), [1, 2, 0, 0]);
        assert_eq!([0, 1, 2, 7].map(|value| step(Reduction::Decrement, value)), [2, 0, 1, 2]);
    }

    #[test]
    fn sums_stay_in_their_width() {
        assert_eq!(Reduction::Add.apply(Operand::Word, false, 0xffff_ffff, 2), 1);
        assert_eq!(Reduction::Add.apply(Operand::DoubleWord, false, 0xffff_ffff, 2), 0x1_0000_0001);
    }

    #[test]
    fn numberings_differ() {
        assert_eq!(Reduction::of_host(5), Some(Reduction::Add));
        assert_eq!(Reduction::of_graphics(0), Some(Reduction::Add));
        assert_eq!(Reduction::of_host(8), None);
        assert!(!Reduction::Increment.supports(Operand::DoubleWord, false));
        assert!(!Reduction::Add.supports(Operand::DoubleWord, true));
    }
}
