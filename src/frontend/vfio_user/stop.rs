//! Ends a running server from another thread, within milliseconds.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

#[derive(Debug)]
struct Shared {
    stopped: AtomicBool,
    /// Readable for ever once stopped: wakes the wait for a client.
    event: EventFd,
    /// The connection being served: shut down on stop, which ends a blocked read or write.
    session: Mutex<Option<UnixStream>>,
}

/// Stops a server. Clones stop the same one; once stopped, it stays stopped.
#[derive(Clone, Debug)]
pub struct StopHandle(Arc<Shared>);

impl StopHandle {
    /// A handle that has not been used.
    ///
    /// # Errors
    /// The kernel has no eventfd left.
    pub fn new() -> io::Result<Self> {
        let event = EventFd::new(EFD_NONBLOCK)?;
        Ok(Self(Arc::new(Shared { stopped: AtomicBool::new(false), event, session: Mutex::new(None) })))
    }

    /// Ends the server: the session is cut, and [`super::Server::run`] returns. Not for signal handlers (it
    /// takes a lock); call it from a thread that waits for signals.
    pub fn stop(&self) {
        self.0.stopped.store(true, Ordering::SeqCst);
        // The counter cannot overflow: nobody adds more than one at a time.
        let _ = self.0.event.write(1);
        self.cut_session();
    }

    /// True once [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::SeqCst)
    }

    /// Ends the session with the present client only; the server goes on to the next one.
    pub fn cut_session(&self) {
        let session = self.0.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = session.as_ref() {
            // It fails where the client has gone already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Names the connection that [`Self::stop`] cuts; `None` after it. A stop that came before cuts at once.
    pub(super) fn set_session(&self, socket: Option<&UnixStream>) -> io::Result<()> {
        let copy = socket.map(UnixStream::try_clone).transpose()?;
        *self.0.session.lock().unwrap_or_else(PoisonError::into_inner) = copy;
        if self.is_stopped() {
            self.cut_session();
        }
        Ok(())
    }

    /// Waits for so long, or until stopped.
    pub(super) fn wait(&self, time: Duration) {
        let time = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let mut entries = [PollFd::from_borrowed_fd(super::sys::borrow(&self.0.event), PollFlags::IN)];
        // A signal that comes meanwhile only makes it shorter.
        let _ = poll(&mut entries, Some(&time));
    }

    /// Readable once stopped.
    pub(super) fn event(&self) -> impl AsFd + '_ {
        struct Event<'a>(&'a EventFd);
        impl AsFd for Event<'_> {
            fn as_fd(&self) -> BorrowedFd<'_> {
                super::sys::borrow(self.0)
            }
        }
        Event(&self.0.event)
    }
}
