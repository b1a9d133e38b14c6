//! Configuration space, and its mirror among the registers.

use super::Registers;
use crate::gf100::effect::Effect;
use gpuvmk_chip::gf100::regs::pci;
use gpuvmk_chip::registers::Reg;
use gpuvmk_host::clock::Clock;
use gpuvmk_mmio_trap::access::Word;

/// First byte of the configuration space mirror.
const MIRROR: u32 = pci::NV_XVE.base;

impl Registers {
    pub(super) fn read_mirror(&self, reg: Reg) -> u32 {
        let mut raw = [0; 4];
        match self.config.read(u64::from(reg.0.wrapping_sub(MIRROR)), &mut raw) {
            Ok(()) => u32::from_le_bytes(raw),
            Err(_) => 0,
        }
    }

    pub(super) fn write_mirror(&mut self, reg: Reg, word: Word, effects: &mut Vec<Effect>) {
        if reg == pci::NV_XVE_MSI_REARM {
            self.output.rearm();
            effects.push(Effect::UpdateInterest);
            return;
        }
        let offset = u64::from(reg.0.wrapping_sub(MIRROR));
        if word.drives(u32::MAX) {
            self.write_config(offset, &word.bits().to_le_bytes(), effects);
            return;
        }
        for ((byte, lane), at) in word.bits().to_le_bytes().into_iter().zip(0..4u32).zip(offset..) {
            if word.drives(0xff << (8 * lane)) {
                self.write_config(at, &[byte], effects);
            }
        }
    }

    pub(super) fn write_config(&mut self, offset: u64, data: &[u8], effects: &mut Vec<Effect>) {
        let Ok(change) = self.config.write(offset, data) else { return };
        if change.after.msi.enabled && !change.before.msi.enabled {
            self.output.rearm();
        }
        self.control = change.after;
        effects.push(Effect::UpdateInterest);
        if change.reset_requested {
            effects.push(Effect::FunctionReset);
        }
    }

    /// A message that was reported as sent was not sent.
    pub fn send_again(&self) {
        self.output.send_again(&self.control);
    }

    /// Configuration space as the bus reads it.
    pub fn read_config_space(&self, offset: u64, data: &mut [u8]) -> Result<(), gpuvmk_pci::AccessError> {
        self.config.read(offset, data)
    }

    /// Configuration space as the bus writes it.
    pub fn write_config_space(
        &mut self,
        offset: u64,
        data: &[u8],
        clock: &dyn Clock,
        effects: &mut Vec<Effect>,
    ) -> Result<(), gpuvmk_pci::AccessError> {
        self.config.read(offset, &mut vec![0; data.len()])?;
        self.write_config(offset, data, effects);
        self.update_interrupts(clock);
        Ok(())
    }
}
