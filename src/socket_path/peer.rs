//! Who is at the other end of a Unix socket, by the kernel's word: the process that connected (or, of a pair, made it), as it
//! was then. Read as plain numbers: a process of another pid namespace has number 0 here.
#![allow(unsafe_code, reason = "a socket option that libraries read into types which cannot be 0")]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A process at the other end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Its number; 0 where this process's pid namespace does not have it.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Credentials {
    /// Those of a connected socket's other end.
    ///
    /// # Errors
    /// It is no connected Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        // What the kernel leaves where it knows of nobody.
        let mut found = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
        let Ok(mut size) = libc::socklen_t::try_from(size_of::<libc::ucred>()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // SAFETY: `found` is as large as `size` says, plain integers, and both are ours for the call.
        let result = unsafe {
            libc::getsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut size,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        if found.uid == u32::MAX {
            return Err(io::Error::new(io::ErrorKind::NotConnected, "nobody is connected"));
        }
        Ok(Self { pid: found.pid, uid: found.uid, gid: found.gid })
    }
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of user {}", self.pid, self.uid)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

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
