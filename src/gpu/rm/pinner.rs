//! Pins and unpins tenants' memory for the GPU, on other threads than the one that owns the GPU.
//!
//! Pinning [`PIECE`] bytes takes the kernel some 20 ms the first time, longer where it has to make room.
//! Unpinning and unmapping take long as well. So the owner gives orders and polls for the answers. Each
//! tenant has one request under way, and so mostly one order: no tenant waits for many orders of another.
//!
//! The NVIDIA driver takes calls of several threads on one client; it pins pages before it takes its own
//! locks.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::abi::Handle;
use super::error::RmError;
use super::kernel::{Kernel, NewPages};
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_host::reaper;
use gpuvmk_jail::{self as jail, Role};
use gpuvmk_pci::mapping::{Access, Mapping};

/// Bytes of a file that become one object: large enough to be few, small enough that first touching them all
/// takes some 20 ms.
pub const PIECE: u64 = 64 << 20;

/// A file of a tenant: the tenant's number, and the file's device and inode.
pub type FileId = (usize, u64, u64);

/// A piece of a file: the file, and the piece's index in it.
pub type Key = (FileId, u64);

/// Threads that carry orders out: a tenant whose memory takes long has one.
const THREADS: usize = 4;

/// Something to do.
#[derive(Debug)]
pub enum Order {
    /// Make a piece of a file an object.
    Pin {
        /// The piece.
        key: Key,
        /// File of the piece.
        file: Arc<OwnedFd>,
        /// Handle of the object.
        object: Handle,
    },
    /// Free an object, then unmap its memory.
    Free {
        /// The piece.
        key: Key,
        /// Handle of the object.
        object: Handle,
        /// The mapping to remove.
        memory: Mapping,
    },
}

/// A piece that is held in place.
#[derive(Debug)]
pub struct Pinned {
    /// Bytes, less than [`PIECE`] at the end of a file.
    pub size: u64,
    /// Keeps it mapped.
    pub memory: Mapping,
}

/// Result of an order.
#[derive(Debug)]
pub enum Answer {
    /// Of [`Order::Pin`].
    Pinned(Key, Handle, Result<Pinned, RmError>),
    /// Of [`Order::Free`].
    Freed(Key, Handle, Result<(), RmError>),
}

/// The objects that orders need.
#[derive(Clone)]
pub struct PinContext {
    /// The kernel module.
    pub kernel: Arc<dyn Kernel>,
    /// The GPU's file.
    pub node: Arc<OwnedFd>,
    /// Handle of the client.
    pub client: Handle,
    /// The device, parent of the objects.
    pub device: Handle,
}

impl PinContext {
    /// Carries an order out.
    pub fn carry_out(&self, order: Order) -> Answer {
        match order {
            Order::Pin { key, file, object } => {
                let pinned = self.pin(&file, key.1, object);
                // Where a tenant left meanwhile, this is its last descriptor.
                reaper::give_up(file);
                Answer::Pinned(key, object, pinned)
            }
            Order::Free { key, object, memory } => {
                let freed = self.kernel.free(self.client, self.device, object);
                let freed = freed.map_err(|error| RmError::new("to free a piece of a VM's memory", error));
                drop(memory);
                Answer::Freed(key, object, freed)
            }
        }
    }

    fn pin(&self, file: &OwnedFd, index: u64, object: Handle) -> Result<Pinned, RmError> {
        let stat = rustix::fs::fstat(file).map_err(|errno| RmError::System {
            call: "how long a VM's memory is".to_owned(),
            source: errno.into(),
        })?;
        let start = index.saturating_mul(PIECE);
        let length = u64::try_from(stat.st_size).unwrap_or(0) / PAGE_SIZE * PAGE_SIZE;
        let size = length.saturating_sub(start).min(PIECE);
        let memory = Mapping::of_file(file.as_fd(), start, size, Access::ReadWrite)
            .map_err(|source| RmError::Mapping { what: "a piece of a VM's memory", source })?;
        let new =
            NewPages { client: self.client, device: self.device, object, memory: &memory, offset: 0, size };
        self.kernel
            .alloc_pages(self.node.as_fd(), new)
            .map_err(|error| RmError::new(format!("{size:#x} bytes of a VM's memory for the GPU"), error))?;
        Ok(Pinned { size, memory })
    }
}

/// Carries orders out.
pub trait Pinner: Send {
    /// Gives an order. Does not wait.
    fn order(&mut self, order: Order);

    /// The next answer that is there.
    fn answer(&mut self) -> Option<Answer>;
}

/// Threads that do.
pub struct Threads {
    orders: Sender<Order>,
    answers: Receiver<Answer>,
}

impl Threads {
    /// Starts them. Each answer makes `wake` readable.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(context: &PinContext, wake: &Arc<OwnedFd>) -> std::io::Result<Self> {
        let (orders, taken) = channel::<Order>();
        let (told, answers) = channel();
        let taken = Arc::new(Mutex::new(taken));
        for _ in 0..THREADS {
            let (context, wake, taken, told) =
                (context.clone(), Arc::clone(wake), Arc::clone(&taken), told.clone());
            std::thread::Builder::new().name("pinner".to_owned()).spawn(move || {
                jail::enter(Role::Pinner);
                loop {
                    let order = taken.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    // No more orders: the owner is gone, and with it the receiver of answers.
                    let Ok(order) = order else { return };
                    if told.send(context.carry_out(order)).is_err() {
                        return;
                    }
                    // It fails only when the counter is full, and then the owner looks anyway.
                    let _ = rustix::io::write(&wake, &1_u64.to_ne_bytes());
                }
            })?;
        }
        Ok(Self { orders, answers })
    }
}

impl Pinner for Threads {
    fn order(&mut self, order: Order) {
        // The threads end with this, and not before.
        let _ = self.orders.send(order);
    }

    fn answer(&mut self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}
