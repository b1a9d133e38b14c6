//! Backends as processes of their own: killed, stopped, or alive behind a closed connection. Each test starts
//! this very program again as the backend.

#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests may fail as tests do"
)]

#[path = "common/soft_host.rs"]
mod soft_host;
#[path = "common/tenant.rs"]
mod tenant;

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use gpuvmk::aggregator::protocol::Hello;
use gpuvmk::aggregator::{Config, LinkTimeouts, Service, ServiceHandle, connect};
use gpuvmk::chip::Chip;
use gpuvmk::host::socket_path::SocketSpec;
use gpuvmk::pci::mapping::{Access, FilePiece, Mapping};
use gpuvmk::scheduler::policy::PolicyKind;
use soft_host::soft_gpu;
use tenant::{DATA, RAM_VA, Tenant, VRAM_VA, hello, pattern, wait_until};

const MIB: u64 = 1 << 20;
/// All that the GPU of these tests has for tenants is less than two of these.
const MOST: u64 = 64 * MIB;
const SOCKET: &str = "GPUVMK_TEST_SOCKET";

struct Host {
    service: ServiceHandle,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        Self::of(Chip::GF100)
    }

    fn of(chip: Chip) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gpu0.sock");
        let (driver, ledger) = soft_gpu(chip, 128 * MIB);
        let socket = Some(SocketSpec::private(path.clone()));
        let config = Config { socket, ..Config::in_process(PolicyKind::Fifo) };
        let service = Service::start(driver, Some(ledger), &config).unwrap();
        Self { service, path, _folder: folder }
    }

    fn join(&self, name: &str, vram: u64) -> Tenant {
        let (link, grant) = connect(&self.path, hello(name, vram), &LinkTimeouts::none()).unwrap();
        Tenant::new(link, &grant)
    }
}

/// Another process with a connection.
struct Backend {
    child: Child,
    stdin: ChildStdin,
    /// Deferred open: what the process says after its first lines must not fail.
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Backend {
    /// Starts one, and waits until it is admitted and has work on the GPU.
    fn start(path: &Path) -> Self {
        Self::run("the_other_process", path)
    }

    /// Runs one of these tests in a process of its own, until it says that it is ready.
    fn run(test: &str, path: &Path) -> Self {
        Self::hear(test, path, |_| {})
    }

    /// The same, and hears what it says before.
    fn hear(test: &str, path: &Path, hear: impl FnMut(&str)) -> Self {
        Self::hear_as(test, path, "GF100", hear)
    }

    /// The same for a tenant of such a GPU.
    fn hear_as(test: &str, path: &Path, chip: &str, mut hear: impl FnMut(&str)) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", test, "--nocapture"])
            .env(SOCKET, path)
            .env("GPUVMK_TEST_CHIP", chip)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.any(|line| {
            let line = line.unwrap();
            hear(&line);
            line.contains("ready")
        });
        assert!(ready, "the backend did not come up");
        Self { child, stdin, _stdout: lines }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: the backend that the tests start.
#[test]
#[ignore = "started by the other tests"]
fn the_other_process() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let (link, grant) = connect(Path::new(&path), hello("other", MOST), &LinkTimeouts::none()).unwrap();
    let mut tenant = Tenant::new(link, &grant);
    tenant.channel(0, 0);
    tenant.channel(1, 1);
    tenant.list(&[0, 1]);
    tenant.window.fill(DATA, MOST - DATA, 0xa5).unwrap();
    for _ in 0..8 {
        tenant.copy(0, 0, VRAM_VA + DATA, VRAM_VA + 2 * DATA, 4 * MIB);
    }
    tenant.acquire_for_ever(1);
    println!("ready");
    let mut lines = std::io::stdin().lines();
    // "leave": the connection goes, the memory stays mapped.
    lines.next();
    let Tenant { link, window, .. } = tenant;
    drop(link);
    lines.next();
    drop(window);
}

fn assert_zero(tenant: &Tenant) {
    let mut seen = vec![0xff; tenant.vram as usize];
    tenant.window.read(0, &mut seen).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0), "something of the last tenant was left behind");
}

#[test]
fn killed_backend_gives_everything_back_in_time() {
    let host = Host::new();
    for _ in 0..3 {
        let other = Backend::start(&host.path);

        other.signal("-KILL");
        let start = Instant::now();
        // Waits in the aggregator until the room is there.
        let next = host.join("next", MOST);

        assert!(start.elapsed() < Duration::from_secs(2), "it took {:?}", start.elapsed());
        assert_zero(&next);
        drop(next);
        wait_until("the tenants to be gone", || host.service.status().unwrap().tenants.is_empty());
    }
}

#[test]
fn memory_of_a_process_that_lives_on_is_not_given_away() {
    let host = Host::new();
    let mut other = Backend::start(&host.path);
    other.tell("leave");
    let leaving = || host.service.status().unwrap().tenants.iter().any(|t| t.state == "leaving");
    wait_until("the other to leave", leaving);

    let next = std::thread::scope(|scope| {
        let next = scope.spawn(|| host.join("next", MOST));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!next.is_finished(), "memory was given away that another process still has mapped");
        other.tell("end");
        next.join().unwrap()
    });

    assert_zero(&next);
}

