//! Versions of the shader processor's instruction set.

use std::fmt;

/// A version of the instruction set, in the order in which they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Arch {
    /// Turing.
    Sm75,
    /// Ampere, GA100.
    Sm80,
    /// Ampere, GA10x.
    Sm86,
    /// Ada.
    Sm89,
    /// Hopper.
    Sm90,
    /// Blackwell, GB100.
    Sm100,
    /// Blackwell, GB20x.
    Sm120,
}

impl Arch {
    /// Every version that the table knows.
    pub const ALL: [Self; 7] =
        [Self::Sm75, Self::Sm80, Self::Sm86, Self::Sm89, Self::Sm90, Self::Sm100, Self::Sm120];

    /// Its number, as compilers name it: 75 for SM 7.5.
    #[must_use]
    pub const fn number(self) -> u16 {
        match self {
            Self::Sm75 => 75,
            Self::Sm80 => 80,
            Self::Sm86 => 86,
            Self::Sm89 => 89,
            Self::Sm90 => 90,
            Self::Sm100 => 100,
            Self::Sm120 => 120,
        }
    }

    /// The version of that number.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.number() == number)
    }

    /// Bits of a field that names a uniform register; all ones is the register that reads as zero.
    #[must_use]
    pub const fn uniform_bits(self) -> u8 {
        match self {
            Self::Sm75 | Self::Sm80 | Self::Sm86 | Self::Sm89 | Self::Sm90 => 6,
            Self::Sm100 | Self::Sm120 => 8,
        }
    }

    /// Place in [`Arch::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SM{}", self.number())
    }
}
