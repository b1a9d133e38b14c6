//! Pages of a mapping that were put aside, so that others can be mapped in their place at once.
//!
//! Mapping over pages first takes the old ones out of the page tables: half a millisecond for 16 MiB, in
//! which no thread of the process can map anything. Moving the tables themselves takes microseconds; their
//! content can be dropped later, on another thread.

#![allow(unsafe_code, reason = "moves pages of mappings, which has no safe form")]

use std::io;
use std::ptr::NonNull;

/// Bytes that one entry of a page directory maps. Tables are moved as a whole where both places are multiples
/// of it.
pub(super) const DIRECTORY_ENTRY: usize = 2 << 20;

/// Bytes that are taken out of the page tables at a time.
pub(super) const STEP: usize = 1 << 20;

/// Pages that were put aside. Dropping it takes them out of the page tables, step by step.
#[derive(Debug)]
pub struct ReplacedPages {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the range belongs to this value alone, and is neither read nor written.
unsafe impl Send for ReplacedPages {}

impl ReplacedPages {
    /// Moves the pages of `size` bytes at `place` away; the file there is shown anew, page by page, as it is
    /// accessed.
    ///
    /// # Errors
    /// The kernel refuses: out of address space, or one before 5.13.
    ///
    /// # Safety
    /// The range is a part of one shared mapping of a file, of its caller's.
    pub(super) unsafe fn put(place: NonNull<u8>, size: usize) -> io::Result<Self> {
        let all = size.checked_add(DIRECTORY_ENTRY).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
        let Some(base) = NonNull::new(base.cast::<u8>()).filter(|_| base != libc::MAP_FAILED) else {
            return Err(io::Error::last_os_error());
        };
        let aside = Self { base, size: all };
        // As far from an entry's beginning as the pages are.
        let (at, from) = (base.as_ptr().addr() % DIRECTORY_ENTRY, place.as_ptr().addr() % DIRECTORY_ENTRY);
        let skip = (from + DIRECTORY_ENTRY - at) % DIRECTORY_ENTRY;
        // SAFETY: `skip` is less than what was taken beyond `size`.
        let to = unsafe { base.as_ptr().add(skip) };
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: the old range is the caller's, the new one lies in address space that was taken for it just
        // now.
        let moved = unsafe { libc::mremap(place.as_ptr().cast(), size, size, flags, to) };
        if moved == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(aside) }
    }
}

impl Drop for ReplacedPages {
    fn drop(&mut self) {
        // SAFETY: the range is this value's.
        unsafe { unmap(self.base, self.size) };
    }
}

/// Unmaps a range in steps. Each step holds the lock of the process's address space, which other threads need
/// to map anything.
///
/// # Safety
/// The range is mappings of the caller, and there are no pointers into it.
pub(super) unsafe fn unmap(base: NonNull<u8>, size: usize) {
    let mut taken = 0;
    while size.saturating_sub(taken) > STEP {
        // SAFETY: `taken` is less than the size of the range.
        let start = unsafe { base.as_ptr().add(taken) };
        // SAFETY: the range is the caller's. What it shows stays in its file.
        unsafe { libc::madvise(start.cast(), STEP, libc::MADV_DONTNEED) };
        taken = taken.saturating_add(STEP);
    }
    // SAFETY: the range is the caller's.
    unsafe { libc::munmap(base.as_ptr().cast(), size) };
}
