//! What is launched: machine code, its operands, and room for what it stores.

use gpuvmk_isa::Arch;

use crate::windows::Places;

/// A launch, for memory that lies where a GPU has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Of which version its code is.
    pub arch: Arch,
    /// Machine code.
    pub code: Vec<u8>,
    /// Registers of a thread.
    pub registers: u16,
    /// Bytes of shared memory of a block.
    pub shared: u32,
    /// Barriers of a block.
    pub barriers: u8,
    /// Bytes of local memory of a thread, from address 0 on.
    pub local: u32,
    /// The same, up to address 2^24.
    pub local_high: u32,
    /// Blocks, and threads of one.
    pub grid: u32,
    /// See above.
    pub block: u32,
    /// Constant banks, with their numbers.
    pub banks: Vec<(u16, Vec<u8>)>,
    /// Variables that the code finds, with what they hold at first.
    pub variables: Vec<u8>,
    /// Words that are loaded.
    pub inputs: Vec<u32>,
    /// Words that are stored.
    pub stored: usize,
    /// What each byte of them is before.
    pub filled: u8,
}

/// What a byte is before a program stores it that stores all: what it left out is seen.
pub const FILLED: u8 = 0xa5;

/// Whatever can be launched.
pub trait Launched {
    /// The launch, for these places.
    fn task(&self, places: &Places) -> Task;
}
