//! PBUS: where PRAMIN looks, how BAR1 and BAR3 find memory, and the flush registers.
//!
//! Accesses through the BARs land in order here, so that flushes are done the moment they are asked for. Bus
//! errors (accesses to units in reset) are not reported as interrupts.

use super::effect::{Effect, WindowBlock, WindowId};
use gpuvmk_chip::addr::PAGE_SHIFT;
use gpuvmk_chip::gf100::ramin::{self, BLOCK};
use gpuvmk_chip::gf100::regs::pbus::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_chip::{Aperture, PhysicalAddress};
use gpuvmk_mmio_trap::access::Word;
use serde::{Deserialize, Serialize};

/// BAR block registers: translated (the vendor's VIRTUAL).
const MODE_VIRTUAL: u32 = NV_PBUS_BAR1_BLOCK::MODE_VIRTUAL.mask();

/// PBUS's state.
#[derive(Clone, Debug, Default)]
pub struct Pbus {
    interrupts: u32,
    interrupt_enable: u32,
    window: u32,
    bar1: u32,
    bar3: u32,
}

/// The address in a register that names an instance block or a runlist.
pub const fn target_and_page(value: u32) -> PhysicalAddress {
    PhysicalAddress {
        aperture: aperture(BLOCK::TARGET.get(value)),
        address: (BLOCK::PTR.get(value) as u64) << PAGE_SHIFT,
    }
}

/// Aperture of a two-bit target field. 1 (peer memory) counts as VRAM here: there is no peer, and such
/// addresses lie beyond VRAM.
pub const fn aperture(target: u32) -> Aperture {
    match ramin::aperture(target) {
        Some(aperture) => aperture,
        None => Aperture::Vram,
    }
}

/// First address that PRAMIN shows for a value of NV_PBUS_BAR0_WINDOW.
pub const fn window_start(value: u32) -> PhysicalAddress {
    PhysicalAddress {
        aperture: aperture(NV_PBUS_BAR0_WINDOW::TARGET.get(value)),
        address: (NV_PBUS_BAR0_WINDOW::BASE.get(value) as u64) << 16,
    }
}

impl Pbus {
    /// Reads a register.
    pub fn read(&self, reg: Reg) -> u32 {
        match reg {
            NV_PBUS_INTR_0 => self.interrupts,
            NV_PBUS_INTR_EN_0 => self.interrupt_enable,
            NV_PBUS_BAR0_WINDOW => self.window,
            NV_PBUS_BAR1_BLOCK => self.bar1,
            NV_PBUS_BAR2_BLOCK => self.bar3,
            _ => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, reg: Reg, word: Word, effects: &mut Vec<Effect>) {
        match reg {
            NV_PBUS_INTR_0 => self.interrupts &= !word.bits(),
            NV_PBUS_INTR_EN_0 => self.interrupt_enable = word.merge(self.interrupt_enable),
            NV_PBUS_BAR0_WINDOW => {
                let before = self.window;
                self.window = word.merge(before);
                if self.window != before {
                    effects.push(Effect::MovePramin(window_start(self.window)));
                }
            }
            NV_PBUS_BAR1_BLOCK => {
                self.bar1 = word.merge(self.bar1);
                effects.push(Effect::BindWindow(WindowId::Bar1, block(self.bar1)));
            }
            NV_PBUS_BAR2_BLOCK => {
                self.bar3 = word.merge(self.bar3);
                effects.push(Effect::BindWindow(WindowId::Bar3, block(self.bar3)));
            }
            _ => {}
        }
    }

    /// Value of NV_PBUS_BAR0_WINDOW.
    pub const fn window(&self) -> u32 {
        self.window
    }

    /// Instance block of a translated BAR as fault records name it.
    pub const fn window_instance(&self, window: WindowId) -> u32 {
        match window {
            WindowId::Bar1 => BLOCK::PTR.get(self.bar1),
            WindowId::Bar3 => BLOCK::PTR.get(self.bar3),
        }
    }

    /// True while an enabled interrupt is pending.
    pub const fn pending(&self) -> bool {
        self.interrupts & self.interrupt_enable != 0
    }
}

const fn block(value: u32) -> WindowBlock {
    if value & MODE_VIRTUAL == 0 {
        WindowBlock::Physical
    } else {
        // HALVE halves BAR3 for drivers that ask for it; the tables decide what is mapped either way.
        WindowBlock::Instance(target_and_page(value))
    }
}

/// State of [`Pbus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PbusState {
    /// NV_PBUS_INTR_EN_0.
    pub intr_en_0: u32,
    /// NV_PBUS_BAR0_WINDOW.
    pub bar0_window: u32,
    /// NV_PBUS_BAR1_BLOCK.
    pub bar1_block: u32,
    /// NV_PBUS_BAR2_BLOCK, of the window that the bus has as BAR3.
    pub bar2_block: u32,
}

impl Pbus {
    /// The state to save.
    pub const fn state(&self) -> PbusState {
        // Nothing raises an interrupt here.
        let Self { interrupts: _, interrupt_enable, window, bar1, bar3 } = *self;
        PbusState { intr_en_0: interrupt_enable, bar0_window: window, bar1_block: bar1, bar2_block: bar3 }
    }

    /// PBUS in a saved state: every value is one that a driver can write.
    pub const fn from_state(state: &PbusState) -> Self {
        let PbusState { intr_en_0, bar0_window, bar1_block, bar2_block } = *state;
        Self {
            interrupts: 0,
            interrupt_enable: intr_en_0,
            window: bar0_window,
            bar1: bar1_block,
            bar3: bar2_block,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_blocks_bind_and_unbind_their_windows() {
        let mut pbus = Pbus::default();
        let mut effects = Vec::new();
        pbus.write(NV_PBUS_BAR1_BLOCK, Word::full(0x8001_fe07), &mut effects);
        pbus.write(NV_PBUS_BAR2_BLOCK, Word::full(0x0001_fe58), &mut effects);
        let instance = PhysicalAddress { aperture: Aperture::Vram, address: 0x1fe0_7000 };
        assert_eq!(
            effects,
            [
                Effect::BindWindow(WindowId::Bar1, WindowBlock::Instance(instance)),
                Effect::BindWindow(WindowId::Bar3, WindowBlock::Physical),
            ]
        );
        assert_eq!(pbus.window_instance(WindowId::Bar1), 0x1fe07);
    }

    #[test]
    fn window_register_names_64_kib_steps_and_a_target() {
        assert_eq!(window_start(0x1fe0), PhysicalAddress { aperture: Aperture::Vram, address: 0x1fe0_0000 });
        assert_eq!(window_start(0x0200_0001).aperture, Aperture::SystemCoherent);
    }

    #[test]
    fn flush_is_never_outstanding() {
        let mut pbus = Pbus::default();
        pbus.write(NV_UFLUSH_FB_FLUSH, Word::full(1), &mut Vec::new());
        assert_eq!(pbus.read(NV_UFLUSH_FB_FLUSH), 0);
    }
}
