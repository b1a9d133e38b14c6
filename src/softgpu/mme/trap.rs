//! Why a macro cannot go on.

use crate::engine::model::{GR_EXCEPTION, Refusal};
use gpuvmk_chip::channel_event::MmuFault;

/// Errors of the macro method expander: the bits of NV_PGRAPH_PRI_MME_HWW_ESR (open-gpu-doc
/// `manuals/turing/tu104/pri_mme.ref.txt`), and what this one does not execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Trap {
    #[error("it has less data than it loads (MISSING_MACRO_DATA)")]
    MissingData,
    #[error("data comes that no macro waits for (EXTRA_MACRO_DATA)")]
    ExtraData,
    #[error("a group is none that the MME has (ILLEGAL_OPCODE)")]
    IllegalOpcode,
    #[error("it branches in its last group (BRANCH_IN_DELAY_SLOT)")]
    BranchInDelaySlot,
    #[error("it leaves instruction RAM (INSTR_RAM_ACCESS_OUT_OF_BOUNDS)")]
    InstructionRam,
    #[error("it leaves data RAM (DATA_RAM_ACCESS_OUT_OF_BOUNDS)")]
    DataRam,
    #[error("it sends a method that macros may not send (ILLEGAL_MME_METHOD)")]
    IllegalMethod,
    #[error("a transfer leaves data RAM (DMA_DRAM_ACCESS_OUT_OF_BOUNDS)")]
    TransferOutOfBounds,
    #[error("the FIFO is filled from the command stream (DMA_READ_FIFOED_FROM_PB)")]
    FifoFromStream,
    #[error("the FIFO has no such size (DMA_ILLEGAL_FIFO_CONFIG)")]
    FifoSize,
    #[error("the FIFO is not as large (DMA_READ_FIFOED_OVERFLOW)")]
    FifoOverflow,
    #[error("the FIFO is resized while it is in use (DMA_FIFO_RESIZED_WHEN_NONIDLE)")]
    FifoResized,
    #[error("the software GPU does not execute {0} of macros")]
    NotExecuted(&'static str),
}

/// Why the MME stops its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Trap(Trap),
    Fault(MmuFault),
}

impl From<Trap> for Stop {
    fn from(trap: Trap) -> Self {
        Self::Trap(trap)
    }
}

impl From<MmuFault> for Stop {
    fn from(fault: MmuFault) -> Self {
        Self::Fault(fault)
    }
}

impl From<Stop> for Refusal {
    /// Says why, too.
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Fault(fault) => return Self::Fault(fault),
            // Ours, not the guest's.
            Stop::Trap(trap @ Trap::NotExecuted(_)) => log::warn!("A macro cannot go on: {trap}"),
            Stop::Trap(trap) => log::debug!("softgpu: a macro cannot go on: {trap}"),
        }
        Self::Robust(GR_EXCEPTION)
    }
}
