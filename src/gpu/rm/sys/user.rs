//! The user of this process: root, then for a while an ordinary user, then that for good.
#![allow(unsafe_code, reason = "changing the ids of a whole process has no safe form")]

use std::io;

/// True for a process that may do everything: channels that it makes could address physical memory.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Another user than root, with a way back: dropping it makes the process root again, so that what root made
/// can be taken away. It holds no right of root's meanwhile, and none at all after
/// [`LoweredPrivileges::for_good`].
#[must_use]
#[derive(Debug)]
pub struct LoweredPrivileges {
    uid: u32,
    for_good: bool,
}

/// Makes this process, which is root's, an ordinary user's: user, group and no further groups. Files that are
/// open stay open.
///
/// # Errors
/// This process may not.
pub fn lower(uid: u32) -> io::Result<LoweredPrivileges> {
    // SAFETY: a null list of no groups is what the call takes for none.
    done(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    set_ids(uid, uid, 0)?;
    Ok(LoweredPrivileges { uid, for_good: false })
}

impl LoweredPrivileges {
    /// Gives the way back up.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn for_good(mut self) -> io::Result<()> {
        set_ids(self.uid, self.uid, self.uid)?;
        self.for_good = true;
        Ok(())
    }
}

impl Drop for LoweredPrivileges {
    fn drop(&mut self) {
        if self.for_good {
            return;
        }
        // The effective user first: it is who may change the others.
        // SAFETY: the call takes numbers only.
        let back = done(unsafe { libc::seteuid(0) }).and_then(|()| set_ids(0, 0, 0));
        if let Err(error) = back {
            log::error!("this process stays user {}: {error}", self.uid);
        }
    }
}

/// Sets real, effective and saved user and group; the group first, while there is the right to.
fn set_ids(real: u32, effective: u32, saved: u32) -> io::Result<()> {
    // SAFETY: the call takes numbers only.
    done(unsafe { libc::setresgid(real, effective, saved) })?;
    // SAFETY: as above.
    done(unsafe { libc::setresuid(real, effective, saved) })
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const NOBODY: u32 = 65_534;

    /// A set of capabilities of this thread, as the kernel shows it.
    fn capabilities(set: &str) -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with(set)).unwrap();
        u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap()
    }

    /// Runs one of the tests below in a separate process: ids belong to whole processes.
    fn passes(name: &str) {
        let test = format!("rm::sys::user::tests::{name}");
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", &test])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "no test of that name ran");
    }

    #[test]
    fn lowered_process_has_no_right_and_may_go_back_or_not() {
        if is_root() {
            passes("child_for_good");
            passes("child_and_back");
        } else {
            assert_eq!(lower(NOBODY).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }

    #[test]
    #[ignore = "a process of its own, started by the test above"]
    fn child_for_good() {
        let lowered = lower(NOBODY).unwrap();
        assert_eq!(
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            (NOBODY, NOBODY)
        );
        assert_eq!(capabilities("CapEff"), 0);

        lowered.for_good().unwrap();

        assert_eq!((capabilities("CapEff"), capabilities("CapPrm")), (0, 0));
        assert!(rustix::process::getgroups().unwrap().is_empty());
        // SAFETY: the call takes a number only.
        assert_eq!(unsafe { libc::seteuid(0) }, -1);
    }

    #[test]
    #[ignore = "a process of its own, started by the test above"]
    fn child_and_back() {
        let before = capabilities("CapEff");

        drop(lower(NOBODY).unwrap());

        assert!(is_root());
        assert_eq!(capabilities("CapEff"), before);
    }
}
