//! What the daemons tell the service manager that started them, from inside of their jails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[path = "common/daemon.rs"]
mod daemon;

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use daemon::{Daemon, write_gpu, write_vm};

/// The manager's end.
struct Manager(UnixDatagram);

impl Manager {
    fn new(folder: &Path) -> Self {
        let socket = UnixDatagram::bind(folder.join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(socket)
    }

    fn hears(&self) -> String {
        let mut bytes = [0; 256];
        let length = self.0.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    fn start(folder: &Path, label: &str, arguments: &[&str]) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
        command.args(arguments).env("NOTIFY_SOCKET", folder.join("notify")).env("WATCHDOG_USEC", "200000");
        Daemon::spawn(folder, label, command)
    }
}

#[test]
fn daemons_say_when_they_serve_that_they_live_and_that_they_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_gpu(path, "GF100");
    write_vm(path, "vm1", "GF100", "");

    let manager = Manager::new(path);
    let mut aggregator = Manager::start(path, "aggregator", &["aggregator", "gpu0.toml"]);
    assert_eq!(manager.hears(), "READY=1\nSTATUS=serves at gpu0.sock");
    assert!(path.join("gpu0.sock").exists(), "ready before it serves");
    assert_eq!([manager.hears(), manager.hears()], ["WATCHDOG=1", "WATCHDOG=1"]);

    let other = tempfile::tempdir().unwrap();
    let its_manager = Manager::new(other.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
    command.args(["device", "vm1.toml"]).env("NOTIFY_SOCKET", other.path().join("notify"));
    let mut device = Daemon::spawn(path, "device", command);
    assert_eq!(its_manager.hears(), "READY=1\nSTATUS=serves vm1");
    assert!(device.terminate().success());
    assert_eq!(its_manager.hears(), "STOPPING=1");

    assert!(aggregator.terminate().success());
    let last = std::iter::repeat_with(|| manager.hears()).find(|said| said != "WATCHDOG=1");
    assert_eq!(last.unwrap(), "STOPPING=1");
}

#[test]
fn manager_that_cannot_be_reached_is_named_and_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_gpu(path, "GF100");
    let mut aggregator = Manager::start(path, "aggregator", &["aggregator", "gpu0.toml"]);
    assert!(!aggregator.end().success());
    assert!(aggregator.said().contains("service manager"), "{}", aggregator.said());
    assert!(!path.join("gpu0.sock").exists());
}
