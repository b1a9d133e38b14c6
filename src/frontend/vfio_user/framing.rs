//! Messages out of a byte stream, and replies into it.
//!
//! Bytes are read ahead into one fixed buffer, so that a burst of posted writes costs one system call.
//! Descriptors belong to the message that holds the last byte of the read that brought them: the kernel never
//! reads past bytes that carry descriptors.

use super::poll::{self, Poll};
use super::sys;
use super::wire::{self, Header, MAX_DATA, MAX_FDS};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use zerocopy::{FromBytes, Immutable, IntoBytes};

const HEADER: usize = size_of::<Header>();

/// Bytes of the longest message: a write of [`MAX_DATA`] bytes.
pub const MAX_MESSAGE: usize = HEADER + size_of::<wire::RegionAccess>() + MAX_DATA as usize;

/// Why no further message can be read.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream ends in the middle of a message.
    #[error("The client closed the connection in the middle of a message")]
    Truncated,
    /// A size that no message can have; where the next one begins is unknown.
    #[error("A message says that it has {} bytes; {HEADER} to {MAX_MESSAGE} are possible", .0.size)]
    Size(Header),
    /// The socket failed.
    #[error("Reading from the client failed")]
    Socket(#[source] io::Error),
}

/// One message, whole but unchecked.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub(super) header: Header,
    pub(super) body: &'a [u8],
    pub(super) fds: Vec<OwnedFd>,
    /// More descriptors came than a message may bring; some or all are closed.
    pub(super) descriptors_lost: bool,
}

/// Descriptors that one read brought.
#[derive(Debug)]
struct Batch {
    /// Position in the stream behind the last byte of that read.
    position: u64,
    fds: Vec<OwnedFd>,
    lost: bool,
}

/// The receiving side of a connection.
#[derive(Debug)]
pub(super) struct Inbox {
    buffer: Box<[u8]>,
    /// Bytes `start..end` have been received and not been handed out.
    start: usize,
    end: usize,
    /// Position in the stream of `end`.
    position: u64,
    batches: Vec<Batch>,
    poll: Poll,
}

impl Inbox {
    /// Empty; the next message is polled for by `poll`.
    pub(super) fn new(poll: Poll) -> Self {
        // Twice the longest message would save moves; moves are rare, and this is bounded memory per VM.
        let buffer = vec![0; MAX_MESSAGE].into_boxed_slice();
        Self { buffer, start: 0, end: 0, position: 0, batches: Vec::new(), poll }
    }

    /// The next message; `None` when the client has closed the connection between messages.
    pub(super) fn next(&mut self, socket: &UnixStream) -> Result<Option<Message<'_>>, FrameError> {
        if !self.fill(socket, HEADER)? {
            return Ok(None);
        }
        let header = self
            .buffer
            .get(self.start..self.end)
            .and_then(|bytes| Header::read_from_prefix(bytes).ok())
            .map(|(header, _)| header)
            .ok_or(FrameError::Truncated)?;
        let size = usize::try_from(header.size).unwrap_or(usize::MAX);
        if !(HEADER..=MAX_MESSAGE).contains(&size) {
            return Err(FrameError::Size(header));
        }
        if !self.fill(socket, size)? {
            return Err(FrameError::Truncated);
        }
        let (fds, descriptors_lost) = self.take_descriptors(size);
        let body = self.start + HEADER..self.start + size;
        self.start += size;
        let body = self.buffer.get(body).ok_or(FrameError::Truncated)?;
        self.poll.note_kind(poll::kind(header.command, body));
        Ok(Some(Message { header, body, fds, descriptors_lost }))
    }

    /// Reads until `needed` bytes are there; false when the stream ended before the first of them.
    fn fill(&mut self, socket: &UnixStream, needed: usize) -> Result<bool, FrameError> {
        while self.end - self.start < needed {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.buffer.len() - self.start < needed {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            let mut fds = Vec::new();
            let free = self.buffer.get_mut(self.end..).unwrap_or_default();
            let received = self.poll.receive(socket, free, &mut fds).map_err(FrameError::Socket)?;
            if received.bytes == 0 {
                return if self.start == self.end { Ok(false) } else { Err(FrameError::Truncated) };
            }
            self.end += received.bytes;
            self.position += received.bytes as u64;
            if !fds.is_empty() || received.descriptors_lost {
                self.keep(fds, received.descriptors_lost);
            }
        }
        Ok(true)
    }

    /// Keeps descriptors until their message is complete. A client that trickles bytes, each with
    /// descriptors, cannot make us hold more than two messages may bring.
    fn keep(&mut self, mut fds: Vec<OwnedFd>, mut lost: bool) {
        let held: usize = self.batches.iter().map(|batch| batch.fds.len()).sum();
        if held + fds.len() > 2 * MAX_FDS {
            fds.clear();
            lost = true;
        }
        match self.batches.last_mut() {
            // This entry only says that some were lost: one is enough for the present message.
            Some(last) if fds.is_empty() && last.fds.is_empty() => last.position = self.position,
            _ => self.batches.push(Batch { position: self.position, fds, lost }),
        }
    }

    /// The descriptors of the message that begins at `start` and has `size` bytes.
    fn take_descriptors(&mut self, size: usize) -> (Vec<OwnedFd>, bool) {
        if self.batches.is_empty() {
            return (Vec::new(), false);
        }
        let behind = self.position - (self.end - self.start) as u64 + size as u64;
        let mut fds = Vec::new();
        let mut lost = false;
        self.batches.retain_mut(|batch| {
            let later = batch.position > behind;
            if !later {
                fds.append(&mut batch.fds);
                lost |= batch.lost;
            }
            later
        });
        if fds.len() > MAX_FDS {
            fds.clear();
            lost = true;
        }
        (fds, lost)
    }
}

