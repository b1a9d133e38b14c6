//! Device back ends that are told to end (SIGTERM) do so at once, whatever they wait for: here for an
//! aggregator that does not answer, because it is stopped, or is not there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[path = "common/client.rs"]
mod client;
#[path = "common/daemon.rs"]
mod daemon;

use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use client::Client;
use daemon::{Daemon, write_gpu, write_vm};
use gpuvmk::frontend::vfio_user::wire::{self, command, dma_map};
use rustix::process::{Pid, Signal, kill_process};
use zerocopy::IntoBytes;

/// Much more than it takes, and less than any time limit of the product's.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Until a process that was told something is at it.
const MOMENT: Duration = Duration::from_millis(100);

fn signal(daemon: &Daemon, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(daemon.pid()).unwrap()).unwrap(), signal).unwrap();
}

fn aggregator(folder: &Path, chip: &str) -> Daemon {
    write_gpu(folder, chip);
    let mut aggregator = Daemon::start(folder, "aggregator", &["aggregator", "gpu0.toml"]);
    aggregator.wait_for("serves at");
    aggregator
}

fn device(folder: &Path, chip: &str) -> Daemon {
    write_vm(folder, "vm1", chip, "");
    Daemon::start(folder, "vm1", &["device", "vm1.toml"])
}

/// A client with a page of memory.
fn client(folder: &Path) -> Client {
    let mut client = Client::negotiated(&folder.join("vm1.sock"));
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(4096).unwrap();
    let body =
        wire::DmaMap { argsz: 32, flags: dma_map::READ | dma_map::WRITE, offset: 0, address: 0, size: 4096 };
    let reply = client.command_with(command::DMA_MAP, body.as_bytes(), &[file.as_fd()]);
    assert_eq!(reply.errno(), 0);
    client
}

/// Ends the device; it had nothing to complain about.
fn assert_ends(device: &mut Daemon, when: &str) {
    let start = Instant::now();
    let status = device.terminate();
    let (took, said) = (start.elapsed(), device.said());
    assert!(took < AT_ONCE, "{when}: it took {took:?}: {said}");
    assert!(status.success(), "{when}: {status}: {said}");
    assert!(!said.contains("ERROR") && !said.contains("fail-safe"), "{when}: {said}");
}

#[test]
fn device_whose_aggregator_does_not_answer_ends_at_once() {
    for chip in ["GF100", "GH100"] {
        for when in ["idle", "with a client", "in its client's reset", "in the reset after its client"] {
            let folder = tempfile::tempdir().unwrap();
            let aggregator = aggregator(folder.path(), chip);
            let mut device = device(folder.path(), chip);
            device.wait_for("vGPU of VM `vm1` serves");
            let mut guest = (when != "idle").then(|| client(folder.path()));
            signal(&aggregator, Signal::STOP);
            match when {
                "in its client's reset" => guest.as_mut().unwrap().post(command::DEVICE_RESET, &[]),
                "in the reset after its client" => guest = None,
                _ => {}
            }
            std::thread::sleep(MOMENT);

            assert_ends(&mut device, &format!("{chip}, {when}"));

            drop(guest);
            signal(&aggregator, Signal::CONT);
        }
    }
}

#[test]
fn device_that_waits_to_be_admitted_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let aggregator = aggregator(folder.path(), "GF100");
    signal(&aggregator, Signal::STOP);
    let mut device = device(folder.path(), "GF100");
    std::thread::sleep(3 * MOMENT);

    assert_ends(&mut device, "not admitted yet");

    signal(&aggregator, Signal::CONT);
}

#[test]
fn device_without_an_aggregator_ends_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut device = device(folder.path(), "GF100");
    device.wait_for("waiting for an aggregator");

    assert_ends(&mut device, "without an aggregator");
}

/// What the aggregator would have been asked to do, it does by itself.
#[test]
fn memory_of_a_device_that_ended_with_its_client_there_is_free_and_zero_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let mut aggregator = aggregator(folder.path(), "GF100");
    for _ in 0..3 {
        let mut device = device(folder.path(), "GF100");
        device.wait_for("vGPU of VM `vm1` serves");
        let mut guest = client(folder.path());
        // VRAM through BAR 1 is the guest's page tables' affair; PRAMIN shows the first 64 KiB without any.
        let at = 0x70_0000;
        assert_eq!(guest.read(0, at, 4).body[16..], [0; 4], "what the last one wrote is there");
        assert_eq!(guest.write(0, at, &[0x5a; 4]).errno(), 0);
        assert_eq!(guest.read(0, at, 4).body[16..], [0x5a; 4]);

        assert_ends(&mut device, "with a client");
    }
    assert!(aggregator.terminate().success());
}
