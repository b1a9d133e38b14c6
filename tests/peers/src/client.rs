//! A vfio-user client that sends whatever an attack wants, and takes every answer as it comes.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gpuvmk::frontend::vfio_user::wire::{self, Header, command, flags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use zerocopy::{FromBytes, IntoBytes};

/// What QEMU proposes.
pub const PROPOSAL: &[u8] = b"{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576,\
\"pgsizes\":4096,\"max_dma_maps\":65535,\"write_multiple\":true}}\0";
/// After this, no answer comes. It is long, since an attacker has the lowest share of a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A reply with its data.
    Done(Vec<u8>),
    /// An error reply.
    Errno(u32),
    /// The connection was closed.
    Closed,
}

impl Answer {
    /// For counting.
    pub fn name(&self) -> String {
        match self {
            Self::Done(_) => "done".to_owned(),
            Self::Errno(errno) => rustix::io::Errno::from_raw_os_error(i32::try_from(*errno).unwrap_or(0))
                .to_string()
                .split(" (os")
                .next()
                .unwrap_or("error")
                .to_owned(),
            Self::Closed => "closed".to_owned(),
        }
    }

    /// True for anything but success.
    pub fn refused(&self) -> bool {
        !matches!(self, Self::Done(_))
    }
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    pub socket: UnixStream,
    next_id: u16,
}

impl Client {
    /// Connects, no more.
    pub fn connect(path: &Path) -> Result<Self> {
        let socket = UnixStream::connect(path).context("The device backend's socket cannot be reached")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket, next_id: 0x4711 })
    }

    /// Connects as QEMU does.
    pub fn negotiated(path: &Path) -> Result<Self> {
        let mut client = Self::connect(path)?;
        match client.ask(command::VERSION, &version(PROPOSAL))? {
            Answer::Done(_) => Ok(client),
            other => bail!("The negotiation was answered with '{}'", other.name()),
        }
    }

    /// A header for a message of ours.
    pub fn header(&mut self, command: u16, body: usize) -> Header {
        self.next_id = self.next_id.wrapping_add(1);
        let size = u32::try_from(body.saturating_add(16)).unwrap_or(u32::MAX);
        Header { message_id: self.next_id, command, size, flags: flags::COMMAND, error: 0 }
    }

    /// Sends bytes. False when the other side has closed the connection.
    pub fn send_raw(&mut self, bytes: &[u8]) -> Result<bool> {
        match self.socket.write_all(bytes) {
            Ok(()) => Ok(true),
            Err(error) if is_closed(&error) => Ok(false),
            Err(error) => Err(error).context("The device backend does not take what it is sent"),
        }
    }

    /// Sends bytes with descriptors.
    pub fn send_with(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<bool> {
        if fds.is_empty() {
            return self.send_raw(bytes);
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        ensure!(control.push(SendAncillaryMessage::ScmRights(fds)), "too many descriptors for one message");
        let parts = [IoSlice::new(bytes)];
        match sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL) {
            Ok(sent) => self.send_raw(bytes.get(sent..).unwrap_or_default()),
            Err(errno) if is_closed(&errno.into()) => Ok(false),
            Err(errno) => Err(errno).context("The device backend does not take what it is sent"),
        }
    }

    /// Sends a command and waits for what comes back.
    pub fn ask(&mut self, command: u16, body: &[u8]) -> Result<Answer> {
        self.ask_with(command, body, &[])
    }

    /// The same with descriptors.
    pub fn ask_with(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> Result<Answer> {
        let header = self.header(command, body.len());
        let bytes = [header.as_bytes(), body].concat();
        if !self.send_with(&bytes, fds)? {
            return Ok(Answer::Closed);
        }
        self.receive().with_context(|| command::name(command))
    }

    /// Waits for a reply. Silence is an error.
    pub fn receive(&mut self) -> Result<Answer> {
        let mut bytes = [0; 16];
        match self.socket.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if is_closed(&error) => return Ok(Answer::Closed),
            Err(error) => return Err(error).context("no answer"),
        }
        let Ok(header) = Header::read_from_bytes(&bytes) else { bail!("a header has 16 bytes") };
        ensure!(header.flags & flags::TYPE_MASK == flags::REPLY, "a message that is no reply");
        let size = usize::try_from(header.size)?.checked_sub(16).context("a reply shorter than a header")?;
        ensure!(size <= 2 << 20, "a reply of {size} bytes");
        let mut body = vec![0; size];
        self.socket.read_exact(&mut body).context("a reply is cut")?;
        if header.flags & flags::ERROR == 0 {
            return Ok(Answer::Done(body));
        }
        ensure!(header.error != 0, "an error reply without an error");
        ensure!(body.is_empty(), "an error reply with data");
        Ok(Answer::Errno(header.error))
    }

    /// An error unless an ordinary command gets its ordinary reply: the stream is in step.
    pub fn in_step(&mut self) -> Result<()> {
        let body = wire::DeviceInfo { argsz: 16, flags: 0, num_regions: 0, num_irqs: 0 };
        match self.ask(command::DEVICE_GET_INFO, body.as_bytes())? {
            Answer::Done(reply) => {
                let info = wire::DeviceInfo::read_from_bytes(&reply);
                ensure!(info.is_ok_and(|info| info.num_regions == wire::region::COUNT), "a wrong reply");
                Ok(())
            }
            other => bail!("The device backend answers '{}' to an ordinary command", other.name()),
        }
    }

    /// Reads a register of BAR0, or a word of another BAR.
    pub fn load(&mut self, region: u32, offset: u64) -> Result<Option<u32>> {
        let access = wire::RegionAccess { offset, region, count: 4 };
        match self.ask(command::REGION_READ, access.as_bytes())? {
            Answer::Done(reply) => {
                let bytes = reply.get(16..20).context("a read without data")?;
                Ok(Some(u32::from_le_bytes(bytes.try_into()?)))
            }
            _ => Ok(None),
        }
    }

    /// Writes one.
    pub fn store(&mut self, region: u32, offset: u64, word: u32) -> Result<()> {
        let answer = self.ask(command::REGION_WRITE, &write_body(region, offset, &word.to_le_bytes()))?;
        ensure!(!answer.refused(), "a write to {offset:#x} was answered with '{}'", answer.name());
        Ok(())
    }

    /// Announces memory at a guest-physical address.
    pub fn map(&mut self, file: &OwnedFd, offset: u64, address: u64, size: u64) -> Result<Answer> {
        self.ask_with(command::DMA_MAP, map_body(3, offset, address, size).as_bytes(), &[file.as_fd()])
    }

    /// Takes memory away.
    pub fn unmap(&mut self, address: u64, size: u64) -> Result<Answer> {
        let body = wire::DmaUnmap { argsz: 24, flags: 0, address, size };
        self.ask(command::DMA_UNMAP, body.as_bytes())
    }
}

/// True for the errors of a connection that the other side has closed.
fn is_closed(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof)
}

/// The body of VERSION.
pub fn version(data: &[u8]) -> Vec<u8> {
    [wire::Version { major: 0, minor: 0 }.as_bytes(), data].concat()
}

/// The body of REGION_WRITE.
pub fn write_body(region: u32, offset: u64, data: &[u8]) -> Vec<u8> {
    let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
    [wire::RegionAccess { offset, region, count }.as_bytes(), data].concat()
}

/// The body of DMA_MAP.
pub fn map_body(flags: u32, offset: u64, address: u64, size: u64) -> wire::DmaMap {
    wire::DmaMap { argsz: 32, flags, offset, address, size }
}
