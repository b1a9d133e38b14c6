//! Messages to a service manager (sd_notify(3)): that a daemon is ready, its status, that it ends, that it
//! lives. And the socket that the manager may have made for a daemon (sd_listen_fds(3)).
//!
//! The socket is opened before the jail, and messages are plain writes, which every thread may make. Without
//! a manager nothing is sent.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::fd::RawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// Tells the service manager.
#[derive(Clone, Debug, Default)]
pub struct Manager {
    socket: Option<Arc<UnixDatagram>>,
    watchdog: Option<Duration>,
}

impl Manager {
    /// The manager that started this process, by its environment. Must be called before the jail.
    ///
    /// # Errors
    /// There is one, and its socket cannot be reached.
    pub fn of_this_process() -> io::Result<Self> {
        let watchdog = watchdog(
            env::var("WATCHDOG_USEC").ok().as_deref(),
            env::var("WATCHDOG_PID").ok().as_deref(),
            std::process::id(),
        );
        match env::var_os("NOTIFY_SOCKET") {
            Some(place) => Self::at(&place, watchdog),
            None => Ok(Self::default()),
        }
    }

    fn at(place: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match place.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A manager that does not read must not hold a daemon up.
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Some(Arc::new(socket)), watchdog })
    }

    /// The daemon serves.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", line(status)));
    }

    /// The daemon ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// The daemon lives.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    /// How often [`Manager::alive`] must be called: twice in the time after which the manager loses patience.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|limit| limit / 2)
    }

    fn tell(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        // A failure to reach the manager can be reported nowhere else.
        if let Err(error) = rustix::io::write(socket, message.as_bytes()) {
            log::debug!("the service manager was not told: {error}");
        }
    }
}

/// The socket on which the manager has listened for this process until now; none where it has none for it.
///
/// # Errors
/// There are several, and it is unclear which is which.
pub fn listener() -> Result<Option<RawFd>, SeveralSockets> {
    let of = |name| env::var(name).ok();
    listener_of(of("LISTEN_PID").as_deref(), of("LISTEN_FDS").as_deref(), std::process::id())
}

/// The manager handed over another number of sockets than one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("The service manager hands over {0} sockets (LISTEN_FDS); a device back end has one, for QEMU")]
pub struct SeveralSockets(String);

/// Where descriptors of the manager begin.
const FIRST: RawFd = 3;

fn listener_of(pid: Option<&str>, count: Option<&str>, own: u32) -> Result<Option<RawFd>, SeveralSockets> {
    // Variables that a parent left in the environment are not meant for this process.
    match (pid.and_then(|pid| pid.parse::<u32>().ok()), count) {
        (Some(pid), Some("1")) if pid == own => Ok(Some(FIRST)),
        (Some(pid), Some(count)) if pid == own => Err(SeveralSockets(count.to_owned())),
        _ => Ok(None),
    }
}

/// The first line of a text: a second one would be another assignment.
fn line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// After which time without a sign the manager restarts this process.
fn watchdog(micros: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    let meant = pid.is_none_or(|pid| pid.parse() == Ok(own));
    let micros: u64 = micros?.parse().ok().filter(|micros| *micros > 0 && meant)?;
    Some(Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_is_taken_only_by_the_process_that_is_meant() {
        let of = |pid, count| listener_of(pid, count, 77);
        assert_eq!(of(Some("77"), Some("1")), Ok(Some(3)));
        for (pid, count) in [(None, None), (Some("78"), Some("1")), (None, Some("1")), (Some("x"), Some("1"))]
        {
            assert_eq!(of(pid, count), Ok(None));
        }
        let several = of(Some("77"), Some("2")).unwrap_err().to_string();
        assert!(several.contains("hands over 2 sockets"), "{several}");
    }

    #[test]
    fn manager_hears_what_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let manager = Manager::at(path.as_os_str(), None).unwrap();
        manager.ready("serves\nMAINPID=1");
        manager.alive();
        manager.stopping();

        let heard = || {
            let mut bytes = [0; 64];
            let length = socket.recv(&mut bytes).unwrap();
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        assert_eq!([heard(), heard(), heard()], ["READY=1\nSTATUS=serves", "WATCHDOG=1", "STOPPING=1"]);
    }

    #[test]
    fn abstract_socket_is_reached_and_an_absent_one_is_an_error() {
        let name = format!("gpuvmk-test-{}", std::process::id());
        let socket =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap();
        Manager::at(OsStr::new(&format!("@{name}")), None).unwrap().alive();

        let mut bytes = [0; 16];
        assert_eq!(socket.recv(&mut bytes).unwrap(), 10);
        assert!(Manager::at(OsStr::new("/no/such/socket"), None).is_err());
    }

    #[test]
    fn watchdog_is_for_the_process_that_is_meant() {
        assert_eq!(watchdog(Some("3000000"), None, 7), Some(Duration::from_secs(3)));
        assert_eq!(watchdog(Some("3000000"), Some("7"), 7), Some(Duration::from_secs(3)));
        assert_eq!(watchdog(Some("3000000"), Some("8"), 7), None);
        assert_eq!(watchdog(Some("0"), None, 7), None);
        assert_eq!(watchdog(None, None, 7), None);
    }

    #[test]
    fn without_a_manager_nothing_is_told() {
        let manager = Manager::default();
        manager.ready("serves");

        assert_eq!(manager.watchdog_interval(), None);
    }
}
