//! Addresses of this process whose pages come and go: what a guest is shown of a window whose content moves.

#![allow(unsafe_code, reason = "mmap has no safe form")]

use super::address_space::{Kind, map_file, reserve, reserve_at};
use super::error::MapError;
use super::piece::{Access, FilePiece, check_bounds};
use std::ptr::NonNull;

/// Addresses of this process that are ours, with or without pages behind them. Nothing here reads or writes
/// them: they are for the kernel to show to a guest.
#[derive(Debug)]
pub struct Reservation {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the addresses are process-wide, and are only ever handed to the kernel.
unsafe impl Send for Reservation {}
// SAFETY: as above; changing pages is one system call, which the kernel orders.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Takes `size` bytes of address space, with nothing behind them.
    ///
    /// # Errors
    /// The size is 0 or no multiple of a page, or the kernel has no room.
    pub fn new(size: u64) -> Result<Self, MapError> {
        check_range(0, size, size)?;
        let invalid = MapError::Invalid { offset: 0, size, why: "it is larger than the address space" };
        let size = usize::try_from(size).map_err(|_| invalid)?;
        Ok(Self { base: reserve(size)?, size })
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

    /// Its address: a number for system calls, never to access.
    pub fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// The address of an offset that the caller has checked.
    fn place(&self, offset: u64, size: u64) -> Result<NonNull<u8>, MapError> {
        let outside = MapError::Invalid { offset, size, why: "it leaves the reservation" };
        let end = offset.checked_add(size).filter(|end| *end <= self.size());
        let start = end.and_then(|_| usize::try_from(offset).ok()).ok_or(outside)?;
        // SAFETY: `start` is at most `self.size`, the size of the reservation at `base`.
        Ok(unsafe { self.base.add(start) })
    }

    fn map(&self, offset: u64, piece: &FilePiece<'_>, access: Access) -> Result<(), MapError> {
        let place = self.place(offset, piece.size)?;
        map_file(place.as_ptr(), piece, access, Kind::Plain).map(|_| ())
    }

    fn unmap(&self, offset: u64, size: u64) -> Result<(), MapError> {
        let place = self.place(offset, size)?;
        let bytes = usize::try_from(size).unwrap_or(0);
        // SAFETY: the range is a part of this reservation, and there are no pointers into it.
        unsafe { reserve_at(place.as_ptr(), bytes) }.map(|_| ())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and there are no pointers into it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.size) };
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
