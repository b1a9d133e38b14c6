//! The only part of this driver that talks to the operating system: nodes in `/dev`, ioctls, user ids.

mod ioctl;
mod open_files;
mod user;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

use super::abi::calls::{
    AllocOsEvent, CardInfo, CheckVersion, EventData, Free, MapDma, MapMemory, RegisterFd, UnmapDma, escape,
};
use super::abi::{Handle, RmStatus};
use super::host_paths::HostPaths;
use super::kernel::{CallError, CpuView, Kernel, NewObject, NewPages, Node, OpenFiles};
use super::open_error::OpenError;

pub use open_files::EpollFiles;
pub use user::{LoweredPrivileges, is_root, lower};

/// The kernel module behind the nodes in `/dev`.
#[derive(Debug)]
pub struct NodeKernel {
    control: OwnedFd,
    paths: HostPaths,
}

impl NodeKernel {
    /// Opens the control node.
    ///
    /// # Errors
    /// There is none, or this user may not.
    pub fn open(paths: &HostPaths) -> Result<Self, OpenError> {
        let control = open(paths, Node::Control).map_err(|source| OpenError::node(Node::Control, source))?;
        Ok(Self { control, paths: paths.clone() })
    }

    /// The version that the module reports.
    ///
    /// # Errors
    /// The module refuses to say.
    pub fn version(&self) -> io::Result<String> {
        let mut call = CheckVersion { command: u32::from(b'2'), reply: 0, version: [0; 64] };
        ioctl::plain(self.control.as_fd(), escape::CHECK_VERSION, &mut call)?;
        let text = call.version.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

fn open(paths: &HostPaths, node: Node) -> io::Result<OwnedFd> {
    // Not O_NONBLOCK: the module's poll would never wake then.
    Ok(rustix::fs::open(paths.node(node), OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
}

fn check(status: u32) -> Result<(), CallError> {
    if status == RmStatus::OK.0 { Ok(()) } else { Err(CallError::Status(RmStatus(status))) }
}

impl Kernel for NodeKernel {
    fn open(&self, node: Node) -> io::Result<OwnedFd> {
        open(&self.paths, node)
    }

    fn open_files(&self) -> io::Result<Box<dyn OpenFiles>> {
        Ok(Box::new(EpollFiles::new()?))
    }

    fn cards(&self) -> Result<Vec<CardInfo>, CallError> {
        let mut cards = [CardInfo::default(); super::abi::calls::CARDS];
        ioctl::plain(self.control.as_fd(), escape::CARD_INFO, &mut cards)?;
        Ok(cards.into_iter().filter(|card| card.valid != 0).collect())
    }

    fn register(&self, device: BorrowedFd<'_>) -> Result<(), CallError> {
        let mut call = RegisterFd { control: self.control.as_raw_fd() };
        Ok(ioctl::plain(device, escape::REGISTER_FD, &mut call)?)
    }

    fn alloc(&self, new: NewObject, params: &mut [u8]) -> Result<Handle, CallError> {
        let done = ioctl::alloc(self.control.as_fd(), new, params)?;
        check(done.status)?;
        Ok(done.object)
    }

    fn alloc_pages(&self, device: BorrowedFd<'_>, new: NewPages<'_>) -> Result<(), CallError> {
        check(ioctl::alloc_pages(device, new)?)
    }

    fn free(&self, client: Handle, parent: Handle, object: Handle) -> Result<(), CallError> {
        let mut call = Free { root: client, parent, object, status: 0 };
        ioctl::plain(self.control.as_fd(), escape::FREE, &mut call)?;
        check(call.status)
    }

    fn control(
        &self,
        client: Handle,
        object: Handle,
        command: u32,
        params: &mut [u8],
    ) -> Result<(), CallError> {
        check(ioctl::control(self.control.as_fd(), client, object, command, params)?)
    }

    fn map_cpu(&self, view: CpuView, file: BorrowedFd<'_>) -> Result<(), CallError> {
        let CpuView { client, device, memory, offset, size } = view;
        let mut call = MapMemory {
            client,
            device,
            memory,
            offset,
            length: size,
            fd: file.as_raw_fd(),
            ..Default::default()
        };
        ioctl::plain(self.control.as_fd(), escape::MAP_MEMORY, &mut call)?;
        check(call.status)
    }

    fn map_dma(&self, call: MapDma) -> Result<(), CallError> {
        let mut call = call;
        ioctl::plain(self.control.as_fd(), escape::MAP_MEMORY_DMA, &mut call)?;
        check(call.status)
    }

    fn unmap_dma(&self, call: UnmapDma) -> Result<(), CallError> {
        let mut call = call;
        ioctl::plain(self.control.as_fd(), escape::UNMAP_MEMORY_DMA, &mut call)?;
        check(call.status)
    }

    fn event_file(&self, client: Handle) -> Result<OwnedFd, CallError> {
        let file = open(&self.paths, Node::Control)?;
        let mut call = AllocOsEvent { client, device: Handle::NONE, fd: file.as_raw_fd(), status: 0 };
        ioctl::plain(file.as_fd(), escape::ALLOC_OS_EVENT, &mut call)?;
        check(call.status)?;
        Ok(file)
    }

    fn next_event(&self, file: BorrowedFd<'_>) -> Result<Option<(EventData, bool)>, CallError> {
        let (event, more, status) = ioctl::next_event(file)?;
        match RmStatus(status) {
            RmStatus::OK => Ok(Some((event, more))),
            // The module's answers when there is none.
            RmStatus::ERR_OPERATING_SYSTEM | RmStatus::ERR_GENERIC => Ok(None),
            other => Err(CallError::Status(other)),
        }
    }
}
