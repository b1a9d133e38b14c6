//! Takes clients, one at a time, and serves each with the same function.

use super::door::Door;
use super::no_migration::NoMigration;
use super::poll::USUAL as USUAL_POLL;
use super::session::{self, SessionEnd, SessionObserver};
use super::source::Source;
use super::stop::StopHandle;
use gpuvmk_host::cancel::Waited;
use gpuvmk_host::socket_path::SocketSpec;
use gpuvmk_host::socket_path::peer::Credentials;
use gpuvmk_host::socket_path::{BindError, Guard, Listener, NotAllowed};
use gpuvmk_pci::PciFunction;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

/// Wait after a failed `accept`: it fails for want of descriptors or memory, which does not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why a server ended without an order.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Waiting for clients failed.
    #[error("Waiting for clients failed")]
    Wait(#[source] io::Error),
    /// There is no thread for clients that come while the device is taken.
    #[error("Cannot start the thread that answers clients while the device is taken")]
    Door(#[source] io::Error),
    /// The one client that there is may not be served.
    #[error("The client may not be served")]
    NotAllowed(#[from] NotAllowed),
}

/// A vfio-user server.
#[derive(Debug)]
pub struct Server {
    source: Source,
    poll: Duration,
    /// Keeps QEMU from migrating while the server lives.
    _no_migration: Option<NoMigration>,
}

impl Server {
    /// Listens at a path.
    ///
    /// # Errors
    /// The path is taken, its folder is missing, or the kernel refuses.
    pub fn bind(spec: &SocketSpec) -> Result<Self, BindError> {
        Ok(Self { source: Source::at_path(spec)?, poll: USUAL_POLL, _no_migration: None })
    }

    /// Uses a socket that a manager has opened: one that listens (clients are taken one after the other), or
    /// one with a client (the server ends with it).
    ///
    /// # Errors
    /// The descriptor is no Unix stream socket.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, BindError> {
        Ok(Self { source: Source::given(fd)?, poll: USUAL_POLL, _no_migration: None })
    }

    /// Serves those only whom `guard` lets in.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Self {
        Self { source: self.source.guarded(guard), ..self }
    }

    /// Looks for a client's next message for so long, at most, before it sleeps, in place of [`USUAL_POLL`];
    /// zero: never.
    #[must_use]
    pub const fn with_poll(mut self, most: Duration) -> Self {
        self.poll = most;
        self
    }

    /// Keeps a file for QEMU for as long as the server is there.
    #[must_use]
    pub fn with_no_migration(mut self, file: NoMigration) -> Self {
        self._no_migration = Some(file);
        self
    }

    /// Serves clients on this thread until stopped, or until the one client of a connected socket goes.
    ///
    /// # Errors
    /// Waiting for clients failed. A client's mistake ends its session only.
    pub fn run(
        &self,
        function: &Arc<dyn PciFunction>,
        observer: &dyn SessionObserver,
        stop: &StopHandle,
    ) -> Result<(), ServeError> {
        match &self.source {
            Source::Connected(socket, guard) => {
                let peer = Credentials::of(socket).map_err(ServeError::Wait)?;
                if let Some(guard) = guard {
                    guard.judge(&peer)?;
                }
                serve_one(socket, function.as_ref(), observer, self.poll, stop);
                Ok(())
            }
            Source::Listening(listener) => {
                let door = Arc::new(Door::default());
                let also = listener.try_clone().map_err(ServeError::Door)?;
                door.keep(also, stop).map_err(ServeError::Door)?;
                let served = serve_all(listener, &door, stop, |socket| {
                    serve_one(socket, function.as_ref(), observer, self.poll, stop);
                });
                door.close();
                served
            }
        }
    }
}

/// Serves one client after the other until stopped.
fn serve_all(
    listener: &Listener,
    door: &Door,
    stop: &StopHandle,
    mut serve: impl FnMut(&UnixStream),
) -> Result<(), ServeError> {
    let mut number = 0;
    while let Some(socket) = accept(listener, stop)? {
        let socket = Arc::new(socket);
        number += 1;
        door.take(number, &socket);
        serve(&socket);
        door.free();
    }
    Ok(())
}

/// The next client; `None` once stopped.
fn accept(listener: &Listener, stop: &StopHandle) -> Result<Option<UnixStream>, ServeError> {
    let mut told = false;
    loop {
        let waited = stop.cancel().wait_readable(listener.socket().as_fd(), None);
        if waited.map_err(ServeError::Wait)? == Waited::Cancelled {
            return Ok(None);
        }
        // A client that speaks vfio-user understands no word before it has asked.
        match listener.accept_allowed(|_| Vec::new()) {
            Ok(Some((socket, _))) => return Ok(Some(socket.into())),
            // The client has left the queue again, or was turned away.
            Ok(None) => {}
            Err(error) => {
                if !told {
                    log::error!("A client cannot be accepted, trying again: {error}");
                    told = true;
                }
                stop.cancel().sleep(ACCEPT_PAUSE);
            }
        }
    }
}

fn serve_one(
    socket: &UnixStream,
    function: &dyn PciFunction,
    observer: &dyn SessionObserver,
    poll: Duration,
    stop: &StopHandle,
) {
    if let Err(error) = stop.set_session(Some(socket)) {
        log::error!("A client is turned away: {error}");
        return;
    }
    let end = session::serve(socket, function, observer, poll, stop);
    // Without a copy to let go of, this cannot fail.
    let _ = stop.set_session(None);
    // The client must see the end even where another process still holds the descriptor (`--fd`).
    let _ = socket.shutdown(std::net::Shutdown::Both);
    match &end {
        SessionEnd::Closed | SessionEnd::Stopped => log::info!("{end}"),
        SessionEnd::Stream(_) | SessionEnd::Negotiation(_) | SessionEnd::Send(_) => {
            log::warn!("Session ended: {end}");
        }
    }
}
