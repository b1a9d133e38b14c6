//! Hosts that run out: of descriptors, address space, disk. What cannot be had is refused with its reason,
//! the rest goes on, and nothing stays behind. What a process needs of its heap and does not get ends that
//! process, and nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[path = "common/client.rs"]
mod client;
#[path = "common/daemon.rs"]
mod daemon;
#[path = "common/remote.rs"]
mod remote;
#[path = "common/scenarios.rs"]
mod scenarios;
#[path = "common/tiny_driver/mod.rs"]
mod tiny_driver;

use std::collections::BTreeSet;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use daemon::{Daemon, until, write_gpu, write_vm};
use gpuvmk::frontend::vfio_user::wire::{self, command, dma_map};
use gpuvmk::host::socket_path;
use gpuvmk::pci::{PciFunction, Region};
use remote::Remote;
use rustix::net::SocketType;
use rustix::process::{Pid, Resource, Rlimit};
use zerocopy::IntoBytes;

const PAGE: u64 = 4096;

fn softgpu(folder: &Path, limits: &str, more: &[&str]) -> Daemon {
    let arguments = [&["softgpu", "--socket-path=soft.sock", "--vram=64M"], more].concat();
    let mut daemon = Daemon::start_limited(folder, "softgpu", limits, &arguments);
    daemon.wait_for("of VRAM serves");
    daemon
}

/// Maps a new file of `size` bytes at `address`; the reply's errno.
fn map(client: &mut Client, address: u64, size: u64) -> i32 {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(size).unwrap();
    let flags = dma_map::READ | dma_map::WRITE;
    let body = wire::DmaMap { argsz: 32, flags, offset: 0, address, size };
    client.command_with(command::DMA_MAP, body.as_bytes(), &[file.as_fd()]).errno()
}

fn unmap(client: &mut Client, address: u64, size: u64) -> i32 {
    let body = wire::DmaUnmap { argsz: 24, flags: 0, address, size };
    client.command(command::DMA_UNMAP, body.as_bytes()).errno()
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// The same, once it has stayed the same for a while: threads of daemons still open and close some.
fn settled_files(pid: u32) -> usize {
    let (mut last, mut same) = (open_files(pid), 0);
    until("the number of open files settles", || {
        std::thread::sleep(Duration::from_millis(20));
        let now = open_files(pid);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same >= 10
    });
    last
}

/// The lines of `/proc/PID/limits` that say how many files: those in force, those that can be asked for.
fn file_limits(pid: u32) -> (u64, u64) {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    (words[3].parse().unwrap(), words[4].parse().unwrap())
}

/// Leaves a process so many descriptors. The kernel's limit is one on their numbers, and used ones may have
/// gaps between them.
fn leave_files(pid: u32, free: usize) {
    settled_files(pid);
    let used: BTreeSet<usize> = std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    let most = (0..).filter(|number| !used.contains(number)).nth(free).unwrap();
    limit_files(pid, most);
}

fn limit_files(pid: u32, most: usize) {
    limit(pid, Resource::Nofile, most as u64, Some(file_limits(pid).1));
}

fn limit(pid: u32, what: Resource, most: u64, maximum: Option<u64>) {
    let limits = Rlimit { current: Some(most), maximum };
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    rustix::process::prlimit(pid, what, limits).unwrap();
}

/// User and system time of a process, in clock ticks of 10 ms.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn client_that_uses_up_the_descriptors_is_refused_and_loses_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    write_gpu(folder.path(), "GF100");
    write_vm(folder.path(), "vm1", "GF100", "");
    let mut aggregator = Daemon::start(folder.path(), "aggregator", &["aggregator", "gpu0.toml"]);
    aggregator.wait_for("serves at");
    let mut daemon = Daemon::start(folder.path(), "vm1", &["device", "vm1.toml"]);
    daemon.wait_for("vGPU of VM `vm1` serves");
    let socket = folder.path().join("vm1.sock");
    for _ in 0..2 {
        let mut client = Client::negotiated(&socket);
        let before = settled_files(daemon.pid());
        leave_files(daemon.pid(), 5);

        let mapped = (0..64).take_while(|page| map(&mut client, page * PAGE, PAGE) == 0).count() as u64;

        assert!((1..=5).contains(&mapped), "{mapped} files were taken, with 5 descriptors left");
        assert_ne!(map(&mut client, mapped * PAGE, PAGE), 0);
        client.assert_in_step();
        assert_eq!(unmap(&mut client, 0, PAGE), 0);
        assert_eq!(map(&mut client, 0, PAGE), 0, "there is room again: {}", daemon.said());
        drop(client);
        until("what the client had is closed", || open_files(daemon.pid()) <= before);
    }
    assert!(daemon.terminate().success());
}

#[test]
fn client_that_cannot_be_accepted_is_accepted_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = softgpu(folder.path(), "", &[]);
    leave_files(daemon.pid(), 0);

    let mut client = Client::connect(&folder.path().join("soft.sock"));
    daemon.wait_for("A client cannot be accepted, trying again");
    limit_files(daemon.pid(), 64);

    client.negotiate();
    client.assert_in_step();
}

