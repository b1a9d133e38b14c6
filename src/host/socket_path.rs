//! Listening Unix sockets, of every server here.
//!
//! A socket at a path gets its owner and permissions before any process can connect. It never replaces a
//! living server's socket, nor anything that is not a dead server's socket, and is removed when its server
//! ends. Another user's leftover stays, and clients check whose server it is. Servers that start at the same
//! time take turns by a lock on the folder. A socket that a manager gives as a descriptor is used as it is,
//! and left.

mod error;
mod guard;
pub mod names;
pub mod peer;
mod spec;
#[cfg(test)]
mod tests;

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

pub use self::error::BindError;
pub use self::guard::{Guard, NotAllowed};
use self::peer::Credentials;
pub use self::spec::SocketSpec;

/// Clients that may wait to be accepted.
const BACKLOG: i32 = 64;

/// A listening socket; one that was made at a path is removed from there when this is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    guard: Arc<Guard>,
    /// Keeps the path while the server lives.
    _made: Option<MadeSocket>,
}

impl Listener {
    /// Listens, without blocking in `accept`, with sockets of `kind`.
    ///
    /// # Errors
    /// See [`BindError`]; nothing is left behind.
    pub fn bind(spec: &SocketSpec, kind: SocketType) -> Result<Self, BindError> {
        let path = &spec.path;
        let system = |step| move |source: io::Error| BindError::System { step, path: path.clone(), source };
        let address = SocketAddrUnix::new(path).map_err(|_| BindError::TooLong(path.clone()))?;
        let group = match &spec.group {
            Some(name) => Some(names::group_id(name).ok_or_else(|| BindError::NoGroup(name.clone()))?),
            None => None,
        };
        let guard = Arc::new(Guard::new(spec)?);
        let folder = folder_of(path);
        let folder_file = File::open(folder).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                BindError::MissingFolder { path: path.clone(), folder: folder.to_owned() }
            }
            _ => system("Opening the folder")(error),
        })?;
        // Held to the end of this function: from the look at the path until we listen there.
        folder_file.lock().map_err(system("Locking the folder"))?;
        clear(path, &address, kind)?;
        let socket = new_socket(kind, SocketFlags::NONBLOCK)
            .map_err(|errno| system("Making a socket")(errno.into()))?;
        rustix::net::bind(&socket, &address).map_err(|errno| match errno {
            Errno::ADDRINUSE => BindError::InUse(path.clone()),
            other => system("Binding")(other.into()),
        })?;
        let facts = fs::symlink_metadata(path).map_err(system("Finding"))?;
        // From here on, an early return removes the path again.
        let made = MadeSocket { path: path.clone(), identity: (facts.dev(), facts.ino()) };
        if group.is_some() {
            std::os::unix::fs::lchown(path, None, group).map_err(system("Changing the group"))?;
        }
        fs::set_permissions(path, Permissions::from_mode(spec.mode & 0o777))
            .map_err(system("Changing the permissions"))?;
        rustix::net::listen(&socket, BACKLOG).map_err(|errno| system("Listening")(errno.into()))?;
        Ok(Self { socket, guard, _made: Some(made) })
    }

    /// Takes over a stream socket that listens already; it no longer blocks in `accept`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn given(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self { socket, guard: Arc::new(Guard::open("that was given")), _made: None })
    }

    /// The same, for those only whom `guard` lets in.
    #[must_use]
    pub fn guarded(self, guard: Guard) -> Self {
        Self { guard: Arc::new(guard), ..self }
    }

    /// The guard that judges clients.
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// The listening socket.
    pub fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// A second owner of the same socket, who does not remove its path.
    ///
    /// # Errors
    /// Out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, guard: Arc::clone(&self.guard), _made: None })
    }

    /// Accepts a client that the [`Guard`] lets in. `None` when none waits, one gave up, or one was refused;
    /// a refused client gets `farewell` and is closed.
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn accept_allowed(
        &self,
        farewell: impl FnOnce(NotAllowed) -> Vec<u8>,
    ) -> io::Result<Option<(OwnedFd, Credentials)>> {
        self.guard.accept(&self.socket, farewell)
    }

    /// Accepts any client, for the one thread that closes nothing itself. `None` when none waits (or one gave
    /// up).
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn accept(&self) -> io::Result<Option<OwnedFd>> {
        match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
            Ok(client) => Ok(Some(client)),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A socket that was made at a path.
#[derive(Debug)]
struct MadeSocket {
    path: PathBuf,
    /// Device and inode: what is removed must be what was made.
    identity: (u64, u64),
}

impl Drop for MadeSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|facts| (facts.dev(), facts.ino()) == self.identity && facts.file_type().is_socket());
        if ours && let Err(error) = fs::remove_file(&self.path) {
            log::debug!("Socket {} stays behind: {error}", self.path.display());
        }
    }
}

/// Connects to a server at a path. The server must be root's, this user's, or the folder owner's. (Any user
/// may make a socket in a folder like `/tmp`, and a client would hand it a guest's memory.)
///
/// # Errors
/// None is there, it does not let us in, or it is another user's.
pub fn connect_trusted(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    let socket = connect(path, kind)?;
    let server = Credentials::of(&socket)?.uid;
    let known = server == 0 || server == rustix::process::geteuid().as_raw();
    if !known && fs::metadata(folder_of(path))?.uid() != server {
        let text = format!(
            "a server of user {server} answers, who is neither root nor this user nor the owner of the folder"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(socket)
}

/// The folder of a path.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Connects to a server at a path.
///
/// # Errors
/// None is there, or it does not let us in.
pub fn connect(path: &Path, kind: SocketType) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = new_socket(kind, SocketFlags::empty())?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket)
}

fn new_socket(kind: SocketType, flags: SocketFlags) -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC | flags, None)
}

/// Removes the socket of a server that is gone. Anything else that lies there is refused.
fn clear(path: &Path, address: &SocketAddrUnix, kind: SocketType) -> Result<(), BindError> {
    let system = |step| move |source: io::Error| BindError::System { step, path: path.to_owned(), source };
    let facts = match fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system("AdaptivePoll at the path")(error)),
    };
    let what = match facts.file_type() {
        file if file.is_socket() => None,
        file if file.is_symlink() => Some("a symbolic link"),
        file if file.is_dir() => Some("a folder"),
        file if file.is_file() => Some("a file"),
        _ => Some("something else"),
    };
    if let Some(what) = what {
        return Err(BindError::Occupied { path: path.to_owned(), what });
    }
    let probe =
        new_socket(kind, SocketFlags::NONBLOCK).map_err(|errno| system("Making a socket")(errno.into()))?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) if facts.uid() != rustix::process::geteuid().as_raw() => {
            Err(BindError::Foreign { path: path.to_owned(), uid: facts.uid() })
        }
        Err(Errno::CONNREFUSED) => {
            fs::remove_file(path).map_err(system("Removing the socket of a server that is gone"))
        }
        Err(Errno::NOENT) => Ok(()),
        // It answers, speaks another kind of socket, is too busy, or does not let us in.
        Ok(()) | Err(_) => Err(BindError::InUse(path.to_owned())),
    }
}
