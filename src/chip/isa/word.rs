//! The instruction word: 128 bits, little-endian in memory.

use crate::arch::Arch;

/// An instruction word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Word(pub u128);

/// A run of bits of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// Lowest bit.
    pub lo: u8,
    /// How many, 64 at most.
    pub len: u8,
}

impl Bits {
    /// `len` bits from `lo` on.
    #[must_use]
    pub const fn new(lo: u8, len: u8) -> Self {
        Self { lo, len }
    }

    /// The bits, set, in their place.
    #[must_use]
    pub const fn mask(self) -> u128 {
        if self.len == 0 { 0 } else { (u128::MAX >> (128 - self.len as u32)) << self.lo }
    }
}

/// Operation, form and the bit that selects the uniform or bindless variant (bit 91, as bit 12).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code(pub u16);

impl Word {
    /// Bytes of a word.
    pub const SIZE: usize = 16;
    const CODE: Bits = Bits::new(0, 12);
    const VARIANT: Bits = Bits::new(91, 1);
    const CONTROL: Bits = Bits::new(105, 21);
    /// Guard predicate.
    pub(crate) const GUARD: Bits = Bits::new(12, 3);
    /// The guard is negated.
    pub(crate) const GUARD_NOT: Bits = Bits::new(15, 1);

    /// Bits that mean the same in every instruction.
    pub(crate) const COMMON: u128 = Self::CODE.mask()
        | Self::VARIANT.mask()
        | Self::CONTROL.mask()
        | Self::GUARD.mask()
        | Self::GUARD_NOT.mask();

    /// The word of 16 bytes of memory.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// The value of a field.
    #[must_use]
    pub const fn get(self, bits: Bits) -> u64 {
        #[allow(clippy::cast_possible_truncation, reason = "a field has 64 bits at most")]
        let value = ((self.0 & bits.mask()) >> bits.lo) as u64;
        value
    }

    /// The value of a field of at most eight bits.
    #[must_use]
    pub const fn small(self, bits: Bits) -> u8 {
        (self.get(bits) & 0xff) as u8
    }

    /// The word with `value` in a field; what does not fit is cut off.
    #[must_use]
    pub const fn with(self, bits: Bits, value: u64) -> Self {
        Self((self.0 & !bits.mask()) | (((value as u128) << bits.lo) & bits.mask()))
    }

    /// Which operation and form.
    #[must_use]
    pub const fn code(self) -> Code {
        #[allow(clippy::cast_possible_truncation, reason = "thirteen bits")]
        let code = (self.get(Self::CODE) | (self.get(Self::VARIANT) << 12)) as u16;
        Code(code)
    }

    /// The word with that operation and form.
    #[must_use]
    pub const fn with_code(self, code: Code) -> Self {
        self.with(Self::CODE, code.0 as u64).with(Self::VARIANT, (code.0 >> 12) as u64)
    }

    /// Scheduling bits.
    #[must_use]
    pub const fn control(self) -> Control {
        #[allow(clippy::cast_possible_truncation, reason = "21 bits")]
        let control = self.get(Self::CONTROL) as u32;
        Control(control)
    }

    /// The word with those scheduling bits.
    #[must_use]
    pub const fn with_control(self, control: Control) -> Self {
        self.with(Self::CONTROL, control.0 as u64)
    }
}

/// What a compiler tells the scheduler (bits 125:105). It has no architectural meaning: a correct program
/// computes the same whatever stands here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Control(pub u32);

impl Control {
    const fn field(self, lo: u32, len: u32) -> u8 {
        ((self.0 >> lo) & ((1 << len) - 1) & 0xff) as u8
    }

    /// Cycles until the next instruction may start.
    #[must_use]
    pub const fn stall(self) -> u8 {
        self.field(0, 4)
    }

    /// The yield hint's bit, as it stands.
    #[must_use]
    pub const fn yield_bit(self) -> bool {
        self.field(4, 1) == 1
    }

    /// Scoreboard that is released when results are written; 7 for none.
    #[must_use]
    pub const fn write_scoreboard(self) -> u8 {
        self.field(5, 3)
    }

    /// Scoreboard that is released when sources were read; 7 for none.
    #[must_use]
    pub const fn read_scoreboard(self) -> u8 {
        self.field(8, 3)
    }

    /// Scoreboards to wait for, one bit each.
    #[must_use]
    pub const fn wait_mask(self) -> u8 {
        self.field(11, 6)
    }

    /// Operand caches to keep: bit 0 for bits 31:24, bit 1 for bits 39:32, bit 2 for bits 71:64.
    #[must_use]
    pub const fn reuse(self) -> u8 {
        self.field(17, 4)
    }
}

/// The bits of a field that names a uniform register at `lo`.
pub(crate) const fn uniform(lo: u8, arch: Arch) -> Bits {
    Bits::new(lo, arch.uniform_bits())
}
