//! An aggregator that breaks down: its process ends, every VM gets an error instead of silence, and a new
//! aggregator, with a GPU in reset, serves them again. What a panic does in each kind of thread is in
//! `tests/jail.rs`.

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

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::{Daemon, until, write_gpu, write_vm};
use gpuvmk::addr::{HostChannel, HostVram, Iova, TenantId};
use gpuvmk::aggregator::{Config, Service};
use gpuvmk::chip::Engine;
use gpuvmk::gpu::OwnershipLedger;
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::host::socket_path::SocketSpec;
use gpuvmk::jail;
use gpuvmk::pci::{PciFunction, Region};
use gpuvmk::scheduler::policy::PolicyKind;
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use remote::Remote;

const FOLDER: &str = "GPUVMK_TEST_FOLDER";
const SAID: &str = "a panic on purpose";

/// Breaks down when somebody asks for the aggregator's state.
struct Fragile;

impl OwnershipLedger for Fragile {
    fn own_vram(&self, _: HostVram, _: u64, _: Option<TenantId>) {}
    fn own_system(&self, _: Iova, _: u64, _: Option<TenantId>) {}
    fn own_channel(&self, _: HostChannel, _: Option<TenantId>) {}
    fn foreign_accesses(&self, _: TenantId) -> u64 {
        panic!("{SAID}")
    }
    fn engine_time(&self, _: TenantId) -> Vec<(Engine, Duration)> {
        Vec::new()
    }
    fn foreign_accesses_of_host(&self) -> u64 {
        0
    }
}

/// Not a test: the aggregator.
#[test]
#[ignore = "started by the other tests"]
fn the_aggregator() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let socket = |name: &str| Some(SocketSpec::private(Path::new(&folder).join(name)));
    env_logger::init();
    jail::prepare(None).unwrap();
    let gpu = SoftGpu::new(SoftGpuConfig::default()).unwrap();
    let config = Config {
        socket: socket("gpu0.sock"),
        control: socket("gpu0.control"),
        ..Config::in_process(PolicyKind::Fifo)
    };
    let driver = RegisterDriver::new(gpu).unwrap();
    let service = Service::start(Box::new(driver), Some(Arc::new(Fragile)), &config).unwrap();
    eprintln!("ready");
    service.join();
}

#[test]
fn aggregators_panic_is_an_error_for_every_vm_and_a_new_aggregator_serves_them() {
    let folder = tempfile::tempdir().unwrap();
    write_gpu(folder.path(), "GF100");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "the_aggregator", "--nocapture"]).env(FOLDER, folder.path());
    let mut aggregator = Daemon::spawn(folder.path(), "fragile", command);
    aggregator.wait_for("ready");
    let mut vms: Vec<(Daemon, Arc<Remote>)> = ["vm1", "vm2"]
        .into_iter()
        .map(|name| {
            write_vm(folder.path(), name, "GF100", "");
            let mut device = Daemon::start(folder.path(), name, &["device", &format!("{name}.toml")]);
            device.wait_for("serves");
            let function = Arc::new(Remote::connect(&folder.path().join(format!("{name}.sock"))));
            scenarios::copies_on_every_engine(function.clone());
            (device, function)
        })
        .collect();

    // It has no answer: the aggregator is gone.
    let mut status = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
    let status = status.args(["status", "gpu0.toml"]).current_dir(folder.path()).output().unwrap();
    let end = aggregator.end();

    assert!(!status.status.success());
    assert_eq!(end.signal(), Some(libc::SIGABRT), "{}", aggregator.said());
    assert!(!end.core_dumped() && aggregator.said().contains(SAID), "{}", aggregator.said());
    for (device, function) in &mut vms {
        let mut boot = [0; 4];
        until("the guest sees that its device is lost", || {
            let began = Instant::now();
            function.read(Region::Bar(0), 0, &mut boot).unwrap();
            assert!(began.elapsed() < Duration::from_secs(1), "a read waits for a dead aggregator");
            boot == [0xff; 4]
        });
        assert!(device.runs());
    }

    let mut successor = Daemon::start(folder.path(), "successor", &["aggregator", "gpu0.toml"]);
    successor.wait_for("serves at");
    for (_, function) in &vms {
        function.reset();
        function.unmap_all();
        scenarios::copies_on_every_engine(function.clone());
    }
    assert!(successor.terminate().success());
}
