//! How bytes of a head's memory are named and read.

use thiserror::Error;

/// A memory, by a number that only its owner gives a meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryName(pub u32);

/// A byte of a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Which memory.
    pub memory: MemoryName,
    /// Bytes from its beginning.
    pub offset: u64,
}

impl Address {
    /// The byte this far behind, if there can be one.
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        Some(Self { offset: self.offset.checked_add(bytes)?, ..self })
    }
}

/// Bytes that cannot be read.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("{length} bytes at {offset:#x} of memory {memory} cannot be read", offset = address.offset, memory = address.memory.0)]
pub struct ReadError {
    /// The first of them.
    pub address: Address,
    /// How many.
    pub length: usize,
}

/// Most bytes that are asked for at once.
pub const READ_MAX: usize = 1 << 16;

/// A head's memory.
pub trait ReadBytes {
    /// Reads bytes from `address` on (at most [`READ_MAX`]), as they are at the moment. What the guest
    /// writes meanwhile may be seen in part.
    ///
    /// # Errors
    /// Not all of the bytes are the guest's. Nothing is promised of `bytes` then.
    fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError>;
}
