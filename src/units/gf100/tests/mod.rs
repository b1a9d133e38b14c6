//! The face as a driver meets it, over a back that only records.

#![allow(clippy::cast_possible_truncation, reason = "addresses of these tests fit in registers")]

mod fake;
mod hostile;
mod interrupts;
mod memory;
mod probe;
mod state;

use std::sync::Arc;

use super::{Gf100Config, Gf100Function};
use fake::FakeBackend;
use gpuvmk_chip::registers::Reg;
use gpuvmk_host::clock::ManualClock;
use gpuvmk_pci::{PciFunction, Region};
use gpuvmk_saved_state::testing::through_text;

/// A function with everything a test looks at.
struct Gpu {
    function: Gf100Function<FakeBackend>,
    back: Arc<FakeBackend>,
    clock: Arc<ManualClock>,
}

impl Gpu {
    fn new() -> Self {
        let back = Arc::new(FakeBackend::new(32 << 20));
        let clock = Arc::new(ManualClock::default());
        let config = Gf100Config { clock: clock.clone(), ..Gf100Config::default() };
        let function = Gf100Function::new(back.clone(), config).unwrap();
        Self { function, back, clock }
    }

    /// Another function for the place of this one, over the same back.
    fn restored(&self) -> Self {
        let (back, clock) = (self.back.clone(), self.clock.clone());
        let state = through_text(&self.function.state());
        back.disconnect();
        let config = Gf100Config { clock: clock.clone(), ..Gf100Config::default() };
        let function = Gf100Function::from_state(back.clone(), config, &state).unwrap();
        assert_eq!(function.state(), state);
        // No calls but those that each function makes anew.
        assert_eq!(back.calls(), []);
        Self { function, back, clock }
    }

    fn rd(&self, offset: u32) -> u32 {
        let mut raw = [0; 4];
        self.function.read(Region::Bar(0), u64::from(offset), &mut raw).unwrap();
        u32::from_le_bytes(raw)
    }

    fn wr(&self, offset: u32, value: u32) {
        self.function.write(Region::Bar(0), u64::from(offset), &value.to_le_bytes()).unwrap();
    }

    fn reg(&self, reg: Reg) -> u32 {
        self.rd(reg.0)
    }

    fn mask(&self, offset: u32, mask: u32, value: u32) {
        let old = self.rd(offset);
        self.wr(offset, old & !mask | value);
    }

    fn bar_rd(&self, bar: u8, offset: u64) -> u32 {
        let mut raw = [0; 4];
        self.function.read(Region::Bar(bar), offset, &mut raw).unwrap();
        u32::from_le_bytes(raw)
    }

    fn bar_wr(&self, bar: u8, offset: u64, value: u32) {
        self.function.write(Region::Bar(bar), offset, &value.to_le_bytes()).unwrap();
    }

    fn config_wr(&self, offset: u64, data: &[u8]) {
        self.function.write(Region::Config, offset, data).unwrap();
    }
}
