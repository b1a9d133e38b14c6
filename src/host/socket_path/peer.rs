//! The process at the other end of a Unix socket, as the kernel identifies it: the process that connected
//! (or, of a pair, made it), as it was then. Read as plain numbers: a process of another pid namespace has
//! number 0 here.
#![allow(
    unsafe_code,
    reason = "socket options that libraries read into types which cannot be 0, or do not know"
)]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

/// `SO_PEERPIDFD` of `asm-generic/socket.h` (Linux 6.5).
const SO_PEERPIDFD: libc::c_int = 77;

/// A process at the other end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its number; 0 where this process's pid namespace does not have it.
    pub pid: i32,
    /// Id of its user.
    pub uid: u32,
    /// Id of its group.
    pub gid: u32,
}

impl Credentials {
    /// Those of a connected socket's other end.
    ///
    /// # Errors
    /// It is no connected Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        // The kernel leaves these values if it knows of no peer.
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        option(socket.as_fd(), libc::SO_PEERCRED, &mut found)?;
        if found.uid == u32::MAX {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "nobody is connected"));
        }
        Ok(Self { pid: found.pid, uid: found.uid, gid: found.gid })
    }
}

/// A descriptor of the process at the other end, readable once it is gone.
///
/// # Errors
/// The process is gone, or the kernel is too old for a process that has no number here.
pub fn process(socket: impl AsFd, credentials: Credentials) -> io::Result<OwnedFd> {
    let mut raw: RawFd = -1;
    match option(socket.as_fd(), SO_PEERPIDFD, &mut raw) {
        // SAFETY: the kernel has just made this descriptor for us alone.
        Ok(_) if raw >= 0 => return Ok(unsafe { OwnedFd::from_raw_fd(raw) }),
        // A kernel that does not know the option.
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {}
        Ok(_) => return Err(Errno::BADF.into()),
        Err(error) => return Err(error),
    }
    match Pid::from_raw(credentials.pid) {
        Some(pid) => Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?),
        None => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "it is of a PID namespace that this process does not see, which needs Linux 6.5",
        )),
    }
}

/// Reads an option of the socket level into `value`.
fn option<T: Copy>(socket: BorrowedFd<'_>, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let Ok(mut size) = libc::socklen_t::try_from(size_of::<T>()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let to = std::ptr::from_mut(value).cast();
    // SAFETY: `value` is as large as `size` says, any bytes are a value of the two plain types of this file,
    // and both are ours for the call.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, to, &raw mut size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.pid, self.uid)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn process_at_the_other_end_is_alive_as_long_as_it_is() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let credentials = Credentials::of(&ours).unwrap();

        let process = process(&ours, credentials).unwrap();
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&now)), Ok(0));
    }

    #[test]
    fn other_end_of_a_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let found = Credentials::of(&one).unwrap();
        assert_eq!(u32::try_from(found.pid), Ok(std::process::id()));
        assert_eq!(found.uid, rustix::process::geteuid().as_raw());
        assert_eq!(found.gid, rustix::process::getegid().as_raw());
    }

    #[test]
    fn what_is_no_connected_socket_has_no_other_end() {
        assert!(Credentials::of(std::fs::File::open("/dev/null").unwrap()).is_err());
        let listener =
            rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
        assert!(Credentials::of(listener.unwrap()).is_err());
    }
}
