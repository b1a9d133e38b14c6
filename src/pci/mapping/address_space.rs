//! Address space of this process: taken, filled with pieces of files, and made empty again.

#![allow(unsafe_code, reason = "mmap, and access to memory shared with other processes, have no safe form")]

use super::error::MapError;
use super::piece::{Access, FilePiece};
use super::replaced_pages;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

/// Bytes of a page of memory.
pub(super) const PAGE: usize = 4096;

/// The kind of memory that a mapping shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It forgets its files.
    Plain,
    /// The descriptor of its single piece is kept.
    Deferred,
    /// That, and its pages are not made here where that is refused.
    Others,
}

/// Takes `size` bytes of address space, which begin where an entry of a page directory does if they are more
/// than one maps.
pub(super) fn reserve(size: usize) -> Result<NonNull<u8>, MapError> {
    let unit = replaced_pages::DIRECTORY_ENTRY;
    let more = size.checked_add(unit).filter(|_| size > unit);
    let Some(more) = more else {
        // SAFETY: a new mapping at an address of the kernel's choice.
        return unsafe { reserve_at(std::ptr::null_mut(), size) };
    };
    // SAFETY: as above.
    let base = unsafe { reserve_at(std::ptr::null_mut(), more) }?;
    let skip = base.as_ptr().addr().next_multiple_of(unit) - base.as_ptr().addr();
    // SAFETY: `skip` is less than a unit, which was taken beyond `size`.
    let first = unsafe { base.add(skip) };
    // SAFETY: the same.
    let end = unsafe { first.add(size) };
    for (start, bytes) in [(base, skip), (end, unit - skip)] {
        if bytes > 0 {
            // SAFETY: both ends are ours, and there are no pointers into them.
            unsafe { libc::munmap(start.as_ptr().cast(), bytes.next_multiple_of(PAGE)) };
        }
    }
    Ok(first)
}

/// Takes address space anywhere, or takes the pages of a part of a reservation away.
///
/// # Safety
/// `place` is null, or the range lies in a reservation and there are no pointers into it.
pub(super) unsafe fn reserve_at(place: *mut u8, size: usize) -> Result<NonNull<u8>, MapError> {
    let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | fixed;
    // SAFETY: a new mapping, or one over a part of a reservation (the caller).
    let address = unsafe { libc::mmap(place.cast(), size, libc::PROT_NONE, flags, -1, 0) };
    mapped(address, "Reserving address space")
}

/// Maps one piece, at `place` (inside a reservation or a mapping of ours) or anywhere when that is null.
pub(super) fn map_file(
    place: *mut u8,
    piece: &FilePiece<'_>,
    access: Access,
    kind: Kind,
) -> Result<NonNull<u8>, MapError> {
    let invalid = |why| MapError::Invalid { offset: piece.offset, size: piece.size, why };
    let size = usize::try_from(piece.size).map_err(|_| invalid("it is larger than the address space"))?;
    let offset = libc::off_t::try_from(piece.offset).map_err(|_| invalid("the offset is too large"))?;
    let protection = match access {
        Access::ReadOnly => libc::PROT_READ,
        Access::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
    };
    let fixed = if place.is_null() { 0 } else { libc::MAP_FIXED };
    let fd = piece.fd.as_raw_fd();
    // A read-only mapping shows the file either way, and the kernel reports missing pages only where writing
    // could be allowed.
    let shared = match (kind, access) {
        (Kind::Others, Access::ReadOnly) => libc::MAP_PRIVATE,
        _ => libc::MAP_SHARED,
    };
    // SAFETY: either a new mapping, or one over pages that this module owns: there are no references into
    // them, and the kernel replaces pages in one step for threads that access them meanwhile.
    let address = unsafe { libc::mmap(place.cast(), size, protection, shared | fixed, fd, offset) };
    mapped(address, "Mapping the file")
}

pub(super) fn mapped(address: *mut libc::c_void, step: &'static str) -> Result<NonNull<u8>, MapError> {
    NonNull::new(address.cast::<u8>())
        .filter(|_| address != libc::MAP_FAILED)
        .ok_or_else(|| MapError::System { step, source: io::Error::last_os_error() })
}
