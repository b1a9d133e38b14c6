//! A driver does the same to a GPU whichever front end shows it: what a micro guest's accesses through KVM
//! leave in a trace, and what a client's over vfio-user do, differ in nothing but where BARs were put.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on panics"
)]

#[path = "common/client.rs"]
mod client;
#[path = "common/micro/mod.rs"]
mod micro;
#[path = "common/remote.rs"]
mod remote;
#[path = "common/scenarios.rs"]
mod scenarios;
#[path = "common/tiny_driver/mod.rs"]
mod tiny_driver;

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use gpuvmk::frontend::vfio_user::{Server, SocketSpec, StopHandle};
use gpuvmk::pci::{PciFunction, Region};
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};
use gpuvmk::trace::{self, Recorder, Traced, Tracer};
use micro::hand::Hand;
use remote::Remote;
use serde_json::Value;

/// A GPU that is recorded to a file.
fn recorded(file: &Path) -> (Arc<dyn PciFunction>, Tracer) {
    let gpu = SoftGpu::new(SoftGpuConfig { vram: 64 << 20, ..SoftGpuConfig::default() }).unwrap();
    let header = trace::Header::of_function("traced", Some(64 << 20), &*gpu).unwrap();
    let tracer = Tracer::default();
    let filter = trace::Filter::parse(["bar=0,1,3"], None).unwrap();
    let name = file.display().to_string();
    // Room for all of it: nothing may be lost.
    let recorder = Recorder::start(File::create(file).unwrap(), &name, header, filter, 1 << 20).unwrap();
    tracer.start(recorder);
    (Arc::new(Traced::new(gpu, tracer.clone())), tracer)
}

/// BAR0's window to VRAM, and how many of its words are written and read.
const PRAMIN: u64 = 0x70_0000;
const WORDS: u32 = 500;

/// One bring-up and copies on every engine.
fn work(function: &Arc<dyn PciFunction>) {
    scenarios::copies_on_every_engine(function.clone());
    // Memory through PRAMIN, which the driver uses only until BAR3 shows it.
    for offset in (0..WORDS * 4).step_by(4) {
        let at = PRAMIN + u64::from(offset);
        function.write(Region::Bar(0), at, &offset.to_le_bytes()).unwrap();
        let mut read = [0; 4];
        function.read(Region::Bar(0), at, &mut read).unwrap();
        assert_eq!(u32::from_le_bytes(read), offset);
    }
    // A read waits for the writes before it.
    function.read(Region::Bar(0), 0, &mut [0; 4]).unwrap();
}

fn over_the_socket(folder: &Path, file: &Path) {
    let (function, tracer) = recorded(file);
    let path = folder.join("gpu.sock");
    let spec = SocketSpec::private(path.clone());
    let server = Server::bind(&spec).unwrap();
    let stop = StopHandle::new().unwrap();
    let stopped = stop.clone();
    let thread = std::thread::spawn(move || server.run(&function, &(), &stopped).unwrap());
    let remote: Arc<dyn PciFunction> = Arc::new(Remote::connect(&path));
    work(&remote);
    stop.stop();
    thread.join().unwrap();
    tracer.stop();
}

fn through_kvm(file: &Path) {
    let (function, tracer) = recorded(file);
    let hand = Hand::new(function, false);
    let driven: Arc<dyn PciFunction> = hand.clone();
    work(&driven);
    drop(hand.hands());
    tracer.stop();
}

#[test]
fn both_front_ends_leave_the_same_trace() {
    if !micro::host_has_kvm() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (socket, kvm) = (folder.path().join("socket.trace"), folder.path().join("kvm.trace"));
    over_the_socket(folder.path(), &socket);
    through_kvm(&kvm);

    // All that the driver writes, and all that it reads of registers. What it reads of memory has a time: it
    // looks at fences until work is done.
    for (left_out, least) in [("op=read", 200_000), ("bar=3", 1_000)] {
        let output = Command::new(env!("CARGO_BIN_EXE_gpuvmk"))
            .args(["trace", "diff", "--json", "--leave-out", left_out])
            .args([&socket, &kvm])
            .output()
            .unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success(), "without {left_out}: {found:#}");
        assert!(found["same"].as_u64().unwrap() > least, "without {left_out}: {found:#}");
    }
}
