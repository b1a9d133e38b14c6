//! The virtual GSP: the firmware that a driver loads, boots and talks to, played here.
//!
//! A pure state machine over the function's memory and its back. Who holds it calls [`Gsp::boot`] when FSP was told
//! where the boot arguments are, [`Gsp::commands`] when the driver rang, and [`Gsp::stopped`] when the back stopped a
//! channel, and carries out the [`Effect`]s.

use crate::chip::{Engine, EngineSet};
use crate::units::backend::GspBackend;

/// What the register face has to show or do after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// GSP runs: lockdown released, mailboxes 0, CPU active.
    Running,
    /// The driver gave the top directory entry of BAR2 (its raw GMMU entry for virtual addresses below 2^56).
    Bar2Root(u64),
    /// An event waits in the message queue: raise GSP's stall interrupt.
    Interrupt,
    /// The driver unloaded GSP: CPU halted, mailbox 0 is 0x80000000. `suspend` keeps what a resume needs.
    Halted {
        /// True when the driver will come back.
        suspend: bool,
    },
}

/// Interrupt vectors of the VFN tree that the interrupt table gives the driver: leaf = vector / 32.
pub mod vector {
    use crate::chip::Engine;

    /// GSP's stall interrupt.
    pub const GSP_STALL: u32 = 0x60;

    /// Notifications of an engine.
    pub const fn non_stall(engine: Engine) -> u32 {
        match engine {
            Engine::Graphics => 0x20,
            // CAST: widening.
            Engine::Copy(n) => 0x21 + n as u32,
        }
    }
}

/// What the virtual GSP must know of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GspConfig {
    /// Bytes of VRAM.
    pub vram: u64,
    /// Engines that the driver is told of.
    pub engines: EngineSet,
    /// Channel slots of the back.
    pub channels: u16,
}

/// A channel that the driver's doorbell token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoorbellTarget {
    /// Slot at the back.
    pub slot: u16,
    /// VRAM address of its USERD.
    pub userd: u64,
}

/// How the back stopped a channel, for the driver's recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Slot at the back.
    pub slot: u16,
    /// Engine that reported it.
    pub engine: Engine,
    /// `ROBUST_CHANNEL_*` number (the Xid): 31 for an MMU fault, 32 for a host error, 13 for a graphics error.
    pub code: u32,
    /// Faulting virtual address, for MMU faults.
    pub address: u64,
    /// Fault type in Volta's numbering, for MMU faults.
    pub fault_type: u32,
}

/// Why GSP does not boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootError {
    /// An address of the boot arguments is not the guest's memory.
    #[error("GSP boot arguments name memory that is not there, at {0:#x}")]
    NoMemory(u64),
    /// The arguments contradict themselves, or the queues are not of the layout that is known.
    #[error("GSP boot arguments are not acceptable: {0}")]
    Arguments(&'static str),
}

/// The virtual GSP of one function.
#[derive(Debug)]
pub struct Gsp {
    config: GspConfig,
}

impl Gsp {
    /// A GSP that was not booted.
    pub fn new(config: GspConfig) -> Self {
        Self { config }
    }

    /// Boots, or resumes when `libos_arguments` is 0. `libos_arguments` is a bus address.
    ///
    /// # Errors
    /// See [`BootError`].
    pub fn boot(&mut self, _back: &impl GspBackend, _libos_arguments: u64) -> Result<Vec<Effect>, BootError> {
        Err(BootError::Arguments("not built yet"))
    }

    /// Carries out what is in the command queue.
    pub fn commands(&mut self, _back: &impl GspBackend) -> Vec<Effect> {
        Vec::new()
    }

    /// Tells the driver that a channel was stopped.
    pub fn stopped(&mut self, _back: &impl GspBackend, _stopped: Stopped) -> Vec<Effect> {
        Vec::new()
    }

    /// The channel of a doorbell token.
    pub fn doorbell_target(&self, _runlist: u16, _chid: u16) -> Option<DoorbellTarget> {
        None
    }

    /// VRAM address of BAR1's top page table, which the driver fills in itself.
    pub fn bar1_root(&self) -> u64 {
        // The top MiB of VRAM is not given to the driver as memory.
        self.config.vram.saturating_sub(1 << 20)
    }

    /// VRAM address by which the driver names BAR2's page directory in TLB invalidations.
    pub fn bar2_root(&self) -> u64 {
        self.bar1_root().saturating_add(0x1000)
    }
}
