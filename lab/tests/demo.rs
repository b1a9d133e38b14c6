//! The demonstration refuses what cannot work, says what to do, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use gpuvmk_lab::chip::Chip;

/// Runs the demo with an empty cache and temporary folder inside `folder`, and the given QEMU.
fn demo(folder: &Path, qemu: &Path, arguments: &[&str]) -> Output {
    let temporary = folder.join("tmp");
    fs::create_dir_all(&temporary).unwrap();
    Command::new(env!("CARGO_BIN_EXE_gpuvmk-lab"))
        .args(["demo", "--gpuvmk", "/bin/false"])
        .args(arguments)
        .env("GPUVMK_CACHE", folder.join("cache"))
        .env("GPUVMK_QEMU", qemu)
        .env("TMPDIR", &temporary)
        .output()
        .unwrap()
}

/// A program that says it is QEMU of some version. Another process writes it: a descriptor of ours could be
/// in a child that another test starts at that moment, and what somebody may write cannot be started.
fn fake_qemu(folder: &Path, version: &str) -> std::path::PathBuf {
    let path = folder.join("qemu-system-x86_64");
    let write =
        "printf '#!/bin/sh\\necho QEMU emulator version \"%s\"\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"";
    let status = Command::new("/bin/sh").args(["-c", write]).arg(&path).arg(version).status().unwrap();
    assert!(status.success(), "{status}");
    path
}

fn assert_refused(output: &Output, folder: &Path, parts: &[&str]) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{message}");
    for part in parts {
        assert!(message.contains(part), "'{part}' is not in: {message}");
    }
    assert_eq!(fs::read_dir(folder.join("tmp")).unwrap().count(), 0, "something was left behind");
}

#[test]
fn too_old_a_qemu_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let qemu = fake_qemu(folder.path(), "7.2.19 (Debian 1:7.2+dfsg-7)");
    let output = demo(folder.path(), &qemu, &[]);
    assert_refused(&output, folder.path(), &["GPUVMK_QEMU", "7.2", "10.1 or newer"]);
}

#[test]
fn missing_qemu_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = demo(folder.path(), &folder.path().join("none"), &[]);
    assert_refused(&output, folder.path(), &["GPUVMK_QEMU", "none"]);
}

#[test]
fn number_of_vms_and_kernel_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let qemu = fake_qemu(folder.path(), "11.1.3");
    assert_refused(&demo(folder.path(), &qemu, &["--vms", "0"]), folder.path(), &["1 to 16"]);
    assert_refused(&demo(folder.path(), &qemu, &["--kernel", "5.10"]), folder.path(), &["6.1, 6.12, 7.2"]);
}

#[test]
fn kernel_too_old_for_the_chip_is_refused_with_what_the_guest_would_say() {
    let folder = tempfile::tempdir().unwrap();
    let qemu = fake_qemu(folder.path(), "11.1.3");
    for kernel in ["6.1", "6.12"] {
        let output = demo(folder.path(), &qemu, &["--chip", "gh100", "--kernel", kernel]);
        assert_refused(
            &output,
            folder.path(),
            &["unknown chipset (180000a1)", "6.16 or newer", "--kernel 7.2"],
        );
    }
}

#[test]
fn unknown_chip_is_refused_with_all_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let qemu = fake_qemu(folder.path(), "11.1.3");
    let output = demo(folder.path(), &qemu, &["--chip", "gk104"]);
    let list = Chip::list(Chip::ALL.iter().copied(), "", ", ");
    assert_refused(&output, folder.path(), &["'--chip <CHIP>'", "'gk104'", &list]);
}
