//! The registers of the GSP processor: whether its firmware runs, its mailboxes, and its interrupt.
//!
//! Every event goes to the interrupt tree, also while an earlier one is not acknowledged (drivers never
//! acknowledge events that they polled for, such as the end of the boot). An acknowledgement that leaves
//! nothing pending also takes the vector out of the tree. The reason: nouveau's handler clears the tree first
//! and acknowledges then. An event between the two would otherwise interrupt once more with GSP quiet, which
//! Linux takes for a stray interrupt and disables. Nothing is lost by it: the driver reads the queue after
//! the acknowledgement.

use gpuvmk_chip::gh100::regs::gsp::*;
use gpuvmk_chip::registers::Reg;
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

/// IRQSTAT: an event waits in the message queue.
const SWGEN0: u32 = NV_PGSP_FALCON_IRQSTAT::SWGEN0.mask();
/// HWCFG2: the driver may not look inside yet.
const LOCKDOWN: u32 = NV_PGSP_FALCON_HWCFG2::RISCV_BR_PRIV_LOCKDOWN.mask();
/// CPUCTL: the core halted.
const HALTED: u32 = NV_PGSP_RISCV_CPUCTL::HALTED.mask();
/// CPUCTL: the core executes.
const ACTIVE: u32 = NV_PGSP_RISCV_CPUCTL::ACTIVE_STAT.mask();
/// MAILBOX0: the unload is complete.
const UNLOADED: u32 = NV_PGSP_FALCON_MAILBOX0::DATA::UNLOADED;

/// Life of the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Firmware {
    /// Never booted since power-on.
    #[default]
    Absent,
    /// Runs.
    Running,
    /// Unloaded, by suspend or for good.
    Halted,
}

/// Effect of a register write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Nothing.
    None,
    /// The stall interrupt goes to the tree.
    Interrupt,
    /// Nothing is pending any more: the stall interrupt leaves the tree.
    Quiet,
    /// The driver rang for its command queue.
    Commands,
}

/// The processor.
#[derive(Clone, Debug, Default)]
pub struct GspFalcon {
    firmware: Firmware,
    mailboxes: [u32; 2],
    interrupts: u32,
}

impl GspFalcon {
    /// Reads a register.
    pub fn read(&self, reg: Reg) -> u32 {
        let [first, second] = self.mailboxes;
        match reg {
            NV_PGSP_FALCON_IRQSTAT => self.interrupts,
            NV_PGSP_FALCON_MAILBOX0 => first,
            NV_PGSP_FALCON_MAILBOX1 => second,
            NV_PGSP_FALCON_HWCFG2 => match self.firmware {
                Firmware::Running => 0,
                Firmware::Absent | Firmware::Halted => LOCKDOWN,
            },
            NV_PGSP_RISCV_CPUCTL => match self.firmware {
                Firmware::Running => ACTIVE,
                Firmware::Absent | Firmware::Halted => HALTED,
            },
            _ => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, reg: Reg, word: Word) -> Signal {
        let [first, second] = &mut self.mailboxes;
        match reg {
            NV_PGSP_FALCON_IRQSCLR => {
                self.interrupts &= !word.bits();
                if self.interrupts == 0 {
                    return Signal::Quiet;
                }
            }
            NV_PGSP_FALCON_MAILBOX0 => *first = word.merge(*first),
            NV_PGSP_FALCON_MAILBOX1 => *second = word.merge(*second),
            NV_PGSP_FALCON_INTR_RETRIGGER
                if NV_PGSP_FALCON_INTR_RETRIGGER::TRIGGER.is_set(word.bits()) && self.interrupts != 0 =>
            {
                return Signal::Interrupt;
            }
            // Drivers fill the queue before the firmware runs, and ring: it looks there when it starts.
            _ if reg == NV_PGSP_QUEUE_HEAD.at(0) && self.firmware == Firmware::Running => {
                return Signal::Commands;
            }
            _ => {}
        }
        Signal::None
    }

    /// The firmware is up.
    pub fn running(&mut self) {
        *self = Self { firmware: Firmware::Running, ..Self::default() };
    }

    /// The firmware was unloaded.
    pub fn halted(&mut self) {
        self.firmware = Firmware::Halted;
        self.mailboxes = [UNLOADED, 0];
    }

    /// An event waits.
    pub fn event(&mut self) {
        self.interrupts |= SWGEN0;
    }
}

/// State of a [`GspFalcon`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GspFalconState {
    /// Life of the firmware.
    pub firmware: Firmware,
    /// NV_PGSP_FALCON_MAILBOX0 and 1.
    pub mailbox: [u32; 2],
    /// NV_PGSP_FALCON_IRQSTAT.
    pub irqstat: u32,
}

