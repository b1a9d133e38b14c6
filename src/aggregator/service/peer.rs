//! The process at the other end of a connection, as the kernel identifies it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};

use gpuvmk_host::socket_path::peer::{self, Credentials};

/// The process at the other end.
#[derive(Debug)]
pub(super) struct Peer {
    /// 0 where it has no number here.
    pub pid: i32,
    pub uid: u32,
    gid: u32,
    process: Process,
}

#[derive(Debug)]
enum Process {
    /// This process.
    Own,
    /// Readable once it is gone.
    Other(OwnedFd),
    /// Its end would not be noticed.
    Unwatched(io::Error),
}

impl Peer {
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let credentials = Credentials::of(socket)?;
        let own = i32::try_from(std::process::id()) == Ok(credentials.pid);
        let process = if own {
            Process::Own
        } else {
            peer::process(socket, credentials).map_or_else(Process::Unwatched, Process::Other)
        };
        Ok(Self { pid: credentials.pid, uid: credentials.uid, gid: credentials.gid, process })
    }

    /// The same as if it were this user's.
    #[cfg(test)]
    pub fn of_user(self, uid: u32) -> Self {
        Self { uid, ..self }
    }

    /// Its user and process ids, from the kernel.
    pub const fn credentials(&self) -> Credentials {
        Credentials { pid: self.pid, uid: self.uid, gid: self.gid }
    }

    /// True unless it is this very process.
    pub const fn is_other(&self) -> bool {
        !matches!(self.process, Process::Own)
    }

    /// Why it cannot be a tenant; `None` if it can. A tenant's memory is reused once its process is gone, so
    /// its end must be noticed.
    pub fn unwatched(&self) -> Option<String> {
        match &self.process {
            Process::Own | Process::Other(_) => None,
            Process::Unwatched(error) if self.pid == 0 => Some(format!(
                "the process that connected is of another PID namespace, and cannot be watched: {error}"
            )),
            Process::Unwatched(error) => Some(format!("process {} cannot be watched: {error}", self.pid)),
        }
    }

    /// The descriptor to wait on until the process is gone; `None` when it is gone, or is this one.
    pub fn living_process(self) -> Option<OwnedFd> {
        let Process::Other(process) = self.process else { return None };
        let mut fds = [PollFd::new(&process, PollFlags::IN)];
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut fds, Some(&now)) {
            Ok(1..) => None,
            Ok(0) | Err(_) => Some(process),
        }
    }
}
