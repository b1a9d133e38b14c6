//! Why memory cannot be mapped, and why an access to mapped memory is refused.

use std::io;

/// Why memory cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Empty, unaligned or wrapping piece.
    #[error("File range {offset:#x}+{size:#x} cannot be mapped: {why}")]
    Invalid {
        /// Offset of the first byte.
        offset: u64,
        /// Size in bytes.
        size: u64,
        /// The allowed values.
        why: &'static str,
    },
    /// The file ends before the claimed range.
    #[error("File range {offset:#x}+{size:#x} ends behind the file, which has {file_size:#x} bytes")]
    TooSmall {
        /// First byte claimed.
        offset: u64,
        /// Size that was claimed, in bytes.
        size: u64,
        /// Bytes that the file has.
        file_size: u64,
    },
    /// Not a kind of file that is memory.
    #[error("The file cannot be memory: {0}")]
    Kind(&'static str),
    /// A descriptor without the right to write.
    #[error("The file was not opened for reading and writing, so devices cannot be let write to it")]
    NotWritable,
    /// The table of guarded mappings is full.
    #[error("More than {0} mappings in this process")]
    TooMany(usize),
    /// A system call failed.
    #[error("{step} failed")]
    System {
        /// The system call that failed.
        step: &'static str,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

/// Why an access to mapped memory was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// It leaves the mapping.
    #[error("Access of {size} bytes at {offset:#x} leaves a mapping of {limit:#x} bytes")]
    OutOfRange {
        /// Offset of the first byte.
        offset: u64,
        /// Size in bytes.
        size: u64,
        /// Size of the mapping.
        limit: u64,
    },
    /// It is atomic, and lies at no multiple of its size.
    #[error("Atomic access at {offset:#x}, which is no multiple of its size")]
    Unaligned {
        /// Offset of the first byte.
        offset: u64,
    },
    /// It writes to a read-only mapping.
    #[error("Write at {offset:#x} of a read-only mapping")]
    ReadOnly {
        /// Offset of the first byte.
        offset: u64,
    },
}