impl GspFalcon {
    /// The state to save.
    pub const fn state(&self) -> GspFalconState {
        let Self { firmware, mailboxes, interrupts } = self;
        GspFalconState { firmware: *firmware, mailbox: *mailboxes, irqstat: *interrupts }
    }

    /// The processor in a saved state.
    ///
    /// # Errors
    /// An interrupt is pending that it does not have.
    pub fn from_state(state: &GspFalconState) -> Result<Self, StateError> {
        let GspFalconState { firmware, mailbox, irqstat } = state;
        Check("GSP falcon").bits("NV_PGSP_FALCON_IRQSTAT", *irqstat, SWGEN0)?;
        Ok(Self { firmware: *firmware, mailboxes: *mailbox, interrupts: *irqstat })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_opens_and_core_is_active_while_firmware_runs() {
        let mut gsp = GspFalcon::default();
        assert_eq!((gsp.read(NV_PGSP_FALCON_HWCFG2), gsp.read(NV_PGSP_RISCV_CPUCTL)), (LOCKDOWN, HALTED));
        gsp.running();
        assert_eq!((gsp.read(NV_PGSP_FALCON_HWCFG2), gsp.read(NV_PGSP_RISCV_CPUCTL)), (0, 0x80));
        assert_eq!(gsp.read(NV_PGSP_FALCON_MAILBOX0), 0);
        gsp.halted();
        assert_eq!((gsp.read(NV_PGSP_FALCON_MAILBOX0), gsp.read(NV_PGSP_RISCV_CPUCTL)), (0x8000_0000, 0x10));
        gsp.running();
        assert_eq!(gsp.read(NV_PGSP_FALCON_MAILBOX0), 0);
    }

    #[test]
    fn doorbell_is_ignored_until_firmware_runs() {
        let mut gsp = GspFalcon::default();
        let ring = |gsp: &mut GspFalcon| gsp.write(NV_PGSP_QUEUE_HEAD.at(0), Word::full(0));
        assert_eq!(ring(&mut gsp), Signal::None);
        gsp.running();
        assert_eq!(ring(&mut gsp), Signal::Commands);
        assert_eq!(gsp.write(NV_PGSP_QUEUE_HEAD.at(1), Word::full(0)), Signal::None);
        gsp.halted();
        assert_eq!(ring(&mut gsp), Signal::None);
    }

    #[test]
    fn acknowledgement_quietens_and_retrigger_asks_again_while_pending() {
        let mut gsp = GspFalcon::default();
        gsp.running();
        gsp.event();
        assert_eq!(gsp.read(NV_PGSP_FALCON_IRQSTAT), 0x40);
        assert_eq!(gsp.write(NV_PGSP_FALCON_IRQSCLR, Word::full(0x80)), Signal::None);
        assert_eq!(gsp.write(NV_PGSP_FALCON_INTR_RETRIGGER, Word::full(1)), Signal::Interrupt);
        assert_eq!(gsp.write(NV_PGSP_FALCON_IRQSCLR, Word::full(0x40)), Signal::Quiet);
        assert_eq!(gsp.read(NV_PGSP_FALCON_IRQSTAT), 0);
        assert_eq!(gsp.write(NV_PGSP_FALCON_INTR_RETRIGGER, Word::full(1)), Signal::None);
    }
}
