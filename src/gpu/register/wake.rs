//! One descriptor that is readable when an interrupt came or when it is time to look at something again.
#![allow(unsafe_code, reason = "the epoll wrapper lends its descriptor by number only")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vmm_sys_util::timerfd::TimerFd;

use crate::GpuError;
use gpuvmk_pci::InterruptSink;

/// Wakes the owner of the GPU.
struct Waker(EventFd);

impl InterruptSink for Waker {
    fn set_intx(&self, asserted: bool) {
        if asserted {
            self.fire_msi(0);
        }
    }

    fn fire_msi(&self, _vector: u16) {
        // It fails only when the counter is full, and then the owner is being woken already.
        let _ = self.0.write(1);
    }

    fn message_sent(&self, _vector: u16) {}
}

/// Interrupts and a timer behind one descriptor.
pub(super) struct Wake {
    epoll: Epoll,
    interrupt: EventFd,
    timer: TimerFd,
    timer_armed: bool,
}

impl Wake {
    pub(super) fn new() -> Result<Self, GpuError> {
        let epoll = Epoll::new()?;
        let interrupt = EventFd::new(EFD_NONBLOCK)?;
        let timer = TimerFd::new().map_err(std::io::Error::from)?;
        for fd in [interrupt.as_raw_fd(), timer.as_raw_fd()] {
            epoll.ctl(ControlOperation::Add, fd, EpollEvent::new(EventSet::IN, 0))?;
        }
        Ok(Self { epoll, interrupt, timer, timer_armed: false })
    }

    /// Where the function sends its interrupts.
    pub(super) fn sink(&self) -> Result<Arc<dyn InterruptSink>, GpuError> {
        Ok(Arc::new(Waker(self.interrupt.try_clone()?)))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is owned by `self.epoll` and stays open as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.epoll.as_raw_fd()) }
    }

    /// Becomes readable now.
    pub(super) fn now(&self) {
        // It fails only when the counter is full, and then the owner is being woken already.
        let _ = self.interrupt.write(1);
    }

    /// The owner looks now: nothing is due any more.
    pub(super) fn clear(&mut self) {
        // Both fail only when there is nothing to clear. The timer is read only when it was set: reading it
        // waits for it.
        let _ = self.interrupt.read();
    }

    /// Becomes readable every `interval`, or no longer.
    pub(super) fn look_every(&mut self, interval: Option<Duration>) -> Result<(), GpuError> {
        match interval {
            // Setting the timer anew also forgets that it has expired.
            Some(interval) => self.timer.reset(interval, Some(interval)).map_err(std::io::Error::from)?,
            None if self.timer_armed => self.timer.clear().map_err(std::io::Error::from)?,
            None => {}
        }
        self.timer_armed = interval.is_some();
        Ok(())
    }
}
