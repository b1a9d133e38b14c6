//! A connection to a back end, without a wait: one that listens and takes nobody would make us wait for as
//! long as it likes.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Connects, or fails at once.
pub(super) fn connected(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(socket);
    // `vhost` waits; [`super::deadline`] ends that.
    stream.set_nonblocking(false)?;
    Ok(stream)
}