#[test]
fn stopped_backend_holds_nobody_up() {
    let host = Host::new();
    // Less, so that both fit.
    let other = Backend::start(&host.path);
    let mut ours = host.join("ours", 32 * MIB);
    ours.channel(0, 0);
    ours.list(&[0]);
    other.signal("-STOP");

    let data = pattern(1, 64 << 10);
    ours.ram.write(0, &data).unwrap();
    for round in 0..2000 {
        ours.copy(0, 0, RAM_VA, VRAM_VA + DATA, 64 << 10);
        assert!(ours.finishes_within(0, Duration::from_secs(5)), "round {round}");
    }

    other.signal("-CONT");
    assert_eq!(host.service.status().unwrap().tenants.len(), 2);
}

#[test]
fn aggregators_end_reaches_the_other_process() {
    let host = Host::new();
    let mut other = Backend::start(&host.path);
    let Host { service, path, _folder } = host;

    drop(service);
    other.tell("leave");
    other.tell("end");

    assert!(other.child.wait().unwrap().success());
    assert!(!path.exists());
}

/// Not a test: a process that connects as often as it can and says nothing.
#[test]
#[ignore = "started by the other tests"]
fn the_silent_process() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let connect =
        |_| gpuvmk::host::socket_path::connect(Path::new(&path), rustix::net::SocketType::SEQPACKET);
    let all: Vec<_> = (0..60).map(connect).collect();
    println!("ready");
    std::io::stdin().lines().next();
    drop(all);
}

#[test]
fn silent_connections_of_one_process_keep_nobody_out() {
    let host = Host::new();
    let _silent = Backend::run("the_silent_process", &host.path);

    // Connections come in the order in which they were made: this one behind all the silent ones.
    let start = Instant::now();
    let ours = host.join("ours", 32 * MIB);

    assert!(start.elapsed() < Duration::from_secs(2), "it took {:?}", start.elapsed());
    assert_zero(&ours);
}

/// Not a test: a backend that says where its window is open.
#[test]
#[ignore = "started by the other tests"]
fn the_process_that_hands_its_window_on() {
    let Some(path) = std::env::var_os(SOCKET) else { return };
    let chip = std::env::var("GPUVMK_TEST_CHIP").unwrap();
    let wish = Hello { chip: chip.into(), ..hello("other", MOST) };
    let (link, grant) = connect(Path::new(&path), wish, &LinkTimeouts::none()).unwrap();
    for piece in &grant.window {
        println!("window {} {} {}", piece.fd.as_raw_fd(), piece.offset, piece.size);
    }
    let tenant = Tenant::new(link, &grant);
    tenant.window.fill(0, MOST, 0xa5).unwrap();
    println!("ready");
    std::io::stdin().lines().next();
    // Ends without a word, as one that is killed.
    std::process::exit(0);
}

/// A process that has nothing to do with the aggregator keeps the window of a backend that is gone, mapped
/// and open: it reads nothing of the VM that gets the memory next, and what it writes changes nothing there.
fn window_kept_by_a_third_process(chip: Chip) {
    let (host, chip) = (Host::of(chip), chip.name());
    let mut places = Vec::new();
    let mut other = Backend::hear_as("the_process_that_hands_its_window_on", &host.path, chip, |line| {
        if let Some((_, window)) = line.split_once("window ") {
            let numbers: Vec<u64> = window.split_whitespace().map(|word| word.parse().unwrap()).collect();
            assert_eq!(numbers.len(), 3, "{line}");
            places.push((numbers[0], numbers[1], numbers[2]));
        }
    });
    let pid = other.child.id();
    let open = |fd: u64| {
        let path = format!("/proc/{pid}/fd/{fd}");
        std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap()
    };
    let files: Vec<_> = places.iter().map(|(fd, offset, size)| (open(*fd), *offset, *size)).collect();
    let map = || {
        let pieces: Vec<_> = files
            .iter()
            .map(|(file, offset, size)| FilePiece { fd: file.as_fd(), offset: *offset, size: *size })
            .collect();
        Mapping::contiguous(&pieces, Access::ReadWrite).unwrap()
    };
    let kept = map();
    let byte = |memory: &Mapping, at| {
        let mut byte = [0];
        memory.read(at, &mut byte).unwrap();
        byte[0]
    };
    assert_eq!(byte(&kept, MOST - 1), 0xa5);
    other.tell("end");
    assert!(other.child.wait().unwrap().success());

    let wish = Hello { chip: chip.to_owned().into(), ..hello("next", MOST) };
    let (link, grant) = connect(&host.path, wish, &LinkTimeouts::none()).unwrap();
    let next = Tenant::new(link, &grant);

    assert_zero(&next);
    next.window.fill(0, MOST, 0x11).unwrap();
    for holder in [&kept, &map()] {
        let mut seen = vec![0x11; MOST as usize];
        holder.read(0, &mut seen).unwrap();
        assert!(!seen.contains(&0x11), "the holder reads what the next VM has written");
        holder.fill(0, MOST, 0x22).unwrap();
    }
    let mut seen = vec![0; MOST as usize];
    next.window.read(0, &mut seen).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0x11), "the holder writes into the next VM's memory");
    assert_eq!(
        host.service.status().unwrap().tenants.iter().map(|t| t.foreign_accesses).collect::<Vec<_>>(),
        [Some(0)]
    );
}

#[test]
fn window_that_a_third_process_keeps_shows_nothing_of_the_next_vm() {
    window_kept_by_a_third_process(Chip::GF100);
    window_kept_by_a_third_process(Chip::GH100);
}
