//! What a driver and its machine want of a back end, for the thread that has to do with it: the newest state
//! counts, so nobody waits for that thread, and nothing piles up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vm_memory::GuestMemoryMmap;
use vmm_sys_util::eventfd::EventFd;

use crate::virtio::Setup;

/// Most writes of a device's own configuration that wait; more are lost.
const MOST_WRITES: usize = 16;
/// Most bytes of one.
const WRITE: usize = 8;

/// A write of a device's own configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigWrite {
    pub(super) offset: u32,
    pub(super) data: [u8; WRITE],
    pub(super) size: usize,
}

/// What is wanted now.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// The queues that a driver has set up; none before it starts its device.
    pub(super) setup: Option<Arc<Setup>>,
    /// Counts starts.
    pub(super) number: u64,
    pub(super) paused: bool,
    pub(super) memory: GuestMemoryMmap,
    /// Messages are others.
    pub(super) messages: bool,
    pub(super) writes: VecDeque<ConfigWrite>,
    /// Queues that the driver has notified by a trapped access, as bits.
    pub(super) kicks: u128,
    /// The thread is to end.
    pub(super) end: bool,
    /// Queues may be in use, or soon.
    busy: bool,
}

/// Where it is wanted.
#[derive(Debug)]
pub(super) struct Orders {
    wanted: Mutex<Wanted>,
    order: EventFd,
}

impl Orders {
    pub(super) fn new(order: EventFd) -> Self {
        Self { wanted: Mutex::new(Wanted { paused: true, ..Wanted::default() }), order }
    }

    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is wanted, and tells the thread.
    pub(super) fn change(&self, change: impl FnOnce(&mut Wanted)) {
        change(&mut self.wanted());
        // A full counter tells as well.
        let _ = self.order.write(1);
    }

    /// A driver has begun.
    pub(super) fn start(&self, setup: &Setup) {
        self.change(|wanted| {
            wanted.setup = Some(Arc::new(setup.clone()));
            wanted.number = wanted.number.wrapping_add(1);
        });
    }

    /// A driver has ended. True if nothing of what it had is in use.
    pub(super) fn stop(&self) -> bool {
        let mut idle = false;
        self.change(|wanted| {
            wanted.setup = None;
            wanted.writes.clear();
            idle = !wanted.busy;
        });
        idle
    }

    /// Notes a write.
    pub(super) fn write(&self, offset: u64, data: &[u8]) {
        let mut write = ConfigWrite { offset: 0, data: [0; WRITE], size: data.len() };
        let Ok(offset) = u32::try_from(offset) else { return };
        let Some(place) = write.data.get_mut(..data.len()) else { return };
        place.copy_from_slice(data);
        write.offset = offset;
        self.change(|wanted| {
            if wanted.writes.len() < MOST_WRITES {
                wanted.writes.push_back(write);
            }
        });
    }

    /// What is wanted now, for the thread: it takes what is to be done once.
    pub(super) fn take(&self) -> Wanted {
        let _ = self.order.read();
        let mut wanted = self.wanted();
        let taken = wanted.clone();
        wanted.messages = false;
        wanted.kicks = 0;
        wanted.writes.clear();
        wanted.busy = wanted.setup.is_some();
        taken
    }

    /// The eventfd that tells the thread.
    pub(super) const fn event(&self) -> &EventFd {
        &self.order
    }
}
