//! Pages of other processes' memory that are not allocated yet.
//!
//! The first access to a page of a shared file allocates it, charged to the control group of the process that
//! made the access. A process that serves many VMs must not pay for a file of theirs that has a size and no
//! content. So it may ask the kernel ([`refuse_here`]) to let such an access fail instead, with the signal
//! for a missing page ([`super::sigbus`]). Pages that are swapped out count as present. Where the kernel
//! itself gets the pages, because a driver pins them for a device, the driver's call fails.
//!
//! The kernel's means is userfaultfd: mappings are registered for missing pages, with the feature that turns
//! a miss into a signal, so no thread has to serve faults. It needs no privilege, since it concerns this
//! process's accesses only.

#![allow(unsafe_code, reason = "the calls of userfaultfd take addresses")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

/// `UFFD_USER_MODE_ONLY`: faults of the kernel's on our behalf fail at once. Without it, the call takes a
/// privilege.
const USER_MODE_ONLY: libc::c_int = 1;

/// `UFFD_API`, and the features that are asked for (linux/userfaultfd.h).
const API: u64 = 0xaa;
const MISSING_HUGETLBFS: u64 = 1 << 4;
const MISSING_SHMEM: u64 = 1 << 5;
const SIGBUS: u64 = 1 << 7;

/// `UFFDIO_API` and `UFFDIO_REGISTER`.
const IOCTL_API: u32 = 0xc018_aa3f;
const IOCTL_REGISTER: u32 = 0xc020_aa00;

/// `UFFDIO_REGISTER_MODE_MISSING`.
const MODE_MISSING: u64 = 1;

#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Register {
    start: u64,
    length: u64,
    mode: u64,
    ioctls: u64,
}

/// The userfaultfd; unset until [`refuse_here`] is called.
static REGISTRY: OnceLock<OwnedFd> = OnceLock::new();

/// From now on, this process makes no page of a VM's memory (of what is mapped by
/// [`super::Mapping::of_others`]) by touching it.
///
/// # Errors
/// The kernel cannot, or may not: pages are made and paid for as ever.
pub fn refuse_here() -> io::Result<()> {
    if REGISTRY.get().is_some() {
        return Ok(());
    }
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | USER_MODE_ONLY;
    // SAFETY: takes a number.
    let number = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
    let number = libc::c_int::try_from(number).ok().filter(|number| *number >= 0);
    let number = number.ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just returned this descriptor to us alone.
    let registry = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) };
    let mut wish = Api { api: API, features: MISSING_HUGETLBFS | MISSING_SHMEM | SIGBUS, ioctls: 0 };
    call(&registry, IOCTL_API, &raw mut wish)?;
    let _ = REGISTRY.set(registry);
    Ok(())
}

/// True where this process makes no pages of others' memory.
pub fn are_refused() -> bool {
    REGISTRY.get().is_some()
}

/// Lets accesses to absent pages of one of our mappings fail. Does nothing unless [`refuse_here`] was called.
pub(super) fn refuse(start: usize, size: usize) -> io::Result<()> {
    let Some(registry) = REGISTRY.get() else { return Ok(()) };
    let mut range = Register { start: start as u64, length: size as u64, mode: MODE_MISSING, ioctls: 0 };
    call(registry, IOCTL_REGISTER, &raw mut range)
}

fn call<T>(registry: &OwnedFd, number: u32, argument: *mut T) -> io::Result<()> {
    // SAFETY: `argument` points to the structure that the call takes; what it does is change which faults of
    // ours fail.
    let result = unsafe { libc::ioctl(registry.as_raw_fd(), u64::from(number), argument) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