/// The sending side of a connection: one reply at a time, put together in place.
#[derive(Debug)]
pub(super) struct Outbox {
    buffer: Box<[u8]>,
    end: usize,
    file: Option<OwnedFd>,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { buffer: vec![0; MAX_MESSAGE].into_boxed_slice(), end: HEADER, file: None }
    }

    /// Begins a reply.
    pub(super) fn clear(&mut self) {
        self.end = HEADER;
        self.file = None;
    }

    /// The bytes that were put into it.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get(HEADER..self.end).unwrap_or_default()
    }

    /// Sends a descriptor along with the reply.
    pub(super) fn attach(&mut self, file: OwnedFd) {
        self.file = Some(file);
    }

    /// Adds a fixed part. Bytes beyond the longest message are cut, which no command here can cause.
    pub(super) fn put<T: IntoBytes + Immutable>(&mut self, part: &T) {
        self.put_bytes(part.as_bytes());
    }

    /// Appends bytes to the message.
    pub(super) fn put_bytes(&mut self, bytes: &[u8]) {
        let place = self.extend(bytes.len());
        for (place, byte) in place.iter_mut().zip(bytes) {
            *place = *byte;
        }
    }

    /// Adds `size` bytes to be filled by the caller, who gets fewer only beyond the longest message.
    pub(super) fn extend(&mut self, size: usize) -> &mut [u8] {
        let start = self.end;
        self.end = start.saturating_add(size).min(self.buffer.len());
        self.buffer.get_mut(start..self.end).unwrap_or_default()
    }

    /// Sends the reply to `request`.
    pub(super) fn reply(&mut self, socket: &UnixStream, request: &Header) -> io::Result<()> {
        let size = u32::try_from(self.end).map_err(io::Error::other)?;
        let header = Header {
            message_id: request.message_id,
            command: request.command,
            size,
            flags: wire::flags::REPLY,
            error: 0,
        };
        let whole = self.buffer.get_mut(..self.end).unwrap_or_default();
        for (place, byte) in whole.iter_mut().zip(header.as_bytes()) {
            *place = *byte;
        }
        let sent = match self.file.take() {
            Some(file) => send_with(socket, whole, &file)?,
            None => 0,
        };
        sys::send_all(socket, whole.get(sent..).unwrap_or_default())
    }

    /// Sends an error reply: nothing but a header.
    pub(super) fn refuse(socket: &UnixStream, request: &Header, errno: i32) -> io::Result<()> {
        let header = Header {
            message_id: request.message_id,
            command: request.command,
            size: wire::HEADER_SIZE,
            flags: wire::flags::REPLY | wire::flags::ERROR,
            error: errno.unsigned_abs(),
        };
        sys::send_all(socket, header.as_bytes())
    }
}

/// Sends the beginning of `data` together with a descriptor; returns how many bytes went.
fn send_with(socket: &UnixStream, data: &[u8], file: &OwnedFd) -> io::Result<usize> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = [file.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [io::IoSlice::new(data)];
    loop {
        match sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}
