//! Why a server has no socket.

use std::io;
use std::path::PathBuf;

/// Why there is nothing to listen on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// No such folder.
    #[error("The folder {folder} of socket {path} does not exist", folder = .folder.display(), path = .path.display())]
    MissingFolder {
        /// Path of the socket.
        path: PathBuf,
        /// Path of its folder.
        folder: PathBuf,
    },
    /// Longer than the kernel's address structure.
    #[error("Socket path {path} is too long: 107 bytes at most", path = .0.display())]
    TooLong(PathBuf),
    /// A server answers there.
    #[error("Socket {path} is in use by a running server", path = .0.display())]
    InUse(PathBuf),
    /// Something that must not be removed.
    #[error("{path} exists and is {what}, not a socket; remove it or choose another path", path = .path.display())]
    Occupied {
        /// Its path.
        path: PathBuf,
        /// The kind of file that is there.
        what: &'static str,
    },
    /// The socket of a server that is gone, of another user: whether it may go is not ours to say.
    #[error(
        "Socket {path} was left behind by a server of user {uid}; remove it or choose another path",
        path = .path.display()
    )]
    Foreign {
        /// Its path.
        path: PathBuf,
        /// Id of the user who owns it.
        uid: u32,
    },
    /// The group does not exist.
    #[error("Group {0:?} for the socket does not exist")]
    NoGroup(String),
    /// A user that a socket's list names does not exist.
    #[error("User {0:?} in `allow_users` of the socket does not exist")]
    NoUser(String),
    /// A descriptor from outside is no listening socket.
    #[error("Descriptor is {0}, not a Unix stream socket")]
    NotASocket(&'static str),
    /// A system call failed.
    #[error("{step} failed for socket {path}", path = .path.display())]
    System {
        /// The step that failed.
        step: &'static str,
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}
