//! Who this process is to the kernel.
#![allow(unsafe_code, reason = "changing the ids of a whole process has no safe form")]

use std::io;

/// True for a process that may do everything: channels that it makes could address physical memory.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Becomes an ordinary user for good: user, group and no further groups. Files that are open stay open.
///
/// # Errors
/// This process may not.
pub fn become_user(uid: u32) -> io::Result<()> {
    let done = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: a null list of no groups is what the call takes for none.
    done(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: the call takes numbers only.
    done(unsafe { libc::setresgid(uid, uid, uid) })?;
    // SAFETY: as above.
    done(unsafe { libc::setresuid(uid, uid, uid) })
}
