//! Addresses of this process whose pages come and go: what a guest is shown of a window whose content moves.

use super::error::MapError;
use super::piece::{Access, FilePiece, check_bounds};
use super::raw;

pub use raw::Reservation;

impl Reservation {
    /// Takes `size` bytes of address space, with nothing behind them.
    ///
    /// # Errors
    /// The size is 0 or no multiple of a page, or the kernel has no room.
    pub fn new(size: u64) -> Result<Self, MapError> {
        check_range(0, size, size)?;
        Self::reserve(size)
    }

    /// Has the pages at `offset` show a piece of a file.
    ///
    /// # Errors
    /// The piece is invalid or leaves the reservation, or the kernel refuses.
    pub fn show(&self, offset: u64, piece: &FilePiece<'_>, access: Access) -> Result<(), MapError> {
        check_bounds(piece)?;
        check_range(offset, piece.size, self.size())?;
        self.map(offset, piece, access)
    }

    /// Has pages show nothing.
    ///
    /// # Errors
    /// The range is invalid or leaves the reservation, or the kernel refuses.
    pub fn hide(&self, offset: u64, size: u64) -> Result<(), MapError> {
        check_range(offset, size, self.size())?;
        self.unmap(offset, size)
    }
}

pub(super) fn check_range(offset: u64, size: u64, limit: u64) -> Result<(), MapError> {
    let page = gpuvmk_chip::addr::PAGE_SIZE;
    let inside = offset.checked_add(size).is_some_and(|end| end <= limit);
    if inside && size != 0 && offset.is_multiple_of(page) && size.is_multiple_of(page) {
        return Ok(());
    }
    Err(MapError::Invalid { offset, size, why: "it is to be whole pages inside" })
}
