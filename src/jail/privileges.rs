//! Privileges that a process gives up beside system calls and files: capabilities, limits, inherited
//! descriptors.

#![allow(unsafe_code, reason = "closing descriptors by number and masking signals have no safe form")]

use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// Disables the search for symbols when the heap is full: that opens files, and would hide the cause. Must be
/// called before the process has threads.
pub(super) fn forget_backtraces() {
    for name in ["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"] {
        // SAFETY: there is no other thread that could read the environment meanwhile (the caller's duty).
        unsafe { std::env::remove_var(name) };
    }
}

/// Closes every descriptor above the standard ones but `keep`: a manager may have left some open by mistake.
pub(super) fn close_inherited(keep: Option<RawFd>) -> io::Result<()> {
    let close = |first: u32, last: u32| -> io::Result<()> {
        if first > last {
            return Ok(());
        }
        // SAFETY: nothing in this process has opened a descriptor yet (the caller's duty, at the start of
        // `main`), so nothing loses one that it believes to own.
        let done = unsafe { libc::close_range(first, last, 0) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    match keep.and_then(|fd| u32::try_from(fd).ok()).filter(|fd| *fd > 2) {
        Some(fd) => {
            close(3, fd - 1)?;
            close(fd.saturating_add(1), u32::MAX)
        }
        None => close(3, u32::MAX),
    }
}

/// How long a thread that has ended may still be listed, on a machine that is short of processors.
const GOING: Duration = Duration::from_secs(2);

/// Threads of this process beside the caller. Where they are more than `expected`, they are counted again
/// for a while: the kernel lists a thread for a moment after it was joined.
pub(super) fn other_threads(expected: usize) -> io::Result<usize> {
    let start = Instant::now();
    loop {
        let others = std::fs::read_dir("/proc/self/task")?.count().saturating_sub(1);
        if others <= expected || start.elapsed() > GOING {
            return Ok(others);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Gives every capability up, also what programs that are executed could get.
pub(super) fn drop_capabilities() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    // These need a capability themselves, or are empty in an ordinary user's process.
    let _ = rustix::thread::clear_ambient_capability_set();
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    Ok(())
}

/// Lowers a limit to `most`, for good. One that is lower already stays.
pub(super) fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let now = getrlimit(resource);
    let lower = |limit: Option<u64>| Some(limit.map_or(most, |limit| limit.min(most)));
    setrlimit(resource, Rlimit { current: lower(now.current), maximum: lower(now.maximum) })?;
    Ok(())
}

/// Raises a limit to the most that this process may have.
pub(super) fn raise(resource: Resource) -> io::Result<()> {
    let now = getrlimit(resource);
    setrlimit(resource, Rlimit { current: now.maximum, maximum: now.maximum })?;
    Ok(())
}

/// Takes a limit away, or raises it to the most that this process may have.
pub(super) fn lift(resource: Resource) -> io::Result<()> {
    let unlimited = Rlimit { current: None, maximum: None };
    setrlimit(resource, unlimited).or_else(|_| raise(resource))
}

/// Masks signals on this thread, but for those that its own mistakes raise: handlers then run on the main
/// thread only.
pub(super) fn mask_signals() {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is ours.
    unsafe { libc::sigfillset(&raw mut set) };
    for signal in
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT]
    {
        // SAFETY: as above.
        unsafe { libc::sigdelset(&raw mut set, signal) };
    }
    // SAFETY: `set` is complete; the old mask is not asked for. With these arguments the call cannot fail.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
}
