//! Datagrams with files over a SOCK_SEQPACKET socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Most files in one datagram (the kernel's limit is 253).
pub const MAX_FILES: usize = 250;

/// What was received.
#[derive(Debug)]
pub enum Received {
    /// A datagram of so many bytes.
    Datagram(usize),
    /// The other side is gone.
    End,
    /// Nothing is there (non-blocking receives only).
    Nothing,
}

/// Sends one datagram with files. With `nonblocking`, a receiver that does not read is an error, not a wait.
///
/// # Errors
/// The other side is gone, or does not read.
pub fn send(socket: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>], nonblocking: bool) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many files for one message"));
    }
    let mut flags = SendFlags::NOSIGNAL;
    if nonblocking {
        flags |= SendFlags::DONTWAIT;
    }
    let sent = loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one datagram into `bytes`, and its files (closed on exec) into `files`.
///
/// # Errors
/// The datagram or its files did not fit (what came of the files is closed), or the system call failed.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
    nonblocking: bool,
) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    if nonblocking {
        flags |= RecvFlags::DONTWAIT;
    }
    let message = match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(bytes)], &mut control, flags) {
        Ok(message) => message,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
        Err(rustix::io::Errno::CONNRESET) => return Ok(Received::End),
        Err(errno) => return Err(errno.into()),
    };
    for received in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = received {
            files.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        files.clear();
        let text = format!(
            "not all files of a message could be taken: more than {MAX_FILES}, or Too many open files here (`ulimit -n`)"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    if message.flags.contains(ReturnFlags::TRUNC) {
        files.clear();
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message is too long"));
    }
    // No message of ours is empty: no bytes are the end.
    Ok(if message.bytes == 0 { Received::End } else { Received::Datagram(message.bytes) })
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn datagram_and_files_arrive_together() {
        let (a, b) = pair();
        let file = rustix::fs::memfd_create("x", rustix::fs::MemfdFlags::empty()).unwrap();
        send(&a, b"hello", &[file.as_fd(), file.as_fd()], true).unwrap();

        let (mut bytes, mut files) = ([0; 16], Vec::new());
        let got = receive(&b, &mut bytes, &mut files, true).unwrap();

        assert!(matches!(got, Received::Datagram(5)));
        assert_eq!(files.len(), 2);
        assert!(matches!(receive(&b, &mut bytes, &mut files, true).unwrap(), Received::Nothing));
    }

    #[test]
    fn oversized_datagram_is_an_error_and_its_files_are_closed() {
        let (a, b) = pair();
        send(&a, &[7; 32], &[a.as_fd()], true).unwrap();

        let mut files = Vec::new();
        let got = receive(&b, &mut [0; 16], &mut files, true);

        assert!(got.is_err());
        assert!(files.is_empty());
    }

    #[test]
    fn end_is_noticed_and_a_full_socket_does_not_block() {
        let (a, b) = pair();
        let full = (0..10_000).find_map(|_| send(&a, &[0; 4096], &[], true).err()).unwrap();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);

        drop(b);
        assert!(send(&a, b"x", &[], true).is_err());
    }
}
