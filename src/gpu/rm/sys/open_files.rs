//! Tells whether files that were given away are still in use: open in a process, mapped, or under way in a
//! socket.
//!
//! An epoll set knows its files without keeping them open: the kernel removes a file when its last descriptor
//! and mapping in any process is gone. The set's entry in `/proc` lists its files. (Locks would not do: a
//! holder of the file can remove its locks.)
#![allow(unsafe_code, reason = "the epoll wrapper takes descriptors by number only")]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};

use crate::rm::kernel::OpenFiles;

/// Bytes of the entry that are read at a time.
const CHUNK: usize = 16 << 10;

/// Files in an epoll set, which is never waited on.
pub struct EpollFiles {
    epoll: Epoll,
    /// The set's entry in `/proc`.
    entry: File,
}

impl std::fmt::Debug for EpollFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EpollFiles").field("epoll", &self.epoll.as_raw_fd()).finish_non_exhaustive()
    }
}

impl EpollFiles {
    /// A set without files. Opens its entry in `/proc`, which a jail may forbid later.
    ///
    /// # Errors
    /// The kernel refuses, or `/proc` is not there.
    pub fn new() -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let entry = File::open(format!("/proc/self/fdinfo/{}", epoll.as_raw_fd()))?;
        let files = Self { epoll, entry };
        files.text()?;
        Ok(files)
    }

    fn text(&self) -> io::Result<String> {
        let mut text = Vec::new();
        let mut chunk = [0; CHUNK];
        loop {
            let at = u64::try_from(text.len()).unwrap_or(u64::MAX);
            let count = self.entry.read_at(&mut chunk, at)?;
            if count == 0 {
                return String::from_utf8(text).map_err(io::Error::other);
            }
            text.extend_from_slice(chunk.get(..count).unwrap_or_default());
        }
    }
}

impl OpenFiles for EpollFiles {
    fn watch(&mut self, file: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        // The set is never waited on, so the events of a file do not matter.
        self.epoll.ctl(ControlOperation::Add, file.as_raw_fd(), EpollEvent::new(EventSet::empty(), key))
    }

    fn is_open(&self, key: u64) -> io::Result<bool> {
        let text = self.text()?;
        let mut keys = text.lines().filter_map(|line| {
            let (_, data) = line.split_once("data:")?;
            u64::from_str_radix(data.split_whitespace().next()?, 16).ok()
        });
        Ok(keys.any(|known| known == key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, OwnedFd};

    use rustix::net::{
        AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
    };

    /// A file that can be polled, as a GPU's node can.
    fn file() -> OwnedFd {
        rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
    }

    #[test]
    fn file_is_open_until_its_last_descriptor_is_gone() {
        let mut files = EpollFiles::new().unwrap();
        assert!(!files.is_open(7).unwrap());
        let (one, other) = (file(), file());
        files.watch(one.as_fd(), 7).unwrap();
        files.watch(other.as_fd(), 0x70).unwrap();
        let second = one.try_clone().unwrap();
        drop(one);
        assert!(files.is_open(7).unwrap());
        drop(second);
        assert!(!files.is_open(7).unwrap());
        assert!(files.is_open(0x70).unwrap());
    }

    /// No process has it open or mapped: it lies in a socket until it is received.
    #[test]
    fn file_under_way_in_a_socket_is_open() {
        let mut files = EpollFiles::new().unwrap();
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        let file = file();
        files.watch(file.as_fd(), 1).unwrap();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let rights = [file.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&rights)));
        rustix::net::sendmsg(&ours, &[io::IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        drop(file);
        assert!(files.is_open(1).unwrap());
        drop((ours, theirs));
        assert!(!files.is_open(1).unwrap());
    }

    #[test]
    fn many_files_are_told_apart() {
        let mut files = EpollFiles::new().unwrap();
        let kept: Vec<OwnedFd> = (0..600).map(|_| file()).collect();
        for (file, key) in kept.iter().zip(0_u64..) {
            files.watch(file.as_fd(), key).unwrap();
        }
        assert!((0..600).all(|key| files.is_open(key).unwrap()));
        assert!(!files.is_open(600).unwrap());
    }

    #[test]
    fn file_that_cannot_be_watched_is_an_error() {
        let mut files = EpollFiles::new().unwrap();
        let memory = gpuvmk_pci::mapping::create_memory_file(c"test", 4096).unwrap();
        assert!(files.watch(memory.as_fd(), 1).is_err());
    }
}