#[test]
fn memory_for_which_there_are_no_addresses_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = softgpu(folder.path(), "ulimit -v 4000000", &[]);
    let mut client = Client::negotiated(&folder.path().join("soft.sock"));

    let refused = map(&mut client, 0, 8 << 30);

    assert_eq!(refused, libc::EFAULT);
    assert!(daemon.said().contains("cannot be reached"), "{}", daemon.said());
    assert_eq!(map(&mut client, 0, 64 << 20), 0);
    client.assert_in_step();
    drop(client);
    assert!(daemon.terminate().success());
}

#[test]
fn trace_on_a_full_disk_ends_and_the_guest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = softgpu(folder.path(), "", &["--trace=/dev/full"]);
    let socket = folder.path().join("soft.sock");

    scenarios::copies_on_every_engine(Arc::new(Remote::connect(&socket)));

    daemon.wait_for("The trace /dev/full ends early: No space left on device");
    Client::negotiated(&socket).assert_in_step();
    assert!(daemon.terminate().success());
}

#[test]
fn aggregator_without_memory_for_its_gpu_says_so_and_leaves_no_socket() {
    let folder = tempfile::tempdir().unwrap();
    for chip in ["GF100", "GH100"] {
        write_gpu(folder.path(), chip);
        let arguments = ["aggregator", "gpu0.toml"];
        let mut daemon = Daemon::start_limited(folder.path(), chip, "ulimit -v 250000", &arguments);

        let status = daemon.end();

        let said = daemon.said();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("Cannot make the software GPU") && said.contains("Cannot allocate"), "{said}");
        for socket in ["gpu0.sock", "gpu0.control"] {
            assert!(!folder.path().join(socket).exists(), "{socket} stays behind");
        }
    }
}

#[test]
fn aggregator_without_descriptors_keeps_its_tenants_and_rests_between_tries() {
    let folder = tempfile::tempdir().unwrap();
    write_gpu(folder.path(), "GF100");
    write_vm(folder.path(), "vm1", "GF100", "");
    write_vm(folder.path(), "vm2", "GF100", "");
    let mut aggregator = Daemon::start(folder.path(), "aggregator", &["aggregator", "gpu0.toml"]);
    aggregator.wait_for("serves at");
    let mut vm1 = Daemon::start(folder.path(), "vm1", &["device", "vm1.toml"]);
    vm1.wait_for("vGPU of VM `vm1` serves");
    let function = Arc::new(Remote::connect(&folder.path().join("vm1.sock")));
    scenarios::copies_on_every_engine(function.clone());
    // What one stranger needs: its connection, its process, and what wakes its porter up.
    leave_files(aggregator.pid(), 3);

    let connect = || socket_path::connect(&folder.path().join("gpu0.sock"), SocketType::SEQPACKET);
    let strangers: Vec<OwnedFd> = (0..8).map(|_| connect().unwrap()).collect();
    aggregator.wait_for("a backend could not connect, trying again");
    let began = ticks(aggregator.pid());
    std::thread::sleep(Duration::from_secs(1));
    let spent = ticks(aggregator.pid()) - began;
    let mut boot = [0; 4];
    function.read(Region::Bar(0), 0, &mut boot).unwrap();
    assert_ne!(boot, [0xff; 4], "vm1 lost its device to strangers");
    drop(strangers);
    limit_files(aggregator.pid(), 256);
    function.reset();
    function.unmap_all();
    let mut vm2 = Daemon::start(folder.path(), "vm2", &["device", "vm2.toml"]);
    vm2.wait_for("vGPU of VM `vm2` serves");

    assert!(spent <= 25, "{spent} ticks of 10 ms in a second: it does not rest");
    scenarios::copies_on_every_engine(function);
    scenarios::copies_on_every_engine(Arc::new(Remote::connect(&folder.path().join("vm2.sock"))));
    assert!(aggregator.terminate().success());
}

#[test]
fn newcomer_for_whom_there_are_no_descriptors_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    write_gpu(folder.path(), "GF100");
    write_vm(folder.path(), "vm1", "GF100", "");
    let mut aggregator = Daemon::start(folder.path(), "aggregator", &["aggregator", "gpu0.toml"]);
    aggregator.wait_for("serves at");
    let before = settled_files(aggregator.pid());
    // The connection, its process, and some of what a tenant needs.
    leave_files(aggregator.pid(), 4);

    let mut vm1 = Daemon::start(folder.path(), "vm1", &["device", "vm1.toml", "--wait", "3"]);
    let status = vm1.end();

    assert_eq!(status.code(), Some(1), "{}", vm1.said());
    assert!(vm1.said().contains("Too many open files"), "{}", vm1.said());
    until("what the newcomer had is closed", || open_files(aggregator.pid()) <= before);
    limit_files(aggregator.pid(), 256);
    let mut again = Daemon::start(folder.path(), "again", &["device", "vm1.toml"]);
    again.wait_for("vGPU of VM `vm1` serves");
}

