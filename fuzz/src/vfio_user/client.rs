//! A client that sends all it has and reads all that comes, and never blocks for long.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use gpuvmk::frontend::vfio_user::wire::{HEADER_SIZE, Header, flags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg, shutdown};
use zerocopy::FromBytes;

use super::message::Piece;

/// Most descriptors of a piece: more than the server takes.
pub(super) const MAX_FILES: usize = 20;

/// Sends the pieces, one by one, and returns all that came back. Closes the socket at the end.
pub(super) fn send(socket: UnixStream, pieces: &[Piece]) -> Vec<u8> {
    let replies = exchange(&socket, pieces);
    drop(socket);
    replies
}

fn exchange(socket: &UnixStream, pieces: &[Piece]) -> Vec<u8> {
    socket.set_nonblocking(true).expect("a socket of ours");
    let mut replies = Vec::new();
    for piece in pieces {
        let mut rest = piece.bytes.as_slice();
        let mut files = piece.files.as_slice();
        while !rest.is_empty() {
            match send_some(socket, rest, files) {
                Ok(sent) => {
                    rest = rest.get(sent..).unwrap_or_default();
                    files = &[];
                }
                Err(rustix::io::Errno::AGAIN) => {
                    wait(socket, PollFlags::IN | PollFlags::OUT);
                    receive(socket, &mut replies);
                }
                // The server has ended the session.
                Err(_) => return drain(socket, replies),
            }
        }
    }
    // The server may be gone already.
    let _ = shutdown(socket, Shutdown::Write);
    drain(socket, replies)
}

fn send_some(socket: &UnixStream, bytes: &[u8], files: &[std::os::fd::OwnedFd]) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = files.iter().take(MAX_FILES).map(AsFd::as_fd).collect();
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)), "room for the descriptors");
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
}

fn wait(socket: &UnixStream, flags: PollFlags) {
    // Interrupted or not: whoever calls looks again.
    let _ = poll(&mut [PollFd::new(socket, flags)], None);
}

/// Takes what is there. False at the end.
fn receive(socket: &UnixStream, replies: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 0x4000];
    loop {
        match (&*socket).read(&mut buffer) {
            Ok(0) => return false,
            Ok(size) => replies.extend_from_slice(buffer.get(..size).unwrap_or_default()),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
}

fn drain(socket: &UnixStream, mut replies: Vec<u8>) -> Vec<u8> {
    while receive(socket, &mut replies) {
        wait(socket, PollFlags::IN);
    }
    replies
}

/// Every reply is whole; an error is a header with an errno and nothing else.
pub(super) fn check(replies: &[u8]) {
    let mut rest = replies;
    while !rest.is_empty() {
        let (header, _) = Header::read_from_prefix(rest).expect("a whole header");
        assert_eq!(header.flags & flags::TYPE_MASK, flags::REPLY, "something that is no reply");
        let size = usize::try_from(header.size).expect("64 bits");
        assert!(header.size >= HEADER_SIZE && size <= rest.len(), "a reply of a wrong size");
        if header.flags & flags::ERROR != 0 {
            assert!(header.size == HEADER_SIZE && header.error != 0, "an error that QEMU takes for success");
        }
        rest = rest.get(size..).unwrap_or_default();
    }
}
