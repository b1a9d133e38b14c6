//! Memory of another process, mapped here: guest RAM announced for DMA, and windows onto VRAM.
//!
//! The other side may write the memory at any moment, and may shrink the file behind it. So the bytes are
//! never borrowed as a slice: every access copies, checks its bounds, and goes through the three functions of
//! [`raw`]. Naturally aligned accesses of 1, 2, 4 and 8 bytes are single machine accesses with
//! acquire/release order. Longer ones are plain copies, which may see a mixture of old and new bytes, as DMA
//! does. A page that vanished reads as zero ([`sigbus`]).
//!
//! Memory is what [`check_file`] takes for memory: shared memory of the kernel's own. Files of a file system
//! that a process serves (FUSE), or that a disk is behind, are refused: their owner could stall every access.

pub mod absent;
mod address_space;
mod atomic;
mod error;
mod file_check;
mod memory_file;
mod piece;
mod raw;
mod replaced_pages;
mod reservation;
pub mod sigbus;
#[cfg(test)]
mod tests;
mod words;

use address_space::Kind;
pub use error::{MapError, MemoryError};
pub use file_check::{FileFacts, check_file, unbacked};
use piece::check_bounds;
pub use piece::{Access, FilePiece};
pub use raw::Mapping;
pub use replaced_pages::ReplacedPages;
pub use reservation::Reservation;

use gpuvmk_chip::addr::PAGE_SIZE;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Checks one piece against its file.
fn check_piece(piece: &FilePiece<'_>) -> Result<FileFacts, MapError> {
    let FilePiece { offset, size, .. } = *piece;
    let end = check_bounds(piece)?;
    let facts = check_file(piece.fd)?;
    if end > facts.size {
        return Err(MapError::TooSmall { offset, size, file_size: facts.size });
    }
    Ok(facts)
}

impl Mapping {
    /// Maps one range of a file.
    ///
    /// # Errors
    /// The range is invalid, the file is smaller or no memory, or the kernel refuses.
    pub fn of_file(fd: BorrowedFd<'_>, offset: u64, size: u64, access: Access) -> Result<Self, MapError> {
        Self::of_one(FilePiece { fd, offset, size }, access, Kind::Deferred)
    }

    /// The same for a file whose pages other processes pay for. Where this process refuses to allocate such
    /// pages ([`absent::refuse_here`]), an absent page counts as missing.
    ///
    /// # Errors
    /// As [`Self::of_file`].
    pub fn of_others(fd: BorrowedFd<'_>, offset: u64, size: u64, access: Access) -> Result<Self, MapError> {
        Self::of_one(FilePiece { fd, offset, size }, access, Kind::Others)
    }

    fn of_one(piece: FilePiece<'_>, access: Access, kind: Kind) -> Result<Self, MapError> {
        let page = check_piece(&piece)?.page;
        Self::map_checked(&[piece], access, page, kind)
    }

    /// Maps several pieces one behind the other, so that they read as one memory.
    ///
    /// # Errors
    /// A piece is invalid, its file is smaller or no memory, or the kernel refuses.
    pub fn contiguous(pieces: &[FilePiece<'_>], access: Access) -> Result<Self, MapError> {
        let mut page = PAGE_SIZE;
        for piece in pieces {
            page = page.max(check_piece(piece)?.page);
        }
        Self::map_checked(pieces, access, page, Kind::Plain)
    }

    /// Maps several pieces, as [`Self::contiguous`], that a trusted process granted. They may also be device
    /// nodes, whose size cannot be checked and whose mappings may stop working at any time.
    ///
    /// # Errors
    /// A piece is invalid, its file is smaller or no memory, or the kernel refuses.
    pub fn granted(pieces: &[FilePiece<'_>], access: Access) -> Result<Self, MapError> {
        let mut page = PAGE_SIZE;
        for piece in pieces {
            if is_device(piece.fd)? {
                check_bounds(piece)?;
            } else {
                page = page.max(check_piece(piece)?.page);
            }
        }
        Self::map_checked(pieces, access, page, Kind::Plain)
    }

    /// Maps a range that a kernel driver offers of a device. Its file says nothing of its size or kind; the
    /// driver does, and refuses what it has not offered.
    ///
    /// # Errors
    /// The range is invalid, or the kernel refuses.
    pub fn of_device(fd: BorrowedFd<'_>, offset: u64, size: u64, access: Access) -> Result<Self, MapError> {
        let piece = FilePiece { fd, offset, size };
        check_bounds(&piece)?;
        Self::map_checked(&[piece], access, PAGE_SIZE, Kind::Plain)
    }

    /// As [`Self::replace`], for pages of one file, in little time. The old pages are returned, so that
    /// another thread can drop them.
    ///
    /// # Errors
    /// As [`Self::replace`].
    pub fn exchange(&self, offset: u64, piece: &FilePiece<'_>) -> Result<Option<ReplacedPages>, MapError> {
        check_bounds(piece)?;
        reservation::check_range(offset, piece.size, self.size())?;
        self.map_in_place_of(offset, piece)
    }

    /// Has the pages at `offset` show another piece of memory, of a file whose size is known to last: one
    /// that this process made, or one that this mapping was made of.
    ///
    /// # Errors
    /// The piece is invalid or leaves the mapping, or the kernel refuses (as it does where pages are larger).
    pub fn replace(&self, offset: u64, piece: &FilePiece<'_>) -> Result<(), MapError> {
        check_bounds(piece)?;
        reservation::check_range(offset, piece.size, self.size())?;
        self.map_over(offset, piece)
    }
}

/// True for a character device.
fn is_device(fd: BorrowedFd<'_>) -> Result<bool, MapError> {
    let stat = rustix::fs::fstat(fd)
        .map_err(|source| MapError::System { step: "Reading the kind of file", source: source.into() })?;
    Ok(rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::CharacterDevice)
}

/// A new anonymous file of `size` zero bytes that can neither shrink nor grow: memory to share with a process
/// that need not be trusted to keep its size.
///
/// # Errors
/// The kernel refuses.
pub fn create_memory_file(name: &CStr, size: u64) -> io::Result<OwnedFd> {
    let fd = memory_file::memfd_create(name)?;
    let file = File::from(fd);
    file.set_len(size)?;
    memory_file::seal_size(file.as_raw_fd())?;
    Ok(OwnedFd::from(file))
}
