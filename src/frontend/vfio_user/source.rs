//! Where clients come from: a socket at a path, or one that a manager has given as a descriptor.

use gpuvmk_host::socket_path::SocketSpec;
use gpuvmk_host::socket_path::{BindError, Guard, Listener};
use rustix::net::{AddressFamily, SocketType, sockopt};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// A source of clients.
#[derive(Debug)]
pub(super) enum Source {
    /// One client after the other.
    Listening(Listener),
    /// One client that is connected already, and the guard that judges it; `None`: any process.
    Connected(UnixStream, Option<Guard>),
}

impl Source {
    /// Makes a listening socket.
    pub(super) fn at_path(spec: &SocketSpec) -> Result<Self, BindError> {
        Ok(Self::Listening(Listener::bind(spec, SocketType::STREAM)?))
    }

    /// The same, for those only whom `guard` lets in.
    pub(super) fn guarded(self, guard: Guard) -> Self {
        match self {
            Self::Listening(listener) => Self::Listening(listener.guarded(guard)),
            Self::Connected(stream, _) => Self::Connected(stream, Some(guard)),
        }
    }

    /// Looks at a descriptor that a manager has given us.
    pub(super) fn given(fd: OwnedFd) -> Result<Self, BindError> {
        let Ok(family) = sockopt::socket_domain(&fd) else { return Err(BindError::NotASocket("no socket")) };
        if family != AddressFamily::UNIX {
            return Err(BindError::NotASocket("a socket of another family"));
        }
        if sockopt::socket_type(&fd) != Ok(SocketType::STREAM) {
            return Err(BindError::NotASocket("a Unix socket of another type"));
        }
        let system = |source| BindError::System { step: "Setting the mode", path: PathBuf::new(), source };
        if sockopt::socket_acceptconn(&fd) == Ok(true) {
            return Ok(Self::Listening(Listener::given(fd).map_err(system)?));
        }
        let stream = UnixStream::from(fd);
        stream.peer_addr().map_err(|_| BindError::NotASocket("a socket that nobody is connected to"))?;
        stream.set_nonblocking(false).map_err(system)?;
        Ok(Self::Connected(stream, None))
    }
}
