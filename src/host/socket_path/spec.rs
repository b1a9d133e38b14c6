//! An operator's settings of a socket.

use std::path::PathBuf;

/// A listening socket: where, and who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketSpec {
    /// Path of the socket.
    pub path: PathBuf,
    /// Permission bits of the socket.
    pub mode: u32,
    /// Group that owns it.
    pub group: Option<String>,
    /// Users, by name or number, who are served of those who can connect; `None`: all of them.
    pub users: Option<Vec<String>>,
}

impl SocketSpec {
    /// One for this process's user only.
    pub fn private(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: 0o600, group: None, users: None }
    }
}