/// The other limit that systems have on descriptors, per process, is raised to what its manager allows.
#[test]
fn aggregator_uses_all_descriptors_that_it_may_have() {
    let folder = tempfile::tempdir().unwrap();
    write_gpu(folder.path(), "GF100");
    let arguments = ["aggregator", "gpu0.toml"];
    let mut aggregator = Daemon::start_limited(folder.path(), "aggregator", "ulimit -S -n 100", &arguments);
    aggregator.wait_for("serves at");

    let (now, most) = file_limits(aggregator.pid());

    assert!(now == most && most > 100, "{now} of {most}");
}

/// Each number of descriptors is too few at another place: which comes first, nobody need know.
#[test]
fn daemon_with_any_number_of_descriptors_serves_or_says_why_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write_gpu(folder.path(), "GF100");
    write_vm(folder.path(), "vm1", "GF100", "");
    let aggregator = (["aggregator", "gpu0.toml"], "serves at", vec!["gpu0.sock", "gpu0.control"]);
    let device = (["device", "vm1.toml"], "vGPU of VM `vm1` serves", vec!["vm1.sock"]);
    let mut provider = None;
    for (arguments, serves, sockets) in [aggregator, device] {
        let mut refusals = 0;
        // Below, the program itself cannot be loaded.
        for most in 5.. {
            let limits = format!("ulimit -n {most}");
            let mut daemon = Daemon::start_limited(folder.path(), "few", &limits, &arguments);
            until("it serves, or has ended", || !daemon.runs() || daemon.said().contains(serves));
            if daemon.runs() {
                assert!(daemon.terminate().success(), "{}", daemon.said());
                break;
            }
            let (status, said) = (daemon.end(), daemon.said());
            assert_eq!(status.code(), Some(1), "with {most}: {said}");
            assert!(said.contains("Too many open files"), "with {most}: {said}");
            for socket in &sockets {
                assert!(!folder.path().join(socket).exists(), "with {most}: {socket} stays behind");
            }
            refusals += 1;
        }
        assert!(refusals > 5, "{arguments:?}: only {refusals} numbers were too small");
        if provider.is_none() {
            let mut daemon = Daemon::start(folder.path(), "aggregator", &arguments);
            daemon.wait_for(serves);
            provider = Some(daemon);
        }
    }
}

#[test]
fn memory_that_may_not_be_locked_is_not_needed() {
    let folder = tempfile::tempdir().unwrap();
    write_gpu(folder.path(), "GF100");
    write_vm(folder.path(), "vm1", "GF100", "");
    let none = "ulimit -l 0";
    let start = |label, serves, arguments: [&str; 2]| {
        let mut daemon = Daemon::start_limited(folder.path(), label, none, &arguments);
        daemon.wait_for(serves);
        daemon
    };
    let mut aggregator = start("aggregator", "serves at", ["aggregator", "gpu0.toml"]);
    let mut vm1 = start("vm1", "vGPU of VM `vm1` serves", ["device", "vm1.toml"]);

    scenarios::copies_on_every_engine(Arc::new(Remote::connect(&folder.path().join("vm1.sock"))));

    assert!(vm1.terminate().success() && aggregator.terminate().success());
}

#[test]
fn back_end_whose_heap_is_full_ends_alone_and_its_memory_is_the_next_ones() {
    let folder = tempfile::tempdir().unwrap();
    write_gpu(folder.path(), "GF100");
    write_vm(folder.path(), "vm1", "GF100", "[limits]\nmemory_ranges = 65535\n");
    write_vm(folder.path(), "vm2", "GF100", "");
    let start = |label, arguments: [&str; 2]| {
        let mut daemon = Daemon::start(folder.path(), label, &arguments);
        daemon.wait_for("serves");
        daemon
    };
    let mut aggregator = start("aggregator", ["aggregator", "gpu0.toml"]);
    let mut vm1 = start("vm1", ["device", "vm1.toml"]);
    let _vm2 = start("vm2", ["device", "vm2.toml"]);
    let neighbour = Arc::new(Remote::connect(&folder.path().join("vm2.sock")));
    scenarios::copies_on_every_engine(neighbour.clone());
    let mut client = Client::negotiated(&folder.path().join("vm1.sock"));
    limit(vm1.pid(), Resource::Data, 0, Some(0));

    // Each range that is announced is remembered; those that follow each other are one.
    for page in 0..65_000 {
        let flags = dma_map::READ | dma_map::WRITE;
        let body = wire::DmaMap { argsz: 32, flags, offset: 0, address: 2 * page * PAGE, size: PAGE };
        let mut header = client.header(command::DMA_MAP, 32);
        header.flags |= wire::flags::NO_REPLY;
        if client.socket.write_all(&[header.as_bytes(), body.as_bytes()].concat()).is_err() {
            break;
        }
    }
    let status = vm1.end();

    assert_eq!(status.signal(), Some(libc::SIGABRT), "{}", vm1.said());
    assert!(vm1.said().contains("memory allocation of"), "{}", vm1.said());
    neighbour.reset();
    neighbour.unmap_all();
    scenarios::copies_on_every_engine(neighbour);
    // At once: all that the dead one had is free.
    let _again = start("again", ["device", "vm1.toml"]);
    assert!(aggregator.runs());
}
