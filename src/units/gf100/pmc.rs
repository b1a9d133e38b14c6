//! PMC: unit resets and the top of the interrupt tree.
//!
//! The tree is level-triggered: a unit's bit in NV_PMC_INTR follows the unit's own status and enables. The
//! line is asserted while an unmasked bit is set and NV_PMC_INTR_EN_0 lets hardware interrupts out.
//! [`crate::interrupt`] makes INTx or a message of the line.
//!
//! A unit whose enable bit is clear is in reset: its registers answer with an error pattern, writes are lost,
//! and its state is the reset state when it comes back.

use gpuvmk_chip::gf100::regs::pmc::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// NV_PMC_INTR and NV_PMC_ENABLE bit of PFIFO.
pub const PFIFO: u32 = NV_PMC_INTR::PFIFO.mask();
/// NV_PMC_INTR and NV_PMC_ENABLE bit of PGRAPH.
pub const PGRAPH: u32 = NV_PMC_INTR::PGRAPH.mask();
/// NV_PMC_ENABLE bit of the power-management unit.
pub const PMU_ENABLE: u32 = NV_PMC_ENABLE::PMU.mask();
/// NV_PMC_ENABLE bits of the copy engines.
pub const PCE_ENABLE: [u32; 2] = [NV_PMC_ENABLE::PCE0.mask(), NV_PMC_ENABLE::PCE1.mask()];
/// NV_PMC_INTR bit of PTIMER.
pub const PTIMER_INTR: u32 = NV_PMC_INTR::PTIMER.mask();
/// NV_PMC_INTR bit of PBUS.
pub const PBUS_INTR: u32 = NV_PMC_INTR::PBUS.mask();

/// Lets hardware interrupts out (NV_PMC_INTR_EN_0).
const HARDWARE: u32 = NV_PMC_INTR_EN_0::HARDWARE.mask();
/// NV_PMC_INTR_EN_0: everything that it can let out.
const LINES: u32 = HARDWARE | NV_PMC_INTR_EN_0::SOFTWARE.mask();

/// Unit enables that a write changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EnableChange {
    /// Units that went into reset.
    pub cleared: u32,
    /// Units that came out of it.
    pub set: u32,
}

/// PMC's state.
#[derive(Clone, Debug)]
pub struct Pmc {
    enable: u32,
    pbdma: u32,
    line_enable: u32,
    mask: u32,
}

impl Default for Pmc {
    fn default() -> Self {
        Self { enable: 0, pbdma: 0, line_enable: 0, mask: u32::MAX }
    }
}

impl Pmc {
    /// Reads a register; `pending` are the units that ask for an interrupt.
    pub fn read(&self, reg: Reg, pending: u32) -> u32 {
        match reg {
            NV_PMC_INTR => pending,
            NV_PMC_INTR_EN_0 => self.line_enable,
            NV_PMC_ENABLE => self.enable,
            NV_PMC_ENABLE_PBDMA => self.pbdma,
            NV_PMC_INTR_MSK_0 => self.mask,
            _ => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, reg: Reg, word: Word) -> EnableChange {
        match reg {
            NV_PMC_INTR_EN_0 => self.line_enable = word.merge(self.line_enable) & LINES,
            NV_PMC_ENABLE_PBDMA => self.pbdma = word.merge(self.pbdma) & NV_PMC_ENABLE_PBDMA::PBDMA.mask(),
            NV_PMC_INTR_MSK_0 => self.mask = word.merge(self.mask),
            NV_PMC_ENABLE => {
                let before = self.enable;
                self.enable = word.merge(before);
                return EnableChange { cleared: before & !self.enable, set: self.enable & !before };
            }
            _ => {}
        }
        EnableChange::default()
    }

    /// True when all of `units` are out of reset.
    pub const fn enabled(&self, units: u32) -> bool {
        self.enable & units == units
    }

    /// PBDMA units that the driver enabled.
    pub const fn pbdma_mask(&self) -> u32 {
        self.pbdma
    }

    /// The level of the interrupt line for these pending units.
    pub const fn line(&self, pending: u32) -> bool {
        pending & self.mask != 0 && self.line_enable & HARDWARE != 0
    }
}

/// State of [`Pmc`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PmcState {
    /// NV_PMC_ENABLE.
    pub enable: u32,
    /// NV_PMC_ENABLE_PBDMA.
    pub enable_pbdma: u32,
    /// NV_PMC_INTR_EN_0.
    pub intr_en_0: u32,
    /// NV_PMC_INTR_MSK_0.
    pub intr_msk_0: u32,
}

impl Pmc {
    /// The state to save.
    pub const fn state(&self) -> PmcState {
        let Self { enable, pbdma, line_enable, mask } = *self;
        PmcState { enable, enable_pbdma: pbdma, intr_en_0: line_enable, intr_msk_0: mask }
    }

    /// PMC in a saved state.
    ///
    /// # Errors
    /// A register has bits that do not stick.
    pub fn from_state(state: &PmcState) -> Result<Self, StateError> {
        let check = Check("PMC");
        let PmcState { enable, enable_pbdma, intr_en_0, intr_msk_0 } = *state;
        check.bits("NV_PMC_ENABLE_PBDMA", enable_pbdma, NV_PMC_ENABLE_PBDMA::PBDMA.mask())?;
        check.bits("NV_PMC_INTR_EN_0", intr_en_0, LINES)?;
        Ok(Self { enable, pbdma: enable_pbdma, line_enable: intr_en_0, mask: intr_msk_0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::gf100::PBDMAS;

    #[test]
    fn line_needs_a_pending_unmasked_unit_and_the_enable() {
        let mut pmc = Pmc::default();
        assert!(!pmc.line(PFIFO));
        pmc.write(NV_PMC_INTR_EN_0, Word::full(1));
        assert!(pmc.line(PFIFO) && !pmc.line(0));
        pmc.write(NV_PMC_INTR_MSK_0, Word::full(!PFIFO));
        assert!(!pmc.line(PFIFO) && pmc.line(PGRAPH));
    }

    #[test]
    fn driver_counts_pbdmas_by_the_bits_that_stick() {
        let mut pmc = Pmc::default();
        pmc.write(NV_PMC_ENABLE_PBDMA, Word::full(u32::MAX));
        assert_eq!(pmc.read(NV_PMC_ENABLE_PBDMA, 0).count_ones(), u32::from(PBDMAS));
    }

    #[test]
    fn enable_tells_which_units_went_into_and_came_out_of_reset() {
        let mut pmc = Pmc::default();
        pmc.write(NV_PMC_ENABLE, Word::full(PFIFO));
        let change = pmc.write(NV_PMC_ENABLE, Word::full(PGRAPH));
        assert_eq!(change, EnableChange { cleared: PFIFO, set: PGRAPH });
    }
}
