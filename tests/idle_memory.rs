//! An idle device back end costs little: its private memory, with a client that has done what QEMU does at
//! its start.
//!
//! The binary is of the profile that the tests are built with; a release build needs less.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[path = "common/client.rs"]
mod client;
#[path = "common/daemon.rs"]
mod daemon;

use std::os::fd::AsFd;
use std::process::Command;

use client::Client;
use daemon::{Daemon, write_gpu, write_vm};
use gpuvmk::frontend::vfio_user::wire::{self, command, dma_map};
use serde_json::Value;
use zerocopy::IntoBytes;

/// The figure.
const MOST_KIB: u64 = 8 << 10;
/// Guest RAM: pages of a file, which are not private.
const RAM: u64 = 1 << 30;
/// The region of the configuration space.
const CONFIG: u32 = 7;

/// A client that has mapped its memory and read the configuration space.
fn idle_client(socket: &std::path::Path) -> Client {
    let mut client = Client::negotiated(socket);
    let ram = tempfile::tempfile_in("/dev/shm").unwrap();
    ram.set_len(RAM).unwrap();
    let body =
        wire::DmaMap { argsz: 32, flags: dma_map::READ | dma_map::WRITE, offset: 0, address: 0, size: RAM };
    assert_eq!(client.command_with(command::DMA_MAP, body.as_bytes(), &[ram.as_fd()]).errno(), 0);
    assert_eq!(client.read(CONFIG, 0, 256).errno(), 0);
    client
}

#[test]
fn idle_device_back_end_of_either_chip_has_at_most_8_mib() {
    for chip in ["GF100", "GH100"] {
        let folder = tempfile::tempdir().unwrap();
        write_gpu(folder.path(), chip);
        write_vm(folder.path(), "vm1", chip, "");
        let mut aggregator = Daemon::start(folder.path(), "aggregator", &["aggregator", "gpu0.toml"]);
        aggregator.wait_for("serves at");
        let mut device = Daemon::start(folder.path(), "device", &["device", "vm1.toml"]);
        device.wait_for("vGPU of VM `vm1` serves");
        let _client = idle_client(&folder.path().join("vm1.sock"));

        let private = device.private_kib();
        let mut status = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
        let status =
            status.args(["status", "--json", "gpu0.toml"]).current_dir(folder.path()).output().unwrap();
        let status: Value = serde_json::from_slice(&status.stdout).unwrap();

        let build = if cfg!(debug_assertions) { "debugging" } else { "release" };
        println!("idle device back end, {chip}, {build} build: {private} KiB of private memory");
        assert!(private <= MOST_KIB, "{chip}: {private} KiB are more than {MOST_KIB}");
        let tenant = &status["tenants"][0];
        assert_eq!(tenant["pid"], device.pid());
        let shown = tenant["backend_private_memory"].as_u64().unwrap() / 1024;
        assert!(shown.abs_diff(private) < 1024, "{shown} KiB in the status, {private} KiB seen");
    }
}
