//! Sockets to listen on: made at a path, or given as a descriptor.
//!
//! At a path, nobody can connect before owner and permissions are set (the socket is bound first, and listens
//! last), a living server keeps its path, a dead one's socket is replaced, and nothing else is ever removed.
//! Servers that start at the same time take turns by a lock on the folder.

use super::sys;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Where to listen, and who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketSpec {
    /// Path of the socket.
    pub path: PathBuf,
    /// Permissions (`0o600`: only the owner may connect).
    pub mode: u32,
    /// Group by name or number; the process's own if `None`.
    pub group: Option<String>,
}

/// Why there is nothing to listen on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// No such folder.
    #[error("The folder {folder} of socket {path} does not exist", folder = .folder.display(), path = .path.display())]
    MissingFolder {
        /// Socket.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// Longer than the kernel's address structure.
    #[error("Socket path {path} is too long: 107 bytes at most", path = .0.display())]
    TooLong(PathBuf),
    /// Somebody answers there.
    #[error("Socket {path} is in use by a running server", path = .0.display())]
    InUse(PathBuf),
    /// Something that must not be removed.
    #[error("{path} exists and is {what}, not a socket; remove it or choose another path", path = .path.display())]
    Occupied {
        /// Path.
        path: PathBuf,
        /// What is there.
        what: &'static str,
    },
    /// The group does not exist.
    #[error("Group {0:?} for the socket does not exist")]
    NoGroup(String),
    /// The descriptor is no Unix stream socket.
    #[error("Descriptor is {0}, not a Unix stream socket")]
    NotASocket(&'static str),
    /// A system call failed.
    #[error("{step} failed for socket {path}", path = .path.display())]
    System {
        /// What was tried.
        step: &'static str,
        /// Socket.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// A listening socket that was made at a path; removed from there when this is dropped.
#[derive(Debug)]
pub(super) struct OwnedSocket {
    path: PathBuf,
    /// Device and inode: what is removed must be what was made.
    identity: (u64, u64),
}

impl Drop for OwnedSocket {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|facts| (facts.dev(), facts.ino()) == self.identity && facts.file_type().is_socket());
        if ours && let Err(error) = fs::remove_file(&self.path) {
            log::debug!("Socket {} stays behind: {error}", self.path.display());
        }
    }
}

/// A source of clients.
#[derive(Debug)]
pub(super) enum Source {
    /// One client after the other.
    Listening {
        listener: UnixListener,
        /// Keeps the path while the server lives.
        _path: Option<OwnedSocket>,
    },
    /// One client, already there.
    Connected(UnixStream),
}

/// Makes a listening socket.
pub(super) fn at_path(spec: &SocketSpec) -> Result<Source, BindError> {
    let path = &spec.path;
    let system = |step| move |source| BindError::System { step, path: path.clone(), source };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let group = match &spec.group {
        Some(name) => Some(sys::group_id(name).ok_or_else(|| BindError::NoGroup(name.clone()))?),
        None => None,
    };
    let folder_file = match File::open(folder) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(BindError::MissingFolder { path: path.clone(), folder: folder.to_owned() });
        }
        Err(error) => return Err(system("Opening the folder")(error)),
    };
    // Held until the end of this function: from the look at the path until we listen there.
    folder_file.lock().map_err(system("Locking the folder"))?;
    clear(path)?;
    let socket = sys::bind(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => BindError::TooLong(path.clone()),
        io::ErrorKind::AddrInUse => BindError::InUse(path.clone()),
        _ => system("Binding")(error),
    })?;
    let facts = fs::symlink_metadata(path).map_err(system("Finding"))?;
    // Removes the socket again if one of the next steps fails.
    let owned = OwnedSocket { path: path.clone(), identity: (facts.dev(), facts.ino()) };
    if let Some(group) = group {
        std::os::unix::fs::lchown(path, None, Some(group)).map_err(system("Changing the group"))?;
    }
    fs::set_permissions(path, Permissions::from_mode(spec.mode & 0o777))
        .map_err(system("Changing the permissions"))?;
    let listener = sys::listen(socket).map_err(system("Listening"))?;
    listener.set_nonblocking(true).map_err(system("Setting the mode"))?;
    Ok(Source::Listening { listener, _path: Some(owned) })
}

/// Removes the socket of a server that is gone. Anything else that lies there is refused.
fn clear(path: &Path) -> Result<(), BindError> {
    let system = |step| move |source| BindError::System { step, path: path.to_owned(), source };
    let kind = match fs::symlink_metadata(path) {
        Ok(facts) => facts.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(system("Looking at the path")(error)),
    };
    if !kind.is_socket() {
        let what = match () {
            () if kind.is_symlink() => "a symbolic link",
            () if kind.is_dir() => "a folder",
            () if kind.is_file() => "a file",
            () => "something else",
        };
        return Err(BindError::Occupied { path: path.to_owned(), what });
    }
    match sys::try_connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(system("Removing the socket of a server that is gone"))
        }
        // Gone in the meantime.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // It answers, is too busy to, or does not let us in.
        Ok(()) | Err(_) => Err(BindError::InUse(path.to_owned())),
    }
}

/// Looks at a descriptor that a manager has given us.
pub(super) fn from_fd(fd: OwnedFd) -> Result<Source, BindError> {
    let option = |option| sys::socket_option(fd.as_fd(), option);
    let Ok(domain) = option(libc::SO_DOMAIN) else { return Err(BindError::NotASocket("no socket")) };
    if domain != libc::AF_UNIX {
        return Err(BindError::NotASocket("a socket of another family"));
    }
    if option(libc::SO_TYPE).ok() != Some(libc::SOCK_STREAM) {
        return Err(BindError::NotASocket("a Unix socket of another type"));
    }
    let system = |source| BindError::System { step: "Setting the mode", path: PathBuf::new(), source };
    if option(libc::SO_ACCEPTCONN).is_ok_and(|listening| listening != 0) {
        let listener = UnixListener::from(fd);
        listener.set_nonblocking(true).map_err(system)?;
        Ok(Source::Listening { listener, _path: None })
    } else {
        let stream = UnixStream::from(fd);
        stream.peer_addr().map_err(|_| BindError::NotASocket("a socket that nobody is connected to"))?;
        stream.set_nonblocking(false).map_err(system)?;
        Ok(Source::Connected(stream))
    }
}
