//! The commands that need no GPU: what they say of bad input, and their exit codes.
#![allow(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::process::{Command, Output};

use gpuvmk::chip::Chip;

fn gpuvmk(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpuvmk")).args(arguments).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn check_names_file_line_key_and_what_is_allowed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("vm1.toml");
    std::fs::write(&file, "name = \"vm1\"\ngpu = \"gpu0.sock\"\nvram = \"10M\"\nweigth = 3\n")
        .expect("written");

    let output = gpuvmk(&["check", file.to_str().expect("utf-8")]);

    assert!(!output.status.success());
    let text = stderr(&output);
    assert!(text.contains("vm1.toml: line 3: `vram`: \"10M\" is out of range"), "{text}");
    assert!(text.contains("line 4: `weigth`: is not a known key; did you mean `weight`?"), "{text}");
}

#[test]
fn check_accepts_good_files_of_both_kinds() {
    let folder = tempfile::tempdir().expect("a folder");
    let vm = folder.path().join("vm1.toml");
    let gpu = folder.path().join("gpu0.toml");
    std::fs::write(&vm, "name = \"vm1\"\ngpu = \"gpu0.sock\"\nvram = \"64M\"\n").expect("written");
    std::fs::write(&gpu, "name = \"gpu0\"\nbackend = \"soft\"\n[socket]\npath = \"gpu0.sock\"\n")
        .expect("written");

    let output = gpuvmk(&["check", vm.to_str().expect("utf-8"), gpu.to_str().expect("utf-8")]);

    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("VM `vm1`: ok") && text.contains("GPU `gpu0`: ok"), "{text}");
}

#[test]
fn check_takes_every_chip_and_refuses_others_with_the_list() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("vm1.toml");
    let check = |chip: &str| {
        let text = format!("name = \"vm1\"\ngpu = \"gpu0.sock\"\nvram = \"64M\"\nchip = \"{chip}\"\n");
        std::fs::write(&file, text).expect("written");
        gpuvmk(&["check", file.to_str().expect("utf-8")])
    };

    for chip in Chip::ALL {
        let output = check(chip.name());
        assert!(output.status.success(), "{chip}: {}", stderr(&output));
    }
    let output = check("GX100");
    assert!(!output.status.success());
    is_refused_with_all_chips(&stderr(&output), "vm1.toml: line 4: `chip`: ");
    let file = folder.path().join("gpu0.toml");
    let text = "name = \"gpu0\"\nbackend = \"soft\"\nchip = \"GX100\"\n[socket]\npath = \"gpu0.sock\"\n";
    std::fs::write(&file, text).expect("written");
    let output = gpuvmk(&["check", file.to_str().expect("utf-8")]);
    assert!(!output.status.success());
    is_refused_with_all_chips(&stderr(&output), "gpu0.toml: line 3: `chip`: ");
}

/// Whether one line of a message has this place, what was written there, and each chip in quotation marks.
#[track_caller]
fn is_refused_with_all_chips(message: &str, place: &str) {
    assert!(message.contains(place), "{message}");
    let line = message.lines().find(|line| line.contains(place)).unwrap_or_default();
    assert!(line.contains("\"GX100\""), "{line}");
    assert!(Chip::ALL.iter().all(|chip| line.contains(&format!("\"{chip}\""))), "{line}");
}

#[test]
fn check_of_an_absent_file_names_it() {
    let output = gpuvmk(&["check", "/nonexistent/vm1.toml"]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("Cannot read the configuration file /nonexistent/vm1.toml"));
}

#[test]
fn status_without_an_aggregator_says_so() {
    let output = gpuvmk(&["status", "--socket", "/nonexistent/gpu0.control"]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("No aggregator answers at /nonexistent/gpu0.control"));
}

#[test]
fn trace_lookup_names_a_register_by_its_offset() {
    let output = gpuvmk(&["trace", "lookup", "0x0"]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("NV_PMC_BOOT_0"));
}

#[test]
fn trace_dump_of_a_foreign_file_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("x.trace");
    std::fs::write(&file, "hello, this is no trace").expect("written");
    let output = gpuvmk(&["trace", "dump", file.to_str().expect("utf-8")]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("Not a gpuvmk trace"), "{}", stderr(&output));
}
