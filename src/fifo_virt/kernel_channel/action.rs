//! What commands ask for, once they are decoded and checked.

use super::memory::{Invalidation, Place};
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::reduction::{Operand, Reduction};

/// A step that a channel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Waits.
    Acquire(Acquire),
    /// Copies or fills, then writes a semaphore, then tells the driver: each where it is asked for.
    Launch(Launch),
    /// Page tables have changed.
    Invalidate(Invalidation),
}

/// A semaphore that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire {
    /// Where it is.
    pub address: GpuVa,
    /// What it is compared with.
    pub payload: u64,
    /// Its width.
    pub width: Operand,
    /// When the wait is over.
    pub until: Condition,
}

/// When a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The value is the payload.
    Equal,
    /// The value is at least the payload.
    AtLeast,
    /// The value minus the payload is not negative.
    NotBefore,
    /// They share a set bit.
    SharesOne,
    /// They share a clear bit.
    SharesZero,
}

impl Acquire {
    /// Whether the wait is over when the semaphore has this value, of which 32 bits count if it has no more.
    pub const fn is_met_by(&self, value: u64) -> bool {
        let mask = self.width.mask();
        let (value, payload) = (value & mask, self.payload & mask);
        match self.until {
            Condition::Equal => value == payload,
            Condition::AtLeast => value >= payload,
            Condition::NotBefore => !self.width.is_negative(value.wrapping_sub(payload)),
            Condition::SharesOne => value & payload != 0,
            Condition::SharesZero => !(value | payload) & mask != 0,
        }
    }
}

/// A semaphore that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// Where it is.
    pub address: GpuVa,
    /// The value.
    pub payload: u64,
    /// Its width.
    pub width: Operand,
    /// The time is written 8 bytes behind it.
    pub stamped: bool,
    /// The value is combined with what is there.
    pub reduction: Option<Combine>,
}

/// How a value is combined with what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combine {
    /// What is made of the two.
    pub by: Reduction,
    /// They are signed numbers.
    pub signed: bool,
}

impl Combine {
    /// By the numbering of the host unit and the copy engines; none where hardware does not have it.
    pub fn of_host(number: u32, width: Operand, signed: bool) -> Option<Self> {
        let by = Reduction::of_host(number).filter(|by| by.supports(width, signed))?;
        Some(Self { by, signed })
    }
}

/// What follows from one launch of a copy engine, or from a release by the host unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Bytes that are written.
    pub transfer: Option<Transfer>,
    /// A semaphore that is written after them.
    pub release: Option<Release>,
    /// The driver is told.
    pub notify: bool,
}

/// Lines that are copied or filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where the first line comes from.
    pub source: Place,
    /// Where the first line goes.
    pub target: Place,
    /// From a line to the next, in bytes.
    pub source_pitch: i32,
    /// From a line to the next, in bytes.
    pub target_pitch: i32,
    /// Elements of a line.
    pub length: u32,
    /// Lines.
    pub lines: u32,
    /// What becomes of an element.
    pub element: Element,
}

/// What becomes of an element of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// A byte that is copied.
    Byte,
    /// A byte that becomes 0.
    Zero,
    /// Components that are copied, set or left alone.
    Components(Components),
}

/// Components of an element, of one to four bytes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Components {
    /// Bytes of each, 1 to 4.
    pub size: u8,
    /// How many the source has, 1 to 4.
    pub sources: u8,
    /// What becomes of those of the target; those behind [`Self::targets`] do not count.
    pub target: [Component; 4],
    /// How many the target has, 1 to 4.
    pub targets: u8,
}

/// What becomes of a component of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// It comes from a component of the source, which is there.
    Source(u8),
    /// It becomes this, as far as it has room.
    Constant(u32),
    /// It stays.
    Stays,
}

impl Element {
    /// Bytes of an element of the source, 0 where none is read, and of the target.
    pub fn sizes(&self) -> (usize, usize) {
        match self {
            Self::Byte => (1, 1),
            Self::Zero => (0, 1),
            Self::Components(Components { size, sources, target, targets }) => {
                let size = usize::from(*size);
                let of_target = target.iter().take((*targets).into());
                let reads = of_target.clone().any(|component| matches!(component, Component::Source(_)));
                let source = if reads { usize::from(*sources).saturating_mul(size) } else { 0 };
                (source, usize::from(*targets).saturating_mul(size))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_over_when_the_condition_says_so() {
        let met = |until, wide, payload, value| {
            Acquire { address: GpuVa(0), payload, width: Operand::of(wide), until }.is_met_by(value)
        };
        assert!(met(Condition::Equal, false, 0x1_0000_0005, 0x7_0000_0005));
        assert!(!met(Condition::Equal, true, 0x1_0000_0005, 0x7_0000_0005));
        assert!(met(Condition::AtLeast, false, 5, 6) && !met(Condition::AtLeast, false, 5, 4));
        assert!(met(Condition::NotBefore, false, u32::MAX.into(), 3), "it has wrapped");
        assert!(!met(Condition::NotBefore, false, 3, u32::MAX.into()));
        assert!(met(Condition::NotBefore, true, u64::MAX, 3) && !met(Condition::NotBefore, true, 3, 2));
        assert!(met(Condition::SharesOne, false, 6, 4) && !met(Condition::SharesOne, false, 6, 1));
        assert!(met(Condition::SharesZero, false, 6, 4) && !met(Condition::SharesZero, false, 6, !6));
    }
}
