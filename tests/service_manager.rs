//! What the daemons tell the service manager that started them, from inside of their jails.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[path = "common/client.rs"]
mod client;
#[path = "common/daemon.rs"]
mod daemon;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use client::Client;
use daemon::{Daemon, until, write_gpu, write_vm};

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

/// As systemd does for `gpuvmk-device@.socket`: it listens, and hands the socket over as descriptor 3.
#[test]
fn device_serves_at_the_socket_that_the_manager_listened_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_gpu(path, "GF100");
    // The file's own socket is not made then.
    write_vm(path, "vm1", "GF100", "");
    let mut aggregator = Daemon::start(path, "aggregator", &["aggregator", "gpu0.toml"]);
    aggregator.wait_for("serves at");

    let activated = path.join("activated.sock");
    let listener = UnixListener::bind(&activated).unwrap();
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).unwrap();
    let start = |count: &str| {
        let mut command = Command::new("sh");
        let script = format!(
            "exec 3<&{}; export LISTEN_FDS={count} LISTEN_PID=$$; exec {} device vm1.toml",
            listener.as_raw_fd(),
            env!("CARGO_BIN_EXE_gpuvmk")
        );
        command.args(["-c", &script]);
        Daemon::spawn(path, "device", command)
    };
    let mut refused = start("2");
    assert!(!refused.end().success());
    assert!(refused.said().contains("hands over 2 sockets"), "{}", refused.said());

    // QEMU may connect before the device back end is there.
    let waiting = UnixStream::connect(&activated).unwrap();
    let mut device = start("1");
    device.wait_for("serves");
    drop(waiting);
    let mut client = Client::negotiated(&activated);
    assert_eq!(client.read(7, 0, 2).body[16..], [0xde, 0x10]);
    assert!(!path.join("vm1.sock").exists());
    assert!(device.terminate().success());
    assert!(activated.exists(), "the socket is the manager's");
    assert!(aggregator.terminate().success());
}

/// The journal gets priorities and no times; whoever has sent standard error elsewhere gets lines as always.
#[test]
fn journal_gets_priorities() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_gpu(path, "GF100");
    for journal in [true, false] {
        let log = path.join(format!("journal-{journal}"));
        let open = || File::options().create(true).append(true).open(&log).unwrap();
        let file = open();
        let stat = rustix::fs::fstat(&file).unwrap();
        let stream = format!("{}:{}", stat.st_dev, stat.st_ino + u64::from(!journal));
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
        command
            .args(["aggregator", "gpu0.toml"])
            .current_dir(path)
            .env("JOURNAL_STREAM", stream)
            .stderr(file);
        let mut aggregator = command.spawn().unwrap();
        let said = || std::fs::read_to_string(&log).unwrap();
        until("it serves", || said().contains("serves at"));
        // A second one finds the socket taken, and says so at its end.
        let output = command.stderr(open()).output().unwrap();
        assert!(!output.status.success());
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&aggregator),
            rustix::process::Signal::TERM,
        )
        .unwrap();
        assert!(aggregator.wait().unwrap().success());
        let is_prefixed = |line: &str| line.starts_with('<') && line.as_bytes().get(2) == Some(&b'>');
        assert!(said().lines().all(|line| is_prefixed(line) == journal), "{}", said());
        assert_eq!(said().contains("<3>gpuvmk: "), journal, "{}", said());
    }
}
