//! The registers of the GSP processor that stay open to a driver.

use gpuvmk_chip::registers::{Field, Reg};

/// Where they are. What a generation does not have is none.
#[derive(Clone, Copy, Debug)]
pub struct GspProcessor {
    /// Clears pending interrupts.
    pub irqsclr: Reg,
    /// Interrupts pending.
    pub irqstat: Reg,
    /// The message queue has something new, in both.
    pub event: Field,
    /// The mailboxes.
    pub mailbox: [Reg; 2],
    /// What the first mailbox says when the firmware has unloaded itself.
    pub unloaded: u32,
    /// Says whether the driver may look inside.
    pub lockdown: Option<Lockdown>,
    /// Raises the interrupt once more when something is still pending.
    pub retrigger: Option<(Reg, Field)>,
    /// State of the RISC-V core.
    pub core: Reg,
    /// In `core`: it executes.
    pub active: Field,
    /// In `core`: it does not.
    pub halted: Option<Field>,
    /// The command queue has something new.
    pub commands: Reg,
}

/// A register that says what the processor is, and whether the driver may look inside.
#[derive(Clone, Copy, Debug)]
pub struct Lockdown {
    /// The register.
    pub register: Reg,
    /// Set until firmware runs: the driver may not look inside yet.
    pub locked: Field,
    /// Bits that are always set. A driver takes a register of zeros for one that does not answer yet.
    pub always: u32,
}

/// A register of the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessorRegister {
    /// Clears pending interrupts.
    IrqClear,
    /// Interrupts pending.
    IrqStatus,
    /// First mailbox.
    Mailbox0,
    /// Second mailbox.
    Mailbox1,
    /// Whether the driver may look inside.
    Lockdown,
    /// Raises the interrupt once more.
    Retrigger,
    /// State of the core.
    Core,
    /// The command queue has something new.
    Commands,
}

impl GspProcessor {
    /// Which of its registers it is; none for those of others.
    pub fn register(&self, reg: Reg) -> Option<ProcessorRegister> {
        let [first, second] = self.mailbox;
        let all = [
            (Some(self.irqsclr), ProcessorRegister::IrqClear),
            (Some(self.irqstat), ProcessorRegister::IrqStatus),
            (Some(first), ProcessorRegister::Mailbox0),
            (Some(second), ProcessorRegister::Mailbox1),
            (self.lockdown.map(|lockdown| lockdown.register), ProcessorRegister::Lockdown),
            (self.retrigger.map(|(reg, _)| reg), ProcessorRegister::Retrigger),
            (Some(self.core), ProcessorRegister::Core),
            (Some(self.commands), ProcessorRegister::Commands),
        ];
        all.into_iter().find(|(other, _)| *other == Some(reg)).map(|(_, register)| register)
    }
}
