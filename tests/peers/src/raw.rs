//! A connection to the aggregator, datagram by datagram, and the shared memory that comes with it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gpuvmk::aggregator::protocol::{
    Hello, PROTOCOL_VERSION, RefusalKind, Reply, Request, TenantLimits, Welcome,
};
use gpuvmk::aggregator::wire;
use gpuvmk::chip::Chip;
use gpuvmk::pci::mapping::{Access, Mapping};
use gpuvmk::scheduler::share::Share;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg,
    socket_with,
};

/// How long an answer may take: see [`client`](crate::client).
const PATIENCE: Duration = Duration::from_secs(30);

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    Welcome(Box<Welcome>),
    Refused(RefusalKind),
    Closed,
    /// Nothing within [`PATIENCE`].
    Silence,
}

impl Answer {
    /// For counting.
    pub fn name(&self) -> String {
        match self {
            Self::Done => "done".to_owned(),
            Self::Welcome(_) => "welcome".to_owned(),
            Self::Refused(kind) => format!("refused ({kind:?})"),
            Self::Closed => "closed".to_owned(),
            Self::Silence => "silence".to_owned(),
        }
    }

    /// True for a refusal and for a closed connection.
    pub fn refused(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Closed)
    }
}

/// An honest first request.
pub fn hello(name: &str) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        name: name.to_owned(),
        chip: Chip::GF100.into(),
        vram: 64 << 20,
        channels: 8,
        share: Share::default(),
        limits: TenantLimits::default(),
    }
}

/// A request's bytes.
pub fn encoded(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::encode_request(request, &mut bytes);
    bytes
}

/// How long a hello is tried.
const JOINING: Duration = Duration::from_secs(10);

/// A connection.
#[derive(Debug)]
pub struct Raw {
    pub socket: OwnedFd,
    /// What came with the welcome: board, bell, ring, pipe, window.
    pub files: Vec<OwnedFd>,
}

impl Raw {
    /// Connects, no more. An error where the queue is full.
    pub fn connect(path: &Path) -> Result<Self> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?).context("The aggregator's socket cannot be reached")?;
        Ok(Self { socket, files: Vec::new() })
    }

    /// A tenant. A connection that is closed is tried again for a while, as back ends do: a process has few
    /// places before its hello, and those of connections that have just ended are taken for a moment. Who
    /// waits for memory or a name is answered late.
    pub fn joined(path: &Path, name: &str) -> Result<Self> {
        let start = Instant::now();
        loop {
            let mut raw = Self::connect(path)?;
            let mut answer = raw.ask(&Request::Hello(hello(name)))?;
            while answer == Answer::Silence && start.elapsed() < JOINING {
                answer = raw.receive_within(JOINING)?;
            }
            match answer {
                Answer::Welcome(_) => return Ok(raw),
                Answer::Closed if start.elapsed() < JOINING => std::thread::sleep(Duration::from_millis(20)),
                other => bail!("hello was answered with '{}'", other.name()),
            }
        }
    }

    /// Memory that came with the welcome: the board (0), the event ring (2).
    pub fn shared(&self, index: usize) -> Result<Mapping> {
        let file = self.files.get(index).context("a file of the welcome")?;
        let size = u64::try_from(rustix::fs::fstat(file)?.st_size)?;
        Ok(Mapping::of_file(file.as_fd(), 0, size, Access::ReadWrite)?)
    }

    /// Sends a datagram. False when the other side has closed; `None` when it does not take it without
    /// waiting.
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Option<bool>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ensure!(control.push(SendAncillaryMessage::ScmRights(fds)), "too many descriptors");
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => Ok(Some(true)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Ok(Some(false)),
            Err(errno) => Err(errno).context("The aggregator does not take what it is sent"),
        }
    }

    /// The next answer, waiting at most `patience`.
    pub fn receive_within(&mut self, patience: Duration) -> Result<Answer> {
        let timeout =
            Timespec { tv_sec: i64::try_from(patience.as_secs())?, tv_nsec: patience.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        if poll(&mut fds, Some(&timeout))? == 0 {
            return Ok(Answer::Silence);
        }
        let mut bytes = vec![0; wire::MAX_REPLY_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = match recvmsg(
            &self.socket,
            &mut [IoSliceMut::new(&mut bytes)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        ) {
            Ok(got) => got,
            Err(Errno::CONNRESET) => return Ok(Answer::Closed),
            Err(errno) => return Err(errno).context("no answer"),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        if got.bytes == 0 {
            return Ok(Answer::Closed);
        }
        Ok(match wire::decode_reply(bytes.get(..got.bytes).unwrap_or_default())? {
            Reply::Done => Answer::Done,
            Reply::Welcome(welcome) => Answer::Welcome(Box::new(welcome)),
            Reply::Refused { kind, .. } => Answer::Refused(kind),
        })
    }

    /// The files of a datagram of any content.
    pub fn take_files(&mut self) -> Result<Vec<OwnedFd>> {
        let mut files = Vec::new();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = [0; 64];
        recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights);
            }
        }
        Ok(files)
    }

    /// Sends bytes and waits for what comes back.
    pub fn ask_bytes(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Answer> {
        match self.send(bytes, fds)? {
            Some(true) => self.receive_within(PATIENCE),
            Some(false) => Ok(Answer::Closed),
            None => bail!("The aggregator's socket is full"),
        }
    }

    /// Asks, and waits for the answer.
    pub fn ask(&mut self, request: &Request) -> Result<Answer> {
        self.ask_bytes(&encoded(request), &[])
    }
}
