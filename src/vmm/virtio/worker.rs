//! The queue of a device and the thread that serves it, one request at a time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{GuestAddress, GuestMemoryMmap};

use super::block::{BadChain, Server};
use super::common::{MAX_QUEUE_SIZE, QueuePlace};

/// A driver's violation of the protocol, after which the device cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error(
        "The queue of {size} entries with parts at {descriptors:#x}, {available:#x} and {used:#x} is not in the guest's memory, or not aligned"
    )]
    Place { size: u16, descriptors: u64, available: u64, used: u64 },
    #[error("The queue cannot be used")]
    Queue(#[from] virtio_queue::Error),
    #[error(transparent)]
    Chain(#[from] BadChain),
}

/// Result of one step at the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There was nothing.
    Idle,
    /// A request was carried out; `tell` if the driver wants a notification.
    Served { tell: bool },
}

/// A queue that is in use.
struct Active {
    queue: Queue,
    write_through: bool,
}

/// The thread's data. The thread locks it for one request at a time.
pub(super) struct Work {
    server: Server,
    memory: GuestMemoryMmap,
    active: Option<Active>,
    bus_master: bool,
}

impl Work {
    pub(super) fn new(server: Server) -> Self {
        Self { server, memory: GuestMemoryMmap::new(), active: None, bus_master: false }
    }

    /// The guest's memory.
    pub(super) const fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// It is another from now on.
    pub(super) fn set_memory(&mut self, memory: GuestMemoryMmap) {
        self.memory = memory;
    }

    /// Whether the function may reach memory at all.
    pub(super) const fn set_bus_master(&mut self, bus_master: bool) {
        self.bus_master = bus_master;
    }

    /// Leaves the queue alone.
    pub(super) fn stop(&mut self) {
        self.active = None;
    }

    /// Serves the queue that the driver has set up, from its beginning.
    pub(super) fn start(
        &mut self,
        place: QueuePlace,
        event_idx: bool,
        write_through: bool,
    ) -> Result<(), ProtocolError> {
        self.active = None;
        if !place.enabled {
            return Ok(());
        }
        let QueuePlace { size, descriptors, available, used, .. } = place;
        let refused = |_| ProtocolError::Place { size, descriptors, available, used };
        let mut queue = Queue::new(MAX_QUEUE_SIZE)?;
        queue.try_set_size(size).map_err(refused)?;
        queue.try_set_desc_table_address(GuestAddress(descriptors)).map_err(refused)?;
        queue.try_set_avail_ring_address(GuestAddress(available)).map_err(refused)?;
        queue.try_set_used_ring_address(GuestAddress(used)).map_err(refused)?;
        queue.set_event_idx(event_idx);
        queue.set_ready(true);
        if !queue.is_valid(&self.memory) {
            return Err(ProtocolError::Place { size, descriptors, available, used });
        }
        self.active = Some(Active { queue, write_through });
        Ok(())
    }

    /// Carries the next request out. After an error the queue is left alone.
    pub(super) fn step(&mut self) -> Result<Step, ProtocolError> {
        let result = self.try_step();
        if result.is_err() {
            self.active = None;
        }
        result
    }

    fn try_step(&mut self) -> Result<Step, ProtocolError> {
        let Some(Active { queue, write_through }) = self.active.as_mut().filter(|_| self.bus_master) else {
            return Ok(Step::Idle);
        };
        let memory = &self.memory;
        let next = loop {
            queue.disable_notification(memory)?;
            if let Some(chain) = queue.iter(memory)?.next() {
                break chain;
            }
            if !queue.enable_notification(memory)? {
                return Ok(Step::Idle);
            }
        };
        let head = next.head_index();
        let written = self.server.serve(memory, next, *write_through)?;
        queue.add_used(memory, head, written)?;
        Ok(Step::Served { tell: queue.needs_notification(memory)? })
    }
}

/// Orders to the thread.
#[derive(Clone, Copy, Debug, Default)]
struct Orders {
    look: bool,
    end: bool,
}

/// Where the thread waits.
#[derive(Debug, Default)]
pub(super) struct WorkSignal(Mutex<Orders>, Condvar);

impl WorkSignal {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue may have something.
    pub(super) fn ring(&self) {
        self.orders().look = true;
        self.1.notify_one();
    }

    /// The thread is to end.
    pub(super) fn end(&self) {
        self.orders().end = true;
        self.1.notify_one();
    }

    /// Waits until the queue may have something; false when it is time to end.
    pub(super) fn wait(&self) -> bool {
        let mut orders = self.orders();
        while !orders.look && !orders.end {
            orders = self.1.wait(orders).unwrap_or_else(PoisonError::into_inner);
        }
        orders.look = false;
        !orders.end
    }
}
