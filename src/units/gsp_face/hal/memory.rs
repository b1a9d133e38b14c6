//! Where a driver sees VRAM before it has page tables: the moving window PRAMIN, and the size.

use std::ops::Range;

use gpuvmk_chip::registers::{Field, Reg, RegArray};

/// The moving window to VRAM in BAR0.
#[derive(Clone, Copy, Debug)]
pub struct Pramin {
    /// Where the window is.
    pub window: RegArray,
    /// Says what it shows.
    pub register: Reg,
    /// First address that it shows, in steps.
    pub base: Field,
    /// log2 of the bytes of a step.
    pub shift: u32,
}

impl Pramin {
    /// Offsets in BAR0 of the window.
    pub const fn range(&self) -> Range<u64> {
        self.window.range()
    }

    /// First VRAM address that the window shows when its register has this value.
    pub const fn start(&self, register: u32) -> u64 {
        // CAST: widening.
        (self.base.get(register) as u64) << self.shift
    }
}

/// Where a driver reads how much VRAM there is.
#[derive(Clone, Copy, Debug)]
pub struct VramSize {
    /// The register.
    pub register: Reg,
    /// What it says of so many bytes.
    pub value: fn(u64) -> u32,
}
