//! A vfio-user client that sends whatever a test wants, byte for byte.

#![allow(dead_code, reason = "each test file uses a part of it")]

use gpuvmk::frontend::vfio_user::wire::{self, Header, command, flags};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use vmm_sys_util::sock_ctrl_msg::ScmSocket;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What QEMU proposes.
pub const QEMU_PROPOSAL: &[u8] = b"{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576,\
\"pgsizes\":4096,\"max_dma_maps\":65535,\"migration\":{\"pgsize\":4096,\"max_bitmap_size\":268435456},\
\"write_multiple\":true}}\0";

/// A reply, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub header: Header,
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as a fixed structure at its start.
    pub fn parse<T: FromBytes + KnownLayout + Immutable>(&self) -> T {
        T::read_from_prefix(&self.body).expect("the reply is too short").0
    }

    /// errno, or 0 for success; an error must come with nothing but a header.
    pub fn errno(&self) -> i32 {
        if self.header.flags & flags::ERROR == 0 {
            return 0;
        }
        assert!(self.body.is_empty(), "an error reply has a body");
        assert_ne!(self.header.error, 0, "QEMU takes errno 0 for success");
        i32::try_from(self.header.error).unwrap()
    }
}

#[derive(Debug)]
pub struct Client {
    pub socket: UnixStream,
    next_id: u16,
}

impl Client {
    pub fn connect(path: &Path) -> Self {
        Self::on(UnixStream::connect(path).unwrap())
    }

    pub fn on(socket: UnixStream) -> Self {
        // A server that never answers fails the test instead of hanging it.
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
        Self { socket, next_id: 0x4711 }
    }

    pub fn negotiated(path: &Path) -> Self {
        let mut client = Self::connect(path);
        client.negotiate();
        client
    }

    pub fn negotiate(&mut self) {
        let reply = self.command(command::VERSION, &version(0, 0, QEMU_PROPOSAL));
        assert_eq!(reply.errno(), 0);
    }

    /// A header for a message of ours.
    pub fn header(&mut self, command: u16, body: usize) -> Header {
        self.next_id = self.next_id.wrapping_add(1);
        let size = u32::try_from(16 + body).unwrap();
        Header { message_id: self.next_id, command, size, flags: flags::COMMAND, error: 0 }
    }

    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Sends a message as one piece, with descriptors.
    pub fn send(&mut self, header: Header, body: &[u8], fds: &[RawFd]) {
        let bytes = [header.as_bytes(), body].concat();
        if fds.is_empty() {
            self.send_raw(&bytes);
        } else {
            let sent = self.socket.send_with_fds(&[&bytes[..]], fds).unwrap();
            assert_eq!(sent, bytes.len());
        }
    }

    /// Sends a command and waits for its reply.
    pub fn command(&mut self, command: u16, body: &[u8]) -> Reply {
        self.command_with(command, body, &[])
    }

    pub fn command_with(&mut self, command: u16, body: &[u8], fds: &[BorrowedFd<'_>]) -> Reply {
        let header = self.header(command, body.len());
        let fds: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
        self.send(header, body, &fds);
        let reply = self.receive();
        assert_eq!(reply.header.message_id, header.message_id);
        assert_eq!(reply.header.command, command);
        reply
    }

    /// Sends a command that wants no reply.
    pub fn post(&mut self, command: u16, body: &[u8]) {
        let mut header = self.header(command, body.len());
        header.flags |= flags::NO_REPLY;
        self.send(header, body, &[]);
    }

    pub fn receive(&mut self) -> Reply {
        let mut bytes = [0; 16];
        self.socket.read_exact(&mut bytes).expect("no reply");
        let header = Header::read_from_bytes(&bytes).unwrap();
        assert_eq!(header.flags & flags::TYPE_MASK, flags::REPLY);
        let mut body = vec![0; usize::try_from(header.size).unwrap() - 16];
        self.socket.read_exact(&mut body).expect("the reply is cut");
        Reply { header, body }
    }

    /// True when the server has closed the connection (after what else it sent).
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    /// The stream is in step: an ordinary command still gets its ordinary reply.
    pub fn assert_in_step(&mut self) {
        let request = wire::DeviceInfo { argsz: 16, flags: 0, num_regions: 0, num_irqs: 0 };
        let reply = self.command(command::DEVICE_GET_INFO, request.as_bytes());
        assert_eq!(reply.errno(), 0);
        assert_eq!(reply.parse::<wire::DeviceInfo>().num_regions, wire::region::COUNT);
    }

    pub fn read(&mut self, region: u32, offset: u64, count: u32) -> Reply {
        self.command(command::REGION_READ, wire::RegionAccess { offset, region, count }.as_bytes())
    }

    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Reply {
        self.command(command::REGION_WRITE, &write_body(region, offset, data))
    }
}

pub fn version(major: u16, minor: u16, data: &[u8]) -> Vec<u8> {
    [wire::Version { major, minor }.as_bytes(), data].concat()
}

pub fn write_body(region: u32, offset: u64, data: &[u8]) -> Vec<u8> {
    let count = u32::try_from(data.len()).unwrap();
    [wire::RegionAccess { offset, region, count }.as_bytes(), data].concat()
}
