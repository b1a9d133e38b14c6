//! How results are rounded.

/// How a result that lies between two words is rounded. The discriminants are the field's in the word of an
/// instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rounding {
    /// RN: to the nearest, ties to the even one.
    #[default]
    Nearest = 0,
    /// RM: towards minus infinity.
    Down = 1,
    /// RP: towards plus infinity.
    Up = 2,
    /// RZ: towards zero.
    Zero = 3,
}

impl Rounding {
    /// Rounding of a field of two bits; others are ignored.
    #[must_use]
    pub const fn of(field: u32) -> Self {
        match field & 3 {
            0 => Self::Nearest,
            1 => Self::Down,
            2 => Self::Up,
            _ => Self::Zero,
        }
    }

    /// Whether the magnitude above is taken, when the magnitude below is `odd` and the rest is `rest` in
    /// units of which `half` is the middle.
    pub(super) const fn up(self, negative: bool, odd: bool, rest: u128, half: u128) -> bool {
        match self {
            Self::Nearest => rest > half || rest == half && odd,
            Self::Down => negative && rest != 0,
            Self::Up => !negative && rest != 0,
            Self::Zero => false,
        }
    }
}
