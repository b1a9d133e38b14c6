//! Pieces of files, before they are mapped.

use super::error::MapError;
use gpuvmk_chip::addr::PAGE_SIZE;
use std::os::fd::BorrowedFd;

/// Rights of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Loads only.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// One piece of a file to map.
#[derive(Clone, Copy, Debug)]
pub struct FilePiece<'a> {
    /// The file to map.
    pub fd: BorrowedFd<'a>,
    /// Offset of the first byte, a multiple of the page size.
    pub offset: u64,
    /// Bytes, a multiple of the page size.
    pub size: u64,
}

/// Checks one piece by itself; returns where it ends.
pub(super) fn check_bounds(piece: &FilePiece<'_>) -> Result<u64, MapError> {
    let FilePiece { offset, size, .. } = *piece;
    let invalid = |why| MapError::Invalid { offset, size, why };
    if size == 0 || !size.is_multiple_of(PAGE_SIZE) || !offset.is_multiple_of(PAGE_SIZE) {
        return Err(invalid("offset and size must be multiples of 4096, and the size not 0"));
    }
    offset.checked_add(size).ok_or(invalid("it wraps"))
}
