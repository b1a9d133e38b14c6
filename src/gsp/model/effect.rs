//! What the register face has to do.

use gpuvmk_chip::Engine;

/// What the register face has to show or do after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// GSP runs: lockdown released, mailboxes 0, CPU active.
    Running,
    /// The driver gave the top directory entry of BAR2 (its raw GMMU entry for virtual addresses below 2^56).
    Bar2Root(u64),
    /// An event waits in the message queue: raise GSP's stall interrupt.
    Interrupt,
    /// Work of an engine that was carried out here asked for a notification.
    NonStall(Engine),
    /// The driver unloaded GSP: CPU halted, mailbox 0 is 0x80000000. `suspend` keeps what a resume needs.
    Halted {
        /// True when the driver will come back.
        suspend: bool,
    },
}
