//! Hosts on which nothing can be measured, through the program itself: what it says, and that it fails.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[path = "../../tests/common/nvidia_host.rs"]
mod nvidia_host;

use std::fs::File;
use std::process::{Command, Stdio};

use nvidia_host::{Host, assert_says, is_root};

const BENCH: &str = env!("CARGO_BIN_EXE_gpuvmk-gpu-bench");

#[test]
fn host_without_the_driver() {
    let host = Host::new().with_gpu("0000:06:00.0", "vfio-pci");
    let parts = ["No NVIDIA driver is loaded", "modprobe nvidia", "branch 580", "backend = \"soft\""];
    assert_says(&host.fails(BENCH, &["--uid", "65534"]), &parts);
}

#[test]
fn root_that_names_nobody_and_somebody_who_is_not_root() {
    let host = Host::new().with_driver("580.159.04").with_node("nvidiactl", 0o666);
    if is_root() {
        assert_says(&host.fails(BENCH, &[]), &["does not run as root", "ordinary user", "`uid`"]);
    } else {
        assert_says(&host.fails(BENCH, &["--uid", "1"]), &["cannot become user 1", "Start it as"]);
    }
}

#[test]
fn address_that_is_none() {
    assert_says(&Host::new().fails(BENCH, &["--gpu", "6:0"]), &["\"6:0\"", "0000:65:00.0"]);
}

#[test]
fn output_that_takes_nothing_is_told() {
    let output = Command::new(BENCH)
        .args(["--gpu", "0000:7f:1f.7", "--uid", "65534"])
        .stdout(Stdio::from(File::options().write(true).open("/dev/full").unwrap()))
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}
