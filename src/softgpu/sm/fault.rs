//! Why a warp stops for good.

use gpuvmk_isa::Opcode;

/// What a shader does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load, or the fetch of code.
    Read,
    /// A store.
    Write,
    /// An atomic.
    Atomic,
}

/// Memory that is not there, or may not be used so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{access:?} at {address:#x} is not allowed")]
pub struct MemoryFault {
    /// Virtual address.
    pub address: u64,
    /// What was tried.
    pub access: Access,
}

/// Codes of the SM's warp error status register (nouveau, gr/gf100.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exception {
    /// MISALIGNED_PC.
    MisalignedPc = 0x05,
    /// ILLEGAL_INSTR_ENCODING.
    IllegalEncoding = 0x09,
    /// OOR_REG: a register beyond the launch's count.
    RegisterOutOfRange = 0x0d,
    /// OOR_ADDR: beyond the size of shared or local memory.
    AddressOutOfRange = 0x0e,
    /// MISALIGNED_ADDR.
    MisalignedAddress = 0x0f,
    /// INVALID_ADDR_SPACE.
    InvalidAddressSpace = 0x10,
}

/// Why a warp stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryFault),
    /// An exception of the SM.
    #[error("exception {0:?}")]
    Exception(Exception),
    /// BPT.TRAP and its like.
    #[error("a trap")]
    Trap,
    /// A word that the table of instructions does not have.
    #[error("no instruction that is known")]
    NoInstruction(u128),
    /// An instruction that this model does not execute: not the guest's fault.
    #[error("{} is not executed", .0.name())]
    NotExecuted(Opcode),
}

/// A cause, and where it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause} at pc {pc:#x}, CTA {cta:?}, warp {warp}, lanes {lanes:#010x}")]
pub struct Fault {
    /// Why.
    pub cause: Cause,
    /// Address of the instruction.
    pub pc: u64,
    /// Place in the grid.
    pub cta: [u32; 3],
    /// Warp in the CTA.
    pub warp: u32,
    /// Lanes that were to run it.
    pub lanes: u32,
}
