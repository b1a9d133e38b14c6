//! What a device sees of its function: its queues' notifications, its interrupts, and its driver's state.
//!
//! Locks, in the order in which they are taken: `front`, those of the device, `interrupt`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use super::common::{Common, QueuePlace, Shape};
use super::interrupt::Interrupt;
use super::msix_table::MsixTable;
use gpuvmk_pci::config_space::ConfigSpace;

/// What a driver has set up when it starts its device.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The features that it has accepted.
    pub(crate) features: u64,
    /// Its queues.
    pub(crate) queues: Vec<QueuePlace>,
}

/// What a device does behind its function. The threads of all processors call it, and none of its methods
/// waits for anybody but its own threads, for one request at most.
pub(crate) trait Device: Send + Sync {
    /// Reads its own configuration into `data`, which is 0.
    fn read_config(&self, offset: u64, data: &mut [u8]);

    /// Writes it.
    fn write_config(&self, offset: u64, data: &[u8]);

    /// The driver has begun: queues are served from now on. The error is the driver's, in words.
    fn start(&self, setup: &Setup) -> Result<(), String>;

    /// The driver has notified a queue by an access that was trapped. Others signal its eventfd.
    fn notify(&self, queue: usize);

    /// The function may not reach memory, or may again; what was begun goes on then.
    fn pause(&self, paused: bool);

    /// The messages of queues are others.
    fn messages_changed(&self);

    /// Leaves the queues alone. False if that takes until [`Transport::reset_done`] is called.
    fn stop(&self) -> bool;

    /// The guest's memory is another.
    fn set_memory(&self, memory: GuestMemoryMmap);
}

/// The part that the driver sets up.
pub(super) struct Front {
    pub(super) config: ConfigSpace,
    pub(super) common: Common,
    pub(super) table: MsixTable,
}

/// The state that a function and its device share.
pub(crate) struct Transport {
    front: Mutex<Front>,
    interrupt: Mutex<Interrupt>,
    kicks: Vec<EventFd>,
}

impl Transport {
    pub(super) fn new(shape: Shape, config: ConfigSpace) -> std::io::Result<Self> {
        let common = Common::new(shape);
        let interrupt = Interrupt::new(common.vectors().clone());
        let kicks = (0..shape.queues).map(|_| EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC));
        Ok(Self {
            front: Mutex::new(Front { config, common, table: MsixTable::new(shape.vectors) }),
            interrupt: Mutex::new(interrupt),
            kicks: kicks.collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn interrupt(&self) -> MutexGuard<'_, Interrupt> {
        self.interrupt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The eventfds by which queues are notified, by their numbers.
    pub(crate) fn kicks(&self) -> &[EventFd] {
        &self.kicks
    }

    /// The eventfd that sends a queue's message; `None`: the driver is told by [`Self::raise_queue`] alone.
    pub(crate) fn message(&self, queue: usize) -> Option<EventFd> {
        let interrupt = self.interrupt();
        let event = interrupt.by_messages().then(|| interrupt.message(queue))??;
        event.try_clone().ok()
    }

    /// A queue has used buffers.
    pub(crate) fn raise_queue(&self, queue: usize) {
        self.interrupt().raise_queue(queue);
    }

    /// Some queue has used buffers, of a driver that has no messages for them.
    pub(crate) fn raise_line(&self) {
        self.interrupt().raise_line();
    }

    /// The device's own configuration is another.
    pub(crate) fn configuration_changed(&self) {
        let driven = {
            let mut front = self.front();
            front.common.configuration_changed();
            front.common.is_driven()
        };
        self.tell_of_configuration(driven);
    }

    /// The device cannot go on until its driver resets it.
    pub(crate) fn needs_reset(&self) {
        let tell = self.front().common.needs_reset();
        self.tell_of_configuration(tell);
    }

    /// Signals outside of all locks: a driver may use one message for this and for a queue, whose eventfd
    /// others have too.
    pub(super) fn tell_of_configuration(&self, tell: bool) {
        let event = if tell { self.interrupt().raise_configuration() } else { None };
        if let Some(event) = event {
            // A full counter is a message that waits already.
            let _ = event.write(1);
        }
    }

    /// The device has left its queues alone: it is as new, if the driver waits for that.
    pub(crate) fn reset_done(&self) {
        let mut front = self.front();
        if front.common.is_resetting() {
            self.renew(&mut front);
        }
    }

    pub(super) fn renew(&self, front: &mut Front) {
        front.common.reset();
        let mut interrupt = self.interrupt();
        interrupt.take();
        interrupt.set_vectors(front.common.vectors());
    }
}
