//! The unsafe part of memory mappings: a mapping's life, and bounded copies in and out of it.

#![allow(unsafe_code, reason = "mmap, and access to memory shared with other processes, have no safe form")]

use super::address_space::{Kind, PAGE, map_file, reserve};
use super::error::{MapError, MemoryError};
use super::piece::{Access, FilePiece};
use super::replaced_pages::{self, ReplacedPages};
use super::words::{load, store};
use super::{absent, sigbus};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// Bytes whose pages are allocated at a time. No other thread of this process can map anything meanwhile.
const PREPARED: usize = 256 << 10;

/// Mapped memory of another process. See the module for what an access guarantees.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    size: usize,
    access: Access,
    /// Contains faults on pages that vanished. Dropped by hand before `munmap`.
    guard: Option<sigbus::Guard>,
    /// The file and the offset of the first byte, of a mapping of one piece: what is asked how long it is
    /// when a page is not there, and what is shown again afterwards.
    file: Option<(OwnedFd, u64)>,
    kind: Kind,
}

// SAFETY: the memory is process-wide; every access is a bounded copy through raw pointers or atomics, and
// concurrent writers are expected (they exist in other processes anyway).
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `pieces`, each already checked against its file, one behind the other.
    pub(super) fn map_checked(
        pieces: &[FilePiece<'_>],
        access: Access,
        page: u64,
        kind: Kind,
    ) -> Result<Self, MapError> {
        let invalid = |why| MapError::Invalid { offset: 0, size: 0, why };
        let total = pieces
            .iter()
            .try_fold(0u64, |sum, piece| sum.checked_add(piece.size))
            .and_then(|sum| usize::try_from(sum).ok())
            .filter(|sum| isize::try_from(*sum).is_ok() && *sum != 0)
            .ok_or(invalid("the pieces together are empty or larger than the address space"))?;
        let page = usize::try_from(page).map_err(|_| invalid("the page size is larger than memory"))?;
        let base = match pieces {
            // One piece needs no reservation; and hugetlbfs wants to choose an aligned address itself.
            [piece] => map_file(std::ptr::null_mut(), piece, access, kind)?,
            _ => reserve(total)?,
        };
        // From here on the range is unmapped when `mapping` is dropped.
        let mut mapping = Self { base, size: total, access, guard: None, file: None, kind };
        if pieces.len() > 1 {
            let mut done = 0usize;
            for piece in pieces {
                // SAFETY: `done` is at most `total`, the size of the reservation at `base`.
                let place = unsafe { base.as_ptr().add(done) };
                map_file(place, piece, access, kind)?;
                // CAST: the sum of the sizes fits in usize, so each of them does.
                #[allow(clippy::cast_possible_truncation, reason = "checked as part of the total")]
                let size = piece.size as usize;
                done += size;
            }
        }
        if let [piece] = pieces
            && kind != Kind::Plain
        {
            let step = "Duplicating the descriptor";
            let fd = piece.fd.try_clone_to_owned().map_err(|source| MapError::System { step, source })?;
            mapping.file = Some((fd, piece.offset));
        }
        let file = mapping.file.as_ref().map(|(fd, offset)| (fd.as_raw_fd(), *offset));
        let start = base.as_ptr() as usize;
        mapping.guard = Some(sigbus::guard(sigbus::GuardedRange { start, size: total, page, file })?);
        mapping.refuse_absent(start, total)?;
        Ok(mapping)
    }

    /// Has pages of the range fail that are not ours to make.
    fn refuse_absent(&self, start: usize, size: usize) -> Result<(), MapError> {
        if self.kind != Kind::Others {
            return Ok(());
        }
        let step = "Having accesses to pages that nobody has refused";
        absent::refuse(start, size).map_err(|source| MapError::System { step, source })
    }

    /// Pages inside the file that could not be had since [`Self::restore_file`] was last called: zeros are in
    /// their place, so what was computed since is worth nothing.
    pub fn lost_pages(&self) -> u32 {
        self.guard.as_ref().map_or(0, sigbus::Guard::lost)
    }

    /// Maps the file again wherever zeros replaced its pages. Bytes that were written to the zeros are lost.
    /// No other thread may use the memory during the call. A page that is still missing is replaced again at
    /// its next access.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn restore_file(&self) -> Result<(), MapError> {
        let (Some(guard), Some((fd, first))) = (&self.guard, &self.file) else { return Ok(()) };
        for (start, end) in guard.take_replaced() {
            let into = (start - self.base.as_ptr() as usize) as u64;
            let piece =
                FilePiece { fd: fd.as_fd(), offset: first.saturating_add(into), size: (end - start) as u64 };
            self.map_over(into, &piece)?;
        }
        Ok(())
    }

    /// Gets memory for a range now, in this process's name, and without its content changing: a file system
    /// that is full is an error here, and would be a lost page later. Takes as long as it takes to clear the
    /// memory.
    ///
    /// # Errors
    /// The range leaves the mapping, or there is no memory.
    pub fn populate(&self, offset: u64, size: u64) -> io::Result<()> {
        let bytes = usize::try_from(size).map_err(io::Error::other)?;
        let place = self.place(offset, bytes).map_err(io::Error::other)?;
        let bytes = self.present(place, bytes);
        if bytes == 0 {
            return Ok(());
        }
        let advice = match self.access {
            Access::ReadOnly => libc::MADV_POPULATE_READ,
            Access::ReadWrite => libc::MADV_POPULATE_WRITE,
        };
        let start = place.as_ptr().addr() / PAGE * PAGE;
        let end = place.as_ptr().addr().saturating_add(bytes);
        let first = place.as_ptr().with_addr(start).cast();
        // SAFETY: these pages are a part of this mapping (its start is a multiple of a page); the call
        // changes no byte of them.
        let result = unsafe { libc::madvise(first, end - start, advice) };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // A kernel that does not know the call.
            Some(libc::EINVAL) => Ok(()),
            // Behind the end of its file there is nothing to be got.
            Some(libc::EFAULT) if self.ends_before(offset.saturating_add(size)) => Ok(()),
            _ => Err(error),
        }
    }

    /// True when the file has shrunk to less than that.
    fn ends_before(&self, end: u64) -> bool {
        let Some((fd, first)) = &self.file else { return true };
        let size = rustix::fs::fstat(fd).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        first.saturating_add(end) > size
    }

    /// Its address: a number for system calls, never to access.
    pub fn address(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size as u64
    }

    /// Its rights.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Maps a piece over whole pages. The caller has checked that they lie inside and belong to one file. The
    /// old pages are put aside if the kernel can do that.
    pub(super) fn map_in_place_of(
        &self,
        offset: u64,
        piece: &FilePiece<'_>,
    ) -> Result<Option<ReplacedPages>, MapError> {
        let outside = MapError::Invalid { offset, size: piece.size, why: "it leaves the mapping" };
        let size = usize::try_from(piece.size).map_err(|_| MapError::Invalid {
            offset,
            size: piece.size,
            why: "it leaves the mapping",
        })?;
        let place = self.place(offset, size).map_err(|_| outside)?;
        // SAFETY: the range is inside this mapping, and of one file (the caller).
        let aside = unsafe { ReplacedPages::put(place, size) };
        self.map_over(offset, piece)?;
        Ok(aside.ok())
    }

    /// Maps a piece over whole pages, which the caller has checked to lie inside.
    pub(super) fn map_over(&self, offset: u64, piece: &FilePiece<'_>) -> Result<(), MapError> {
        let outside = MapError::Invalid { offset, size: piece.size, why: "it leaves the mapping" };
        let size = usize::try_from(piece.size).ok();
        let place = size.and_then(|size| self.place(offset, size).ok()).ok_or(outside)?;
        map_file(place.as_ptr(), piece, self.access, self.kind)?;
        self.refuse_absent(place.as_ptr().addr(), size.unwrap_or(0))
    }

    /// The address of `[offset, offset + size)`, if that lies inside.
    fn place(&self, offset: u64, size: usize) -> Result<NonNull<u8>, MemoryError> {
        let start = usize::try_from(offset)
            .ok()
            .filter(|start| start.checked_add(size).is_some_and(|end| end <= self.size))
            .ok_or(MemoryError::OutOfRange { offset, size: size as u64, limit: self.size as u64 })?;
        // SAFETY: `start` is at most `self.size`, the size of the mapping at `base`.
        Ok(unsafe { self.base.add(start) })
    }

    /// The same, if the mapping may be written.
    pub(super) fn writable_place(&self, offset: u64, size: usize) -> Result<NonNull<u8>, MemoryError> {
        match self.access {
            Access::ReadWrite => self.place(offset, size),
            Access::ReadOnly => Err(MemoryError::ReadOnly { offset }),
        }
    }

    /// How many of `size` bytes at a place lie before what its file has lost. What lies behind is neither
    /// read (it is zero) nor written.
    fn present(&self, place: NonNull<u8>, size: usize) -> usize {
        self.guard.as_ref().map_or(size, |guard| guard.present(place.as_ptr().addr(), size))
    }

    /// Copies out of the memory.
    ///
    /// # Errors
    /// The range leaves the mapping.
    pub fn read(&self, offset: u64, data: &mut [u8]) -> Result<(), MemoryError> {
        let place = self.place(offset, data.len())?;
        let there = self.present(place, data.len());
        if there == data.len() {
            // SAFETY: `place` is valid for `data.len()` bytes.
            unsafe { load(place.as_ptr(), data) };
        } else {
            let (data, gone) = data.split_at_mut(there);
            // SAFETY: the same.
            unsafe { load(place.as_ptr(), data) };
            gone.fill(0);
        }
        Ok(())
    }

    /// Copies into the memory.
    ///
    /// # Errors
    /// The range leaves the mapping, or the mapping is read-only.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), MemoryError> {
        let place = self.writable_place(offset, data.len())?;
        let there = self.present(place, data.len());
        if there == data.len() {
            // SAFETY: `place` is valid for writes of `data.len()` bytes.
            unsafe { store(place.as_ptr(), data) };
        } else {
            // SAFETY: the same.
            unsafe { store(place.as_ptr(), data.split_at(there).0) };
        }
        Ok(())
    }

    /// Reads a little-endian 32-bit value.
    ///
    /// # Errors
    /// The range leaves the mapping.
    pub fn read_u32(&self, offset: u64) -> Result<u32, MemoryError> {
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Writes a little-endian 32-bit value.
    ///
    /// # Errors
    /// The range leaves the mapping, or the mapping is read-only.
    pub fn write_u32(&self, offset: u64, value: u32) -> Result<(), MemoryError> {
        self.write(offset, &value.to_le_bytes())
    }

    /// Reads a little-endian 64-bit value.
    ///
    /// # Errors
    /// The range leaves the mapping.
    pub fn read_u64(&self, offset: u64) -> Result<u64, MemoryError> {
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Writes a little-endian 64-bit value.
    ///
    /// # Errors
    /// The range leaves the mapping, or the mapping is read-only.
    pub fn write_u64(&self, offset: u64, value: u64) -> Result<(), MemoryError> {
        self.write(offset, &value.to_le_bytes())
    }

    /// Sets `size` bytes to `byte`.
    ///
    /// # Errors
    /// The range leaves the mapping, or the mapping is read-only.
    pub fn fill(&self, offset: u64, size: u64, byte: u8) -> Result<(), MemoryError> {
        let out_of_range = MemoryError::OutOfRange { offset, size, limit: self.size as u64 };
        let bytes = usize::try_from(size).map_err(|_| out_of_range)?;
        let place = self.writable_place(offset, bytes)?;
        let bytes = self.present(place, bytes);
        // SAFETY: `place` is valid for writes of `bytes` bytes.
        unsafe { std::ptr::write_bytes(place.as_ptr(), byte, bytes) };
        Ok(())
    }

    /// Says that all of a range is about to be written: pages that this process has not met yet are got
    /// together, which costs half of what it costs one by one. Changes nothing, and need not do anything.
    pub fn prepare_to_fill(&self, offset: u64, size: u64) {
        let Ok(bytes) = usize::try_from(size) else { return };
        let Ok(place) = self.writable_place(offset, bytes) else { return };
        let bytes = self.present(place, bytes);
        // Pages that lie in the range as a whole.
        let start = place.as_ptr().addr().next_multiple_of(PAGE);
        let end = place.as_ptr().addr().saturating_add(bytes) / PAGE * PAGE;
        for at in (start..end).step_by(PREPARED) {
            let first = place.as_ptr().with_addr(at).cast();
            // SAFETY: these pages are a part of this mapping; the call changes no byte of them.
            unsafe { libc::madvise(first, PREPARED.min(end - at), libc::MADV_POPULATE_WRITE) };
        }
    }

    /// Copies `size` bytes to `target`, which may be this mapping: the ranges may overlap.
    ///
    /// # Errors
    /// A range leaves its mapping, or the target is read-only.
    pub fn copy_to(
        &self,
        offset: u64,
        target: &Self,
        target_offset: u64,
        size: u64,
    ) -> Result<(), MemoryError> {
        let out_of_range = MemoryError::OutOfRange { offset, size, limit: self.size as u64 };
        let bytes = usize::try_from(size).map_err(|_| out_of_range)?;
        let from = self.place(offset, bytes)?;
        let to = target.writable_place(target_offset, bytes)?;
        let bytes = target.present(to, bytes);
        let there = self.present(from, bytes);
        // SAFETY: both are valid for `there` bytes, no more than were checked; `copy` allows them to overlap.
        unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr(), there) };
        if there < bytes {
            // SAFETY: `there` is less than `bytes`, for which `to` is valid.
            let rest = unsafe { to.add(there) };
            // SAFETY: the same.
            unsafe { std::ptr::write_bytes(rest.as_ptr(), 0, bytes - there) };
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The guard goes first: once unmapped, the addresses may belong to another mapping.
        self.guard = None;
        // SAFETY: the range was mapped by `map_checked`, and there are no pointers into it.
        unsafe { replaced_pages::unmap(self.base, self.size) };
    }
}
