//! `gpuvmk demo`, `gpuvmk gpu bench` and `gpuvmk shader` of an installed gpuvmk start the program beside it
//! that does that, or say what is missing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

// One test: a program that was just written cannot be started while another thread starts one.
#[test]
fn installed_program_starts_the_one_beside_it_or_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("bin/gpuvmk");
    fs::create_dir(folder.path().join("bin")).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_gpuvmk"), &program).unwrap();

    let output = Command::new(&program).arg("demo").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["gpuvmk-lab", "not installed", "cargo run --release -- demo"] {
        assert!(said.contains(part), "'{part}' is not in: {said}");
    }

    let lab = program.with_file_name("gpuvmk-lab");
    fs::write(&lab, "#!/bin/sh\necho \"$@\"\nexit 3\n").unwrap();
    fs::set_permissions(&lab, fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(&program)
        .args(["demo", "--kernel", "7.2", "--chip", "gh100", "--json", "--keep", "--vms", "4"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().trim_end(),
        format!(
            "demo --gpuvmk {} --vms 4 --driver=nouveau --chip=gh100 --kernel=7.2 --json --keep",
            program.display()
        )
    );

    let output = Command::new(&program).args(["gpu", "bench"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["gpuvmk-gpu-bench", "not installed", "cargo run --release -- gpu bench"] {
        assert!(said.contains(part), "'{part}' is not in: {said}");
    }

    fs::rename(&lab, program.with_file_name("gpuvmk-gpu-bench")).unwrap();
    let output = Command::new(&program).args(["gpu", "bench", "--json", "--uid", "65534"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim_end(), "--uid=65534 --json");

    let output = Command::new(&program).args(["shader", "disasm", "a.bin", "--arch", "90"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for part in ["gpuvmk-shader", "not installed", "cargo run --release -- shader"] {
        assert!(said.contains(part), "'{part}' is not in: {said}");
    }
}
