//! An order to end. Once it is given, threads that wait for another process through it stop waiting at once.
//!
//! It stays given. Not for signal handlers: give it from a thread that waits for signals.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};

#[derive(Debug)]
struct Shared {
    given: AtomicBool,
    /// Readable for ever once the order is given.
    event: OwnedFd,
}

/// The order. Clones are the same one; the default one is never given.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Option<Arc<Shared>>);

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The descriptor is ready, or its other side is gone.
    Ready,
    /// The order was given.
    Cancelled,
    /// The time is over. A signal may have made it shorter.
    TimedOut,
}

impl Cancel {
    /// An order that has not been given.
    ///
    /// # Errors
    /// The kernel has no eventfd left.
    pub fn new() -> io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self(Some(Arc::new(Shared { given: AtomicBool::new(false), event }))))
    }

    /// Gives the order.
    pub fn cancel(&self) {
        if let Some(shared) = &self.0 {
            shared.given.store(true, Ordering::SeqCst);
            // The counter is far from full.
            let _ = rustix::io::write(&shared.event, &1_u64.to_ne_bytes());
        }
    }

    /// True once the order was given.
    pub fn is_cancelled(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.given.load(Ordering::SeqCst))
    }

    /// Waits until `fd` can be read, at most `limit`.
    ///
    /// # Errors
    /// The system call failed.
    pub fn wait_readable(&self, fd: BorrowedFd<'_>, limit: Option<Duration>) -> io::Result<Waited> {
        self.wait(Some(fd), limit)
    }

    /// Sleeps for `time`, or until the order is given; whether it was.
    pub fn sleep(&self, time: Duration) -> bool {
        // Without a kernel that lets us wait there is nothing to wait for either.
        let _ = self.wait(None, Some(time));
        self.is_cancelled()
    }

    fn wait(&self, fd: Option<BorrowedFd<'_>>, limit: Option<Duration>) -> io::Result<Waited> {
        let event = self.0.as_ref().map(|shared| shared.event.as_fd());
        let entry = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        match (fd, event) {
            (Some(fd), Some(event)) => self.poll(&mut [entry(fd), entry(event)], limit),
            (Some(only), None) | (None, Some(only)) => self.poll(&mut [entry(only)], limit),
            (None, None) => self.poll(&mut [], limit),
        }
    }

    fn poll(&self, entries: &mut [PollFd<'_>], limit: Option<Duration>) -> io::Result<Waited> {
        // A time that the kernel cannot count is no limit.
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        loop {
            let found = poll(entries, limit.as_ref());
            if self.is_cancelled() {
                return Ok(Waited::Cancelled);
            }
            match found {
                Ok(0) => return Ok(Waited::TimedOut),
                Ok(_) => return Ok(Waited::Ready),
                Err(rustix::io::Errno::INTR) if limit.is_some() => return Ok(Waited::TimedOut),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn order_ends_a_wait_without_limit_and_a_sleep() {
        let cancel = Cancel::new().unwrap();
        let (nothing, _open) = rustix::pipe::pipe().unwrap();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| cancel.wait_readable(nothing.as_fd(), None).unwrap());
            let sleeps = scope.spawn(|| cancel.sleep(LONG));

            cancel.clone().cancel();

            assert_eq!(waits.join().unwrap(), Waited::Cancelled);
            assert!(sleeps.join().unwrap());
        });
        assert!(cancel.is_cancelled() && start.elapsed() < LONG / 2);
    }

    #[test]
    fn order_that_was_given_comes_before_what_is_there() {
        let cancel = Cancel::new().unwrap();
        let (end, other) = rustix::pipe::pipe().unwrap();
        drop(other);
        assert_eq!(cancel.wait_readable(end.as_fd(), None).unwrap(), Waited::Ready);

        cancel.cancel();

        assert_eq!(cancel.wait_readable(end.as_fd(), None).unwrap(), Waited::Cancelled);
    }

    #[test]
    fn default_order_is_never_given_and_time_passes() {
        let never = Cancel::default();
        never.cancel();
        assert!(!never.is_cancelled() && !never.sleep(Duration::from_millis(1)));
        let (nothing, _open) = rustix::pipe::pipe().unwrap();
        let limit = Some(Duration::from_millis(1));
        assert_eq!(never.wait_readable(nothing.as_fd(), limit).unwrap(), Waited::TimedOut);
    }
}
