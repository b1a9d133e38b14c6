//! Which users may be served at a socket. Its mode and group decide who can connect at all; a list of users
//! narrows that. Root and the server's own user are always served: neither would gain anything there.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::SocketSpec;
use super::error::BindError;
use super::names;
use super::peer::Credentials;

/// Why a client is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("user {uid} is not among the `allow_users` of this socket")]
pub struct NotAllowed {
    /// User id.
    pub uid: u32,
}

/// The list of one socket, and how many it has turned away.
#[derive(Debug)]
pub struct Guard {
    /// The socket's path, for the log.
    socket: String,
    /// `None`: all that can connect.
    users: Option<Vec<u32>>,
    /// The server's user when the socket was made.
    own: u32,
    refused: AtomicU64,
}

impl Guard {
    /// That of a socket's settings.
    ///
    /// # Errors
    /// A user does not exist.
    pub fn new(spec: &SocketSpec) -> Result<Self, BindError> {
        let find = |name: &String| names::user_id(name).ok_or_else(|| BindError::NoUser(name.clone()));
        let users = match &spec.users {
            Some(users) => Some(users.iter().map(find).collect::<Result<_, _>>()?),
            None => None,
        };
        Ok(Self { users, ..Self::open(spec.path.display().to_string()) })
    }

    /// One that lets everybody in who can connect.
    pub(super) fn open(socket: impl fmt::Display) -> Self {
        let own = rustix::process::geteuid().as_raw();
        Self { socket: socket.to_string(), users: None, own, refused: AtomicU64::new(0) }
    }

    /// Whether a peer is served; if not, it is counted, and the log says so: of the first few, then ever more
    /// rarely.
    ///
    /// # Errors
    /// It is not.
    pub fn judge(&self, peer: &Credentials) -> Result<(), NotAllowed> {
        let Some(users) = &self.users else { return Ok(()) };
        if peer.uid == 0 || peer.uid == self.own || users.contains(&peer.uid) {
            return Ok(());
        }
        let refused = self.refused.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if refused.is_power_of_two() {
            log::warn!(
                "socket {}: {peer} was refused, whom `allow_users` does not name ({refused} refused so far)",
                self.socket
            );
        }
        Err(NotAllowed { uid: peer.uid })
    }

    /// How many were turned away.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Accepts a client at `listening` that may be served; `None` when none waits, one gave up, or one was
    /// refused. A refused client gets `farewell`.
    ///
    /// # Errors
    /// Out of descriptors or memory.
    pub fn accept(
        &self,
        listening: impl AsFd,
        farewell: impl FnOnce(NotAllowed) -> Vec<u8>,
    ) -> io::Result<Option<(OwnedFd, Credentials)>> {
        let client = match rustix::net::accept_with(listening, SocketFlags::CLOEXEC) {
            Ok(client) => client,
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let peer = Credentials::of(&client)?;
        match self.judge(&peer) {
            Ok(()) => Ok(Some((client, peer))),
            Err(refused) => {
                let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
                // A client that does not read is not waited for.
                let _ = rustix::net::send(&client, &farewell(refused), flags);
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(users: Option<&[&str]>) -> Guard {
        let users = users.map(|users| users.iter().map(|user| (*user).to_owned()).collect());
        Guard::new(&SocketSpec { users, ..SocketSpec::private("/nowhere/s") }).unwrap()
    }

    fn of_user(uid: u32) -> Credentials {
        Credentials { pid: 1, uid, gid: uid }
    }

    #[test]
    fn list_lets_its_users_in_and_root_and_the_servers_own() {
        let guard = guard(Some(&["1234", "root"]));
        let own = rustix::process::geteuid().as_raw();

        for uid in [0, 1234, own] {
            assert_eq!(guard.judge(&of_user(uid)), Ok(()));
        }
        assert_eq!(guard.judge(&of_user(1235)), Err(NotAllowed { uid: 1235 }));
        assert_eq!(guard.refused(), 1);
    }

    #[test]
    fn empty_list_lets_no_other_user_in_and_none_everybody() {
        assert!(guard(Some(&[])).judge(&of_user(1234)).is_err());
        assert_eq!(guard(None).judge(&of_user(1234)), Ok(()));
    }

    #[test]
    fn user_who_does_not_exist_is_named() {
        let users = Some(vec!["no-such-user-here".to_owned()]);
        let spec = SocketSpec { users, ..SocketSpec::private("/nowhere/s") };
        assert!(matches!(Guard::new(&spec), Err(BindError::NoUser(name)) if name == "no-such-user-here"));
    }
}
