//! Memory shared with another process as an array of atomic words: the only unsafe code of this room.
//!
//! The creator seals the file against shrinking and growing before any other process gets it, so that no
//! access can meet a missing page, whatever the other side does with the file.
#![allow(unsafe_code, reason = "maps a shared file as atomic words; the safe interface bounds every access")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags};

/// Words in a page.
const PAGE_WORDS: usize = 1024;

/// A shared mapping of 32-bit words.
#[derive(Debug)]
pub struct SharedWords {
    start: NonNull<AtomicU32>,
    words: usize,
}

// SAFETY: the mapping is owned by this value alone, lives as long as it, and holds atomics only, which may be
// used from any thread.
unsafe impl Send for SharedWords {}
// SAFETY: as above; `&SharedWords` gives out `&AtomicU32` only.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    /// New zeroed memory of `pages` pages, with the file that another process maps it by.
    ///
    /// # Errors
    /// Out of memory or descriptors.
    pub fn create(name: &str, pages: usize) -> io::Result<(Self, OwnedFd)> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let bytes = (pages.max(1) as u64).saturating_mul(4096);
        rustix::fs::ftruncate(&fd, bytes)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok((Self::map(fd.as_fd(), pages)?, fd))
    }

    /// Maps memory that another process created.
    ///
    /// # Errors
    /// The file is smaller than `pages` pages, or could be made so.
    pub fn open(fd: BorrowedFd<'_>, pages: usize) -> io::Result<Self> {
        let size = u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0);
        let sealed = rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK);
        if !sealed || size < (pages.max(1) as u64).saturating_mul(4096) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "shared memory is too small or not sealed",
            ));
        }
        Self::map(fd, pages)
    }

    fn map(fd: BorrowedFd<'_>, pages: usize) -> io::Result<Self> {
        let words = pages.max(1).saturating_mul(PAGE_WORDS);
        let bytes = words.saturating_mul(4);
        // SAFETY: a new shared mapping at an address of the kernel's choice; no memory of ours is replaced.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                std::os::fd::AsRawFd::as_raw_fd(&fd),
                0,
            )
        };
        match NonNull::new(address.cast::<AtomicU32>()) {
            Some(start) if address != libc::MAP_FAILED => Ok(Self { start, words }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The word number `index`, for one access; indices wrap at the end, so that no index is invalid.
    pub fn word(&self, index: usize) -> &AtomicU32 {
        #[cfg(any(test, feature = "testing"))]
        crate::interleave::word(index, || self.at(index).load(std::sync::atomic::Ordering::SeqCst));
        self.at(index)
    }

    /// The same without being a step that others wait for.
    pub(super) fn at(&self, index: usize) -> &AtomicU32 {
        let index = index % self.words.max(1);
        // SAFETY: `index` is below `words`, the number of words mapped.
        let word = unsafe { self.start.add(index) };
        // SAFETY: the word is inside the mapping, which lives as long as `self`, is page aligned and sealed
        // against shrinking; AtomicU32 has no invalid value.
        unsafe { word.as_ref() }
    }
}

impl SharedWords {
    /// The long word made of the words number `index`, which is even, and the one after it, for one access.
    /// These two are never used alone. Indices wrap as in [`Self::word`].
    pub fn long(&self, index: usize) -> &AtomicU64 {
        #[cfg(any(test, feature = "testing"))]
        crate::interleave::word(index, || self.long_at(index).load(std::sync::atomic::Ordering::SeqCst));
        self.long_at(index)
    }

    /// The same without being a step that others wait for.
    pub(super) fn long_at(&self, index: usize) -> &AtomicU64 {
        let index = (index % self.words.max(1)) & !1;
        // SAFETY: `index` is below `words`, the number of words mapped, which is even.
        let pair = unsafe { self.start.add(index) }.cast::<AtomicU64>();
        // SAFETY: both words are inside the mapping, which lives as long as `self`, is page aligned and
        // sealed against shrinking; an even word is aligned to eight bytes; AtomicU64 has no invalid value.
        unsafe { pair.as_ref() }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `map` mapped, unmapped once; no reference outlives `self`.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.words.saturating_mul(4));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn stores_are_seen_through_the_other_mapping() {
        let (ours, fd) = SharedWords::create("test", 2).unwrap();
        let theirs = SharedWords::open(fd.as_fd(), 2).unwrap();

        ours.word(2047).store(7, Ordering::Relaxed);

        assert_eq!(theirs.word(2047).load(Ordering::Relaxed), 7);
    }

    #[test]
    fn long_words_are_pairs_and_wrap_at_the_end() {
        let (ours, fd) = SharedWords::create("test", 1).unwrap();
        let theirs = SharedWords::open(fd.as_fd(), 1).unwrap();

        ours.long(1022).store(7 << 32 | 5, Ordering::Relaxed);

        assert_eq!(theirs.long(1022 + 1024).load(Ordering::Relaxed), 7 << 32 | 5);
        assert_eq!([1022, 1023].map(|index| theirs.word(index).load(Ordering::Relaxed)), [5, 7]);
    }

    #[test]
    fn the_file_cannot_be_truncated_under_the_other_side() {
        let (_ours, fd) = SharedWords::create("test", 1).unwrap();

        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
    }

    #[test]
    fn unsealed_or_short_file_is_refused() {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert!(SharedWords::open(fd.as_fd(), 1).is_err());

        let (_ours, fd) = SharedWords::create("test", 1).unwrap();
        assert!(SharedWords::open(fd.as_fd(), 2).is_err());
    }
}
