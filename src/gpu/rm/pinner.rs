//! Pins and unpins tenants' memory for the GPU, on other threads than the one that owns the GPU.
//!
//! Pinning takes the kernel long where it has to make room first, and unpinning and unmapping take long as
//! well. So the owner gives orders and polls for the answers. Each tenant has one request under way, and so
//! mostly one order: no tenant waits for many orders of another.
//!
//! Pages that are not there would be made by whoever pins them, in the aggregator's name. So a piece with a
//! hole is refused: a device back end has filled its guest's memory in blocks of [`PIECE`] bytes before it
//! asks for it. What is taken out of the file between the look and the call is not made either: the mapping
//! that is pinned makes no pages ([`Mapping::of_others`]), and the call fails.
//!
//! The NVIDIA driver takes calls of several threads on one client; it pins pages before it takes its own
//! locks.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::abi::Handle;
use super::error::RmError;
use super::kernel::{Kernel, NewPages};
use crate::order_threads::OrderThreads;
use crate::scrub;
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_host::reaper;
use gpuvmk_jail::Role;
use gpuvmk_pci::dma::BLOCK;
use gpuvmk_pci::mapping::{Access, Mapping, unbacked};

/// Bytes of a file that become one object: what a device back end fills at a time.
pub const PIECE: u64 = BLOCK;

/// A file of a tenant: the tenant's number, and the file's device and inode.
pub type FileId = (usize, u64, u64);

/// The number of the aggregator itself, whose files are partitions. Tenants' numbers are addresses.
pub const OWN: usize = usize::MAX;

/// A piece of a file: the file, and the piece's index in it.
pub type Key = (FileId, u64);

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
    /// Free the object of a piece of the aggregator's own, if it is one, and give its pages back to the
    /// kernel: they are zeros then.
    GiveBack {
        /// The piece.
        key: Key,
        /// File of the piece.
        file: Arc<OwnedFd>,
        /// The object, and the mapping to remove.
        held: Option<(Handle, Mapping)>,
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
    /// Of [`Order::Free`] and [`Order::GiveBack`]: the object, where there was one.
    Freed(Key, Option<Handle>, Result<(), RmError>),
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
    /// True where pages that are not there may be made: for tests with more memory than their machine has.
    pub takes_holes: bool,
}

impl PinContext {
    /// Carries an order out.
    pub fn carry_out(&self, order: Order) -> Answer {
        match order {
            Order::Pin { key, file, object } => {
                let pinned = self.pin(&file, key, object);
                // Where a tenant left meanwhile, this is its last descriptor.
                reaper::give_up(file);
                Answer::Pinned(key, object, pinned)
            }
            Order::Free { key, object, memory } => {
                let freed = self.free(object);
                drop(memory);
                Answer::Freed(key, Some(object), freed)
            }
            Order::GiveBack { key, file, held } => {
                let object = held.as_ref().map(|(object, _)| *object);
                // Pages that the GPU may still reach stay the file's.
                let given = object.map_or(Ok(()), |object| self.free(object)).and_then(|()| {
                    drop(held);
                    scrub::punch(&file, key.1.saturating_mul(PIECE), PIECE).map_err(|source| {
                        RmError::System { call: "to take a partition's memory back".to_owned(), source }
                    })
                });
                reaper::give_up(file);
                Answer::Freed(key, object, given)
            }
        }
    }

    fn free(&self, object: Handle) -> Result<(), RmError> {
        let freed = self.kernel.free(self.client, self.device, object);
        freed.map_err(|error| RmError::new("to free a piece of a VM's memory", error))
    }

    fn pin(&self, file: &OwnedFd, (id, index): Key, object: Handle) -> Result<Pinned, RmError> {
        let stat = rustix::fs::fstat(file).map_err(|errno| RmError::System {
            call: "how long a VM's memory is".to_owned(),
            source: errno.into(),
        })?;
        let start = index.saturating_mul(PIECE);
        let length = u64::try_from(stat.st_size).unwrap_or(0) / PAGE_SIZE * PAGE_SIZE;
        let size = length.saturating_sub(start).min(PIECE);
        let cannot = |source| RmError::Mapping { what: "a piece of a VM's memory", source };
        let makes_pages = self.takes_holes || id.0 == OWN;
        if !makes_pages && unbacked(file.as_fd(), start, size, 0).map_err(cannot)? > 0 {
            return Err(RmError::Unfilled { start, size });
        }
        let map = if makes_pages { Mapping::of_file } else { Mapping::of_others };
        let memory = map(file.as_fd(), start, size, Access::ReadWrite).map_err(cannot)?;
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
pub type Threads = OrderThreads<Order, Answer>;

/// Starts them. Each answer makes `wake` readable.
///
/// # Errors
/// The kernel gives no thread.
pub fn start(context: &PinContext, wake: &Arc<OwnedFd>) -> std::io::Result<Threads> {
    let context = context.clone();
    OrderThreads::start("pinner", Role::Pinner, Some(wake), move |order| context.carry_out(order))
}

impl Pinner for Threads {
    fn order(&mut self, order: Order) {
        Self::order(self, order);
    }

    fn answer(&mut self) -> Option<Answer> {
        Self::answer(self)
    }
}
