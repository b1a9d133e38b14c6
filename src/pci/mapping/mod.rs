//! Memory of another process, mapped here: guest RAM announced for DMA, and windows onto VRAM.
//!
//! The other side may write the memory at any moment, and may shrink the file behind it. So the bytes are
//! never borrowed as a slice: every access copies, checks its bounds, and goes through the three functions of
//! [`raw`]. Naturally aligned accesses of 1, 2, 4 and 8 bytes are single machine accesses with
//! acquire/release order; longer ones are plain copies, which may see a mixture of old and new bytes, as DMA
//! does. A page that vanished reads as zero ([`sigbus`]).
//!
//! Memory is what [`check_file`] takes for memory: shared memory of the kernel's own. Files of a file system that
//! somebody serves, or that a disk is behind, are refused: whoever has them could stall every access.

pub mod absent;
mod file_check;
mod raw;
mod replaced_pages;
mod reservation;
pub mod sigbus;
#[cfg(test)]
mod tests;

pub use file_check::{FileFacts, check_file, unbacked};
use raw::Kind;
pub use raw::Mapping;
pub use replaced_pages::ReplacedPages;
pub use reservation::Reservation;

use gpuvmk_chip::addr::PAGE_SIZE;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// What may be done with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// Reads.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// One piece of a file to map.
#[derive(Clone, Copy, Debug)]
pub struct FilePiece<'a> {
    /// The file.
    pub fd: BorrowedFd<'a>,
    /// Offset of the first byte, a multiple of the page size.
    pub offset: u64,
    /// Bytes, a multiple of the page size.
    pub size: u64,
}

/// Why memory cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Empty, unaligned or wrapping piece.
    #[error("File range {offset:#x}+{size:#x} cannot be mapped: {why}")]
    Invalid {
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
        /// What is allowed.
        why: &'static str,
    },
    /// The file ends before the claimed range.
    #[error("File range {offset:#x}+{size:#x} ends behind the file, which has {file_size:#x} bytes")]
    TooSmall {
        /// First byte claimed.
        offset: u64,
        /// Bytes claimed.
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
        /// Which.
        step: &'static str,
        /// What the kernel said.
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
        /// First byte.
        offset: u64,
        /// Bytes.
        size: u64,
        /// Size of the mapping.
        limit: u64,
    },
    /// It writes to a read-only mapping.
    #[error("Write at {offset:#x} of a read-only mapping")]
    ReadOnly {
        /// First byte.
        offset: u64,
    },
}

/// Checks one piece by itself; returns where it ends.
fn check_bounds(piece: &FilePiece<'_>) -> Result<u64, MapError> {
    let FilePiece { offset, size, .. } = *piece;
    let invalid = |why| MapError::Invalid { offset, size, why };
    if size == 0 || !size.is_multiple_of(PAGE_SIZE) || !offset.is_multiple_of(PAGE_SIZE) {
        return Err(invalid("offset and size must be multiples of 4096, and the size not 0"));
    }
    offset.checked_add(size).ok_or(invalid("it wraps"))
}

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

    /// The same of a file whose pages are others' to pay for: where this process refuses to make such
    /// ([`absent::refuse_here`]), one that nobody has yet is a page that cannot be had.
    ///
    /// # Errors
    /// As above.
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

    /// Maps several pieces, as [`Self::contiguous`], that somebody trusted granted: they may also be device
    /// nodes, whose size nobody can check and which need not answer for ever.
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

    /// As [`Self::replace`], of pages of one file, in little time: what was there is handed out, to be
    /// dropped by whoever has time for it.
    ///
    /// # Errors
    /// As there.
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
    let fd = raw::memfd_create(name)?;
    let file = File::from(fd);
    file.set_len(size)?;
    raw::seal_size(file.as_raw_fd())?;
    Ok(OwnedFd::from(file))
}
