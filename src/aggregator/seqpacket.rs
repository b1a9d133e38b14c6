//! Datagrams with files over a SOCK_SEQPACKET socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, RecvMsg, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Most files in one datagram (the kernel's limit is 253).
pub const MAX_FILES: usize = 250;

/// A received datagram.
#[derive(Debug)]
pub enum Received {
    /// A datagram of so many bytes.
    Datagram(usize),
    /// The other side is gone.
    End,
    /// Nothing is there (non-blocking receives only).
    Nothing,
}

/// The datagram at the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// A datagram, with files or without; no bytes are the other side's end.
    Datagram {
        /// True if files come with it.
        files: bool,
    },
    /// The queue is empty.
    Nothing,
}

/// Looks whether files come with the next datagram, and takes neither.
///
/// # Errors
/// The system call failed.
pub fn peek(socket: impl AsFd) -> io::Result<Next> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let mut control = RecvAncillaryBuffer::default();
    // What does not fit (nothing does) is said and dropped; the datagram itself keeps it.
    Ok(match next_message(socket.as_fd(), &mut [0], &mut control, flags)? {
        Some(message) => Next::Datagram { files: message.flags.contains(ReturnFlags::CTRUNC) },
        None => Next::Nothing,
    })
}

/// How a datagram's file was taken.
#[derive(Debug)]
pub enum Attached {
    /// No file came.
    None,
    /// One file came.
    One(OwnedFd),
    /// More came; they are closed.
    More,
    /// One or more came, and this process has no descriptors left (`ulimit -n`).
    NoRoom,
}

/// Receives one datagram into `bytes`, and its file, if it is one. Does not wait for a datagram. But closing
/// the rest of the files may take as long as the sender arranged.
///
/// # Errors
/// The datagram did not fit, or the system call failed.
pub fn receive_one(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(Received, Attached)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let Some(message) = next_message(socket.as_fd(), bytes, &mut control, flags)? else {
        return Ok((Received::Nothing, Attached::None));
    };
    let mut files = control.drain().flat_map(|received| match received {
        RecvAncillaryMessage::ScmRights(rights) => rights.collect(),
        _ => Vec::new(),
    });
    let attached = match (files.next(), files.next(), message.flags.contains(ReturnFlags::CTRUNC)) {
        (None, _, false) => Attached::None,
        (None, _, true) => Attached::NoRoom,
        (Some(file), None, false) => Attached::One(file),
        (Some(_), ..) => Attached::More,
    };
    if message.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "message is too long"));
    }
    Ok((if message.bytes == 0 { Received::End } else { Received::Datagram(message.bytes) }, attached))
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

/// One `recvmsg`; `None` when nothing is there. A peer that hangs up without having read everything resets
/// the connection: Linux tells that once, before what the peer had sent, so the second try has its last words
/// or the end.
fn next_message(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    control: &mut RecvAncillaryBuffer<'_>,
    flags: RecvFlags,
) -> io::Result<Option<RecvMsg>> {
    let mut receive = || rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], control, flags);
    let received = match receive() {
        Err(rustix::io::Errno::CONNRESET) => receive(),
        other => other,
    };
    match received {
        Ok(message) => Ok(Some(message)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Receives one datagram into `bytes`, and its files (closed on exec) into `files`.
///
/// # Errors
/// The datagram or its files did not fit (files that came are closed), or the system call failed.
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
    let Some(message) = next_message(socket.as_fd(), bytes, &mut control, flags)? else {
        return Ok(Received::Nothing);
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

    /// The other side answered and hung up before it read what was sent to it.
    #[test]
    fn last_words_are_heard_of_a_peer_that_read_nothing() {
        let (a, b) = pair();
        send(&a, b"a request", &[], true).unwrap();
        send(&b, b"refused", &[], true).unwrap();
        drop(b);

        let mut bytes = [0; 16];
        assert!(matches!(receive(&a, &mut bytes, &mut Vec::new(), true).unwrap(), Received::Datagram(7)));
        assert!(matches!(receive(&a, &mut bytes, &mut Vec::new(), true).unwrap(), Received::End));

        let (a, b) = pair();
        send(&a, b"a request", &[], true).unwrap();
        send(&b, b"refused", &[b.as_fd()], true).unwrap();
        drop(b);
        assert_eq!(peek(&a).unwrap(), Next::Datagram { files: true });
        assert!(matches!(receive_one(&a, &mut bytes).unwrap().0, Received::Datagram(7)));
        assert!(matches!(receive_one(&a, &mut bytes).unwrap().0, Received::End));
    }

    #[test]
    fn look_at_the_next_datagram_tells_of_its_files_and_takes_nothing() {
        let (a, b) = pair();
        assert_eq!(peek(&b).unwrap(), Next::Nothing);
        send(&a, b"with", &[a.as_fd(), a.as_fd()], true).unwrap();
        send(&a, b"without", &[], true).unwrap();

        for _ in 0..3 {
            assert_eq!(peek(&b).unwrap(), Next::Datagram { files: true });
        }
        let (mut bytes, mut files) = ([0; 16], Vec::new());
        assert!(matches!(receive(&b, &mut bytes, &mut files, true).unwrap(), Received::Datagram(4)));
        assert_eq!(files.len(), 2);
        assert_eq!(peek(&b).unwrap(), Next::Datagram { files: false });
        drop((a, files));
        receive(&b, &mut bytes, &mut Vec::new(), true).unwrap();
        assert_eq!(peek(&b).unwrap(), Next::Datagram { files: false }, "the end");
    }

    #[test]
    fn one_file_is_taken_and_of_several_none() {
        let (a, b) = pair();
        let mut bytes = [0; 16];
        for count in 0..4 {
            send(&a, b"x", &vec![a.as_fd(); count], true).unwrap();
            let (received, attached) = receive_one(&b, &mut bytes).unwrap();
            assert!(matches!(received, Received::Datagram(1)));
            match count {
                0 => assert!(matches!(attached, Attached::None), "{attached:?}"),
                1 => assert!(matches!(attached, Attached::One(_)), "{attached:?}"),
                _ => assert!(matches!(attached, Attached::More), "{count}: {attached:?}"),
            }
        }
        assert!(matches!(receive_one(&b, &mut bytes).unwrap(), (Received::Nothing, Attached::None)));
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
