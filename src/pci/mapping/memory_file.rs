//! Anonymous files, and which file system a file lives on.

#![allow(unsafe_code, reason = "mmap, and access to memory shared with other processes, have no safe form")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// File-system number (`linux/magic.h`).
pub(super) const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// Which file system a file lives on.
pub(super) fn file_system_magic(fd: BorrowedFd<'_>) -> io::Result<i64> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut facts: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open and `facts` is writable.
    let result = unsafe { libc::fstatfs(fd.as_raw_fd(), &raw mut facts) };
    if result == 0 { Ok(facts.f_type) } else { Err(io::Error::last_os_error()) }
}

/// A new anonymous file.
pub(super) fn memfd_create(name: &CStr) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a C string.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Fixes the size of an anonymous file for good.
pub(super) fn seal_size(fd: RawFd) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open; this command takes an integer.
    let result = unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
