//! A copy engine's face: the falcon that a driver gives its firmware. The engine is ready for channels when
//! the firmware runs and takes both methods and context switches.

use super::falcon::{Falcon, FalconState};
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::StateError;

/// A copy engine's registers.
#[derive(Clone, Debug)]
pub struct Pce {
    base: u32,
    falcon: Falcon,
}

impl Pce {
    /// The copy engine whose falcon lies at `base`.
    pub fn new(base: u32, hw_config: u32) -> Self {
        Self { base, falcon: Falcon::new(hw_config) }
    }

    /// Back to the state after reset.
    pub fn reset(&mut self) {
        self.falcon.reset();
    }

    /// Reads a register.
    pub fn read(&mut self, reg: Reg) -> u32 {
        self.falcon.read(reg.0.wrapping_sub(self.base))
    }

    /// Writes a register. Interrupts that a driver raises by hand reach no firmware.
    pub fn write(&mut self, reg: Reg, word: Word) {
        self.falcon.write(reg.0.wrapping_sub(self.base), word);
    }

    /// True when channels can run on the engine.
    pub const fn ready(&self) -> bool {
        self.falcon.running() && self.falcon.takes_channels()
    }
}

impl Pce {
    /// The state to save.
    pub fn state(&self) -> FalconState {
        // Where it lies is a matter of the chip.
        let Self { base: _, falcon } = self;
        falcon.state()
    }

    /// The copy engine whose falcon lies at `base`, in a saved state.
    ///
    /// # Errors
    /// See [`Falcon::from_state`].
    pub fn from_state(state: &FalconState, base: u32, hw_config: u32) -> Result<Self, StateError> {
        Ok(Self { base, falcon: Falcon::from_state(state, hw_config)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::gf100::regs::pce0::*;

    #[test]
    fn engine_is_ready_once_its_firmware_takes_channels() {
        let mut unit = Pce::new(0x10_4000, 0x1040);
        unit.write(NV_PCE0_CODE_INDEX, Word::full(1 << 24));
        unit.write(NV_PCE0_CODE_DATA, Word::full(0xf4));
        unit.write(NV_PCE0_CPU_CONTROL, Word::full(2));
        assert!(!unit.ready());
        unit.write(NV_PCE0_ACCESS_EN, Word::full(3));
        assert!(unit.ready());
        unit.reset();
        assert!(!unit.ready());
    }
}
