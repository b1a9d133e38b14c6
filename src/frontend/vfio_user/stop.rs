//! Ends a running server from another thread, within milliseconds.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};

use gpuvmk_host::cancel::Cancel;

/// Stops a server. Clones stop the same one; once stopped, it stays stopped.
#[derive(Clone, Debug)]
pub struct StopHandle {
    cancel: Cancel,
    /// The connection being served: shut down on stop, which ends a blocked read or write.
    session: Arc<Mutex<Option<UnixStream>>>,
}

impl StopHandle {
    /// A handle that has not been used.
    ///
    /// # Errors
    /// The kernel has no eventfd left.
    pub fn new() -> io::Result<Self> {
        Ok(Self { cancel: Cancel::new()?, session: Arc::default() })
    }

    /// Ends the server: the session is cut, and [`super::Server::run`] returns. Not for signal handlers (it
    /// takes a lock); call it from a thread that waits for signals.
    pub fn stop(&self) {
        // The session may be waiting for the answer to a request.
        self.cancel.cancel();
        self.cut_session();
    }

    /// True once [`Self::stop`] was called.
    pub fn is_stopped(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Ends the session with the present client only; the server goes on to the next one.
    pub fn cut_session(&self) {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = session.as_ref() {
            // It fails where the client has gone already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Names the connection that [`Self::stop`] cuts; `None` after it. A stop that came before cuts at once.
    pub(super) fn set_session(&self, socket: Option<&UnixStream>) -> io::Result<()> {
        let copy = socket.map(UnixStream::try_clone).transpose()?;
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = copy;
        if self.is_stopped() {
            self.cut_session();
        }
        Ok(())
    }

    /// The order to end, for what waits for others meanwhile.
    pub const fn cancel(&self) -> &Cancel {
        &self.cancel
    }
}
