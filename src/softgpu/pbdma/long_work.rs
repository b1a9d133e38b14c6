//! Long work on its way from a PBDMA to the engine's own thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::engine::owner::Owner;
use crate::fifo::Job;
use crate::mmu::AddressSpace;
use gpuvmk_chip::stream::Method;

/// An operation that an engine has begun, and that it goes on with while no PBDMA has the channel.
#[derive(Debug)]
pub(super) struct LongWork {
    /// PBDMA that began it.
    pub(super) pbdma: u8,
    pub(super) job: Job,
    pub(super) space: AddressSpace,
    /// When the channel's time is up.
    pub(super) slice_end: Instant,
    /// The method that began it, all zero where the channel came with it.
    pub(super) method: Method,
}

/// The owner by which engines know a channel's context.
pub(super) fn owner(job: &Job) -> Owner {
    Owner { channel: Some(job.channel), generation: job.generation, instance: job.instance }
}

#[derive(Debug, Default)]
struct Inside {
    work: Option<LongWork>,
    closed: bool,
}

/// Where an engine's thread finds its work: one piece at a time, since an engine belongs to one channel.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    inside: Mutex<Inside>,
    changed: Condvar,
}

impl Inbox {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts work in.
    pub(super) fn put(&self, work: LongWork) {
        let before = self.inside().work.replace(work);
        debug_assert!(before.is_none(), "an engine works for one channel at a time");
        self.changed.notify_one();
    }

    /// Ends the waiting for work.
    pub(super) fn close(&self) {
        self.inside().closed = true;
        self.changed.notify_one();
    }

    /// Waits for work. `None` when there will be no more.
    pub(super) fn take(&self) -> Option<LongWork> {
        let nothing = |inside: &mut Inside| inside.work.is_none() && !inside.closed;
        let mut inside =
            self.changed.wait_while(self.inside(), nothing).unwrap_or_else(PoisonError::into_inner);
        if inside.closed { None } else { inside.work.take() }
    }
}
