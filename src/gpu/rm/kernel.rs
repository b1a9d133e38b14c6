//! The seam to the NVIDIA driver's kernel module: what it is asked, and that it may refuse.
//!
//! `sys::NodeKernel` is the real one; tests have one that keeps an object tree in memory.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use super::abi::calls::{CardInfo, EventData, MapDma, UnmapDma};
use super::abi::classes::Class;
use super::abi::{Handle, RmStatus};
use gpuvmk_pci::mapping::Mapping;

/// Why a call did not do what it was asked.
#[derive(Debug)]
pub enum CallError {
    /// The driver answered with a status.
    Status(RmStatus),
    /// The system call failed.
    System(io::Error),
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// A node in `/dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// `nvidiactl`.
    Control,
    /// `nvidiaN`.
    Device(u32),
}

impl std::fmt::Display for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Control => write!(f, "/dev/nvidiactl"),
            Self::Device(minor) => write!(f, "/dev/nvidia{minor}"),
        }
    }
}

/// An object to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewObject {
    /// Client; none for a client itself.
    pub client: Handle,
    /// Handle of the parent.
    pub parent: Handle,
    /// Handle; none for a client, which the driver numbers.
    pub object: Handle,
    /// Class of the object.
    pub class: Class,
}

/// Memory of this process that becomes an object.
#[derive(Clone, Copy, Debug)]
pub struct NewPages<'a> {
    /// Handle of the client.
    pub client: Handle,
    /// Handle of the device.
    pub device: Handle,
    /// Handle of the new object.
    pub object: Handle,
    /// The memory to register.
    pub memory: &'a Mapping,
    /// First byte, a multiple of the page size.
    pub offset: u64,
    /// Bytes, a multiple of the page size.
    pub size: u64,
}

/// Memory that a CPU is to see.
#[derive(Clone, Copy, Debug)]
pub struct CpuView {
    /// Handle of the client.
    pub client: Handle,
    /// Device, or subdevice for registers.
    pub device: Handle,
    /// Handle of the memory object.
    pub memory: Handle,
    /// Offset of the first byte.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

/// Tells which files that were given away are still open in any process.
pub trait OpenFiles: Send {
    /// Watches a file from now on, under a key of the caller's that it never uses again. The file is not kept
    /// open.
    ///
    /// # Errors
    /// It cannot be watched.
    fn watch(&mut self, file: BorrowedFd<'_>, key: u64) -> io::Result<()>;

    /// True while any process has the file: as a descriptor, in a mapping, or under way in a socket.
    ///
    /// # Errors
    /// The kernel's answer is unclear.
    fn is_open(&self, key: u64) -> io::Result<bool>;
}

/// The kernel module of the NVIDIA driver. One thread calls it; calls may take milliseconds.
pub trait Kernel: Send + Sync {
    /// Opens a node.
    ///
    /// # Errors
    /// There is none, or this user may not.
    fn open(&self, node: Node) -> io::Result<OwnedFd>;

    /// The check whether files of the module are still open in any process.
    ///
    /// # Errors
    /// The kernel refuses.
    fn open_files(&self) -> io::Result<Box<dyn OpenFiles>>;

    /// The GPUs that the module drives.
    ///
    /// # Errors
    /// The module refuses.
    fn cards(&self) -> Result<Vec<CardInfo>, CallError>;

    /// Ties a device's file to the clients of this kernel.
    ///
    /// # Errors
    /// The module refuses.
    fn register(&self, device: BorrowedFd<'_>) -> Result<(), CallError>;

    /// Makes an object; returns its handle.
    ///
    /// # Errors
    /// The module refuses.
    fn alloc(&self, new: NewObject, params: &mut [u8]) -> Result<Handle, CallError>;

    /// Makes memory of this process an object.
    ///
    /// # Errors
    /// The module refuses.
    fn alloc_pages(&self, device: BorrowedFd<'_>, new: NewPages<'_>) -> Result<(), CallError>;

    /// Frees an object, and all that is below it.
    ///
    /// # Errors
    /// The module refuses.
    fn free(&self, client: Handle, parent: Handle, object: Handle) -> Result<(), CallError>;

    /// A control call.
    ///
    /// # Errors
    /// The module refuses.
    fn control(
        &self,
        client: Handle,
        object: Handle,
        command: u32,
        params: &mut [u8],
    ) -> Result<(), CallError>;

    /// Binds `file` to `view`: mapping the file maps that memory. Possible only once for a file.
    ///
    /// # Errors
    /// The module refuses.
    fn map_cpu(&self, view: CpuView, file: BorrowedFd<'_>) -> Result<(), CallError>;

    /// Maps into a GPU address space. Client and status are filled in here.
    ///
    /// # Errors
    /// The module refuses.
    fn map_dma(&self, call: MapDma) -> Result<(), CallError>;

    /// Unmaps from a GPU address space.
    ///
    /// # Errors
    /// The module refuses.
    fn unmap_dma(&self, call: UnmapDma) -> Result<(), CallError>;

    /// A file that events of `client` can wake.
    ///
    /// # Errors
    /// The module refuses.
    fn event_file(&self, client: Handle) -> Result<OwnedFd, CallError>;

    /// The next event of a file, and whether more wait.
    ///
    /// # Errors
    /// The module refuses.
    fn next_event(&self, file: BorrowedFd<'_>) -> Result<Option<(EventData, bool)>, CallError>;
}
