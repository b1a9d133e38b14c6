//! The registers of the GSP processor: whether its firmware runs, its mailboxes, and its interrupt.
//!
//! Every event goes to the interrupt tree, also while an earlier one is not acknowledged (drivers never
//! acknowledge events that they polled for, such as the end of the boot). An acknowledgement that leaves
//! nothing pending also takes the vector out of the tree. The reason: nouveau's handler clears the tree first
//! and acknowledges then. An event between the two would otherwise interrupt once more with GSP quiet, which
//! Linux takes for a stray interrupt and disables. Nothing is lost by it: the driver reads the queue after
//! the acknowledgement.

use super::hal::{GspProcessor, Lockdown, ProcessorRegister};
use gpuvmk_chip::registers::{Field, Reg};
use gpuvmk_mmio_trap::access::Word;
use gpuvmk_saved_state::{Check, StateError};
use serde::{Deserialize, Serialize};

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
    /// The write has no effect outside.
    None,
    /// The stall interrupt goes to the tree.
    Interrupt,
    /// Nothing is pending any more: the stall interrupt leaves the tree.
    Quiet,
    /// The driver rang for its command queue.
    Commands,
}

/// The processor.
#[derive(Clone, Debug)]
pub struct GspFalcon {
    layout: &'static GspProcessor,
    firmware: Firmware,
    mailboxes: [u32; 2],
    interrupts: u32,
}

impl GspFalcon {
    /// A processor in its reset state.
    pub const fn new(layout: &'static GspProcessor) -> Self {
        Self { layout, firmware: Firmware::Absent, mailboxes: [0; 2], interrupts: 0 }
    }

    /// Reads a register.
    pub fn read(&self, register: ProcessorRegister) -> u32 {
        let [first, second] = self.mailboxes;
        match register {
            ProcessorRegister::IrqStatus => self.interrupts,
            ProcessorRegister::Mailbox0 => first,
            ProcessorRegister::Mailbox1 => second,
            ProcessorRegister::Lockdown => {
                let Some(Lockdown { locked, always, .. }) = self.layout.lockdown else { return 0 };
                match self.firmware {
                    Firmware::Running => always,
                    Firmware::Absent | Firmware::Halted => always | locked.mask(),
                }
            }
            ProcessorRegister::Core => match self.firmware {
                Firmware::Running => self.layout.active.mask(),
                Firmware::Absent | Firmware::Halted => self.layout.halted.map_or(0, Field::mask),
            },
            ProcessorRegister::IrqClear | ProcessorRegister::Retrigger | ProcessorRegister::Commands => 0,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, register: ProcessorRegister, word: Word) -> Signal {
        let [first, second] = &mut self.mailboxes;
        match register {
            ProcessorRegister::IrqClear => {
                self.interrupts &= !word.bits();
                if self.interrupts == 0 {
                    return Signal::Quiet;
                }
            }
            ProcessorRegister::Mailbox0 => *first = word.merge(*first),
            ProcessorRegister::Mailbox1 => *second = word.merge(*second),
            ProcessorRegister::Retrigger => {
                let asks = field(self.layout.retrigger).is_some_and(|trigger| trigger.is_set(word.bits()));
                if asks && self.interrupts != 0 {
                    return Signal::Interrupt;
                }
            }
            // Drivers fill the queue before the firmware runs, and ring: it looks there when it starts.
            ProcessorRegister::Commands if self.firmware == Firmware::Running => return Signal::Commands,
            ProcessorRegister::Commands
            | ProcessorRegister::IrqStatus
            | ProcessorRegister::Lockdown
            | ProcessorRegister::Core => {}
        }
        Signal::None
    }

    /// Whether the firmware runs.
    pub fn is_running(&self) -> bool {
        self.firmware == Firmware::Running
    }

    /// Both mailboxes.
    pub const fn mailboxes(&self) -> [u32; 2] {
        self.mailboxes
    }

    /// Firmware leaves a result in the first mailbox.
    pub const fn set_mailbox(&mut self, result: u32) {
        let [first, _] = &mut self.mailboxes;
        *first = result;
    }

    /// The unit was reset. Firmware that ran is gone.
    pub const fn reset(&mut self) {
        *self = Self::new(self.layout);
    }

    /// The firmware is up.
    pub const fn running(&mut self) {
        *self = Self { firmware: Firmware::Running, ..Self::new(self.layout) };
    }

    /// The firmware was unloaded.
    pub const fn halted(&mut self) {
        self.firmware = Firmware::Halted;
        self.mailboxes = [self.layout.unloaded, 0];
    }

    /// An event waits.
    pub const fn event(&mut self) {
        self.interrupts |= self.layout.event.mask();
    }
}

fn field(place: Option<(Reg, Field)>) -> Option<Field> {
    place.map(|(_, field)| field)
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
        let Self { layout: _, firmware, mailboxes, interrupts } = self;
        GspFalconState { firmware: *firmware, mailbox: *mailboxes, irqstat: *interrupts }
    }

    /// The processor in a saved state.
    ///
    /// # Errors
    /// An interrupt is pending that it does not have.
    pub fn from_state(state: &GspFalconState, layout: &'static GspProcessor) -> Result<Self, StateError> {
        let GspFalconState { firmware, mailbox, irqstat } = state;
        Check("GSP falcon").bits("NV_PGSP_FALCON_IRQSTAT", *irqstat, layout.event.mask())?;
        Ok(Self { layout, firmware: *firmware, mailboxes: *mailbox, interrupts: *irqstat })
    }
}

#[cfg(test)]
mod tests {
    use super::super::hal::GH100;
    use super::*;
    use ProcessorRegister::*;

    const RISCV: u32 = 1 << 10;
    const LOCKDOWN: u32 = RISCV | 1 << 13;
    const HALTED: u32 = 0x10;

    #[test]
    fn lock_opens_and_core_is_active_while_firmware_runs() {
        let mut gsp = GspFalcon::new(&GH100.processor);
        assert_eq!((gsp.read(Lockdown), gsp.read(Core)), (LOCKDOWN, HALTED));
        gsp.running();
        assert_eq!((gsp.read(Lockdown), gsp.read(Core)), (RISCV, 0x80));
        assert_eq!(gsp.read(Mailbox0), 0);
        gsp.halted();
        assert_eq!((gsp.read(Mailbox0), gsp.read(Core)), (0x8000_0000, 0x10));
        gsp.running();
        assert_eq!(gsp.read(Mailbox0), 0);
    }

    #[test]
    fn doorbell_is_ignored_until_firmware_runs() {
        let mut gsp = GspFalcon::new(&GH100.processor);
        let ring = |gsp: &mut GspFalcon| gsp.write(Commands, Word::full(0));
        assert_eq!(ring(&mut gsp), Signal::None);
        gsp.running();
        assert_eq!(ring(&mut gsp), Signal::Commands);
        gsp.halted();
        assert_eq!(ring(&mut gsp), Signal::None);
    }

    #[test]
    fn acknowledgement_quietens_and_retrigger_asks_again_while_pending() {
        let mut gsp = GspFalcon::new(&GH100.processor);
        gsp.running();
        gsp.event();
        assert_eq!(gsp.read(IrqStatus), 0x40);
        assert_eq!(gsp.write(IrqClear, Word::full(0x80)), Signal::None);
        assert_eq!(gsp.write(Retrigger, Word::full(1)), Signal::Interrupt);
        assert_eq!(gsp.write(IrqClear, Word::full(0x40)), Signal::Quiet);
        assert_eq!(gsp.read(IrqStatus), 0);
        assert_eq!(gsp.write(Retrigger, Word::full(1)), Signal::None);
    }
}
