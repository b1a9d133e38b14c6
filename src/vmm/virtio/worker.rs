//! A queue of a disk and the thread that serves it, one request at a time.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{GuestAddress, GuestMemoryMmap};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::block::{BadChain, QUEUE_SIZE, Server};
use super::common::QueuePlace;

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
    paused: bool,
}

impl Work {
    pub(super) fn new(server: Server) -> Self {
        Self { server, memory: GuestMemoryMmap::new(), active: None, paused: true }
    }

    /// The guest's memory is another from now on.
    pub(super) fn set_memory(&mut self, memory: GuestMemoryMmap) {
        self.memory = memory;
    }

    /// Whether the function may not reach memory at all.
    pub(super) const fn pause(&mut self, paused: bool) {
        self.paused = paused;
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
        let mut queue = Queue::new(QUEUE_SIZE)?;
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
        let Some(Active { queue, write_through }) = self.active.as_mut().filter(|_| !self.paused) else {
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

/// epoll's data for what a thread waits for.
const KICK: u64 = 0;
const ORDER: u64 = 1;

/// Where a queue's thread waits: for the driver's notifications, and for its own process.
#[derive(Debug)]
pub(super) struct Bell {
    epoll: Epoll,
    kick: EventFd,
    order: EventFd,
    end: AtomicBool,
}

impl Bell {
    /// With the eventfd by which the driver notifies the queue.
    pub(super) fn new(kick: &EventFd) -> io::Result<Self> {
        let (epoll, order) = (Epoll::new()?, EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?);
        let kick = kick.try_clone()?;
        for (event, number) in [(&kick, KICK), (&order, ORDER)] {
            epoll.ctl(ControlOperation::Add, event.as_raw_fd(), EpollEvent::new(EventSet::IN, number))?;
        }
        Ok(Self { epoll, kick, order, end: AtomicBool::new(false) })
    }

    /// The queue may have something.
    pub(super) fn ring(&self) {
        // A full counter rings as well.
        let _ = self.order.write(1);
    }

    /// The thread is to end.
    pub(super) fn end(&self) {
        self.end.store(true, Ordering::Release);
        self.ring();
    }

    /// Waits until the queue may have something; false when it is time to end.
    pub(super) fn wait(&self) -> bool {
        let mut events = [EpollEvent::default(); 2];
        match self.epoll.wait(-1, &mut events) {
            Ok(count) => {
                for event in events.iter().take(count) {
                    // Only this thread reads them.
                    let _ = if event.data() == KICK { self.kick.read() } else { self.order.read() };
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                log::error!("A disk's queue is not heard any more: {error}");
                return false;
            }
        }
        !self.end.load(Ordering::Acquire)
    }
}
