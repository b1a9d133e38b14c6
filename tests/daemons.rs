//! The daemons' answers to bad set-ups: what they say, that they exit with an error, and that nothing stays
//! behind.

#![allow(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn gpuvmk(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn fails(arguments: &[&str]) -> String {
    let Output { status, stderr, .. } = gpuvmk(arguments).output().expect("the binary runs");
    let text = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!status.success(), "{arguments:?} must fail: {text}");
    text
}

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .expect("a folder")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A running daemon; killed if the test ends before it does.
struct Daemon(Child);

impl Daemon {
    fn start(arguments: &[&str], socket: &Path) -> Self {
        let mut daemon = Self(gpuvmk(arguments).spawn().expect("the binary runs"));
        let began = Instant::now();
        while !socket.exists() {
            let ended = daemon.0.try_wait().expect("a child");
            assert!(ended.is_none(), "{arguments:?} ended: {ended:?}");
            assert!(began.elapsed() < PATIENCE, "{arguments:?} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon
    }

    /// Ends it as a manager would; returns whether it exited with success.
    fn terminate(&mut self) -> bool {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().expect("kill runs");
        assert!(sent.success());
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("a child") {
                return status.success();
            }
            assert!(began.elapsed() < PATIENCE, "it does not end at SIGTERM");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("utf-8").to_owned()
}

const GPU: &str = "name = \"gpu0\"\nbackend = \"soft\"\nvram = \"128M\"\n[socket]\npath = \"gpu0.sock\"\n\
                   [control]\npath = \"gpu0.control\"\n";

fn vm(name: &str, vram: &str) -> String {
    format!("name = \"{name}\"\ngpu = \"gpu0.sock\"\nvram = \"{vram}\"\n[socket]\npath = \"{name}.sock\"\n")
}

#[test]
fn missing_socket_folder_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = GPU.replace("gpu0.sock", "absent/gpu0.sock");
    let file = write(folder.path(), "gpu0.toml", &text);
    let said = fails(&["aggregator", &file]);
    assert!(said.contains("absent") && said.contains("does not exist"), "{said}");
    assert_eq!(entries(folder.path()), ["gpu0.toml"]);
}

#[test]
fn wrong_configuration_starts_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "gpu0.toml", &GPU.replace("128M", "127M"));
    let said = fails(&["aggregator", &file]);
    assert!(said.contains("line 3: `vram`"), "{said}");
    assert_eq!(entries(folder.path()), ["gpu0.toml"]);
}

#[test]
fn absent_aggregator_is_reported_with_the_remedy() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = write(folder.path(), "vm1.toml", &vm("vm1", "64M"));
    let said = fails(&["device", &file, "--wait", "0"]);
    assert!(said.contains("No aggregator") && said.contains("gpuvmk aggregator"), "{said}");
    assert_eq!(entries(folder.path()), ["vm1.toml"]);
}

#[test]
fn backend_without_a_socket_says_where_to_give_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = vm("vm1", "64M");
    let text = text.split("[socket]").next().expect("the keys before it");
    let file = write(folder.path(), "vm1.toml", text);
    let said = fails(&["device", &file]);
    assert!(said.contains("--socket-path"), "{said}");
}

#[test]
fn capabilities_are_printed_as_json_and_nothing_else_happens() {
    for command in ["device", "softgpu"] {
        let output = gpuvmk(&[command, "--print-capabilities"]).output().expect("the binary runs");
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(json.get("type").is_some() && json.get("features").is_some(), "{json}");
    }
}

#[test]
fn aggregator_refuses_what_it_cannot_give_and_cleans_up_at_the_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let gpu = write(path, "gpu0.toml", GPU);
    let mut aggregator = Daemon::start(&["aggregator", &gpu], &path.join("gpu0.control"));

    // A second one on the same socket.
    let said = fails(&["aggregator", &gpu]);
    assert!(said.contains("in use"), "{said}");
    // More VRAM than there is.
    let file = write(path, "vm9.toml", &vm("vm9", "256M"));
    let said = fails(&["device", &file]);
    assert!(said.contains("not admitted") && said.contains("VRAM"), "{said}");
    // Another chip than the GPU's.
    let text = vm("vm9", "64M").replace("vram", "chip = \"GH100\"\nvram");
    let file = write(path, "vm9.toml", &text);
    let said = fails(&["device", &file]);
    assert!(
        said.contains("is to be a GH100, the physical GPU is a GF100") && said.contains("`chip`"),
        "{said}"
    );
    // The same name twice, and the same socket twice.
    let file = write(path, "vm1.toml", &vm("vm1", "32M"));
    let mut device = Daemon::start(&["device", &file], &path.join("vm1.sock"));
    wait_for_tenant(path, "vm1");
    let said = fails(&["device", &file]);
    assert!(said.contains("in use"), "{said}");
    let other = path.join("other.sock");
    let said = fails(&["device", &file, "--socket-path", other.to_str().expect("utf-8")]);
    assert!(said.contains("not admitted") && said.contains("vm1"), "{said}");

    assert!(device.terminate(), "the backend ends in order");
    assert!(aggregator.terminate(), "the aggregator ends in order");
    assert_eq!(entries(path), ["gpu0.toml", "vm1.toml", "vm9.toml"], "no socket stays behind");
}

fn wait_for_tenant(folder: &Path, name: &str) {
    let control = folder.join("gpu0.control");
    let began = Instant::now();
    loop {
        let status = gpuvmk(&["status", "--socket", control.to_str().expect("utf-8")]).output();
        let text = String::from_utf8_lossy(&status.expect("the binary runs").stdout).into_owned();
        if text.contains(name) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{name} does not become a tenant: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn backend_outlives_its_aggregator_and_says_that_it_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let gpu = write(path, "gpu0.toml", GPU);
    // The backend first: it waits for the aggregator.
    let file = write(path, "vm1.toml", &vm("vm1", "32M"));
    let mut device = Daemon::start(&["device", &file], &path.join("vm1.sock"));
    let mut aggregator = Daemon::start(&["aggregator", &gpu], &path.join("gpu0.control"));
    wait_for_tenant(path, "vm1");

    aggregator.0.kill().expect("killed");
    aggregator.0.wait().expect("a child");
    std::thread::sleep(Duration::from_millis(300));

    assert!(device.0.try_wait().expect("a child").is_none(), "the backend still serves its QEMU");
    assert!(device.terminate());
    let mut said = String::new();
    let stderr = device.0.stderr.as_mut().expect("piped");
    std::io::Read::read_to_string(stderr, &mut said).expect("text");
    assert!(said.contains("lost") || said.contains("gone"), "{said}");
}

#[test]
fn settings_are_changed_while_a_vm_is_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    let gpu = write(path, "gpu0.toml", GPU);
    let _aggregator = Daemon::start(&["aggregator", &gpu], &path.join("gpu0.control"));
    let file = write(path, "vm1.toml", &vm("vm1", "32M"));
    let _device = Daemon::start(&["device", &file], &path.join("vm1.sock"));
    wait_for_tenant(path, "vm1");
    let set = |arguments: &[&str]| {
        let output =
            gpuvmk(&[&["set"], arguments, &["--gpu", &gpu]].concat()).output().expect("the binary runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };

    assert!(set(&["vm1", "weight=200", "cap=50"]).starts_with("vm1: weight=200 cap=50"));
    let policy = set(&["gpu", "policy=best-effort", "slice=4000", "--json"]);
    let said = fails(&["set", "vm1", "weight=0", "--gpu", &gpu]);
    let unknown = fails(&["set", "vm2", "weight=1", "--gpu", &gpu]);

    assert!(
        policy.contains(r#""policy":"best-effort""#) && policy.contains(r#""slice_us":4000"#),
        "{policy}"
    );
    assert!(said.contains("weight 0 is not 1 to 10000"), "{said}");
    assert!(unknown.contains("no VM named vm2") && unknown.contains("vm1"), "{unknown}");
    let status = gpuvmk(&["status", &gpu, "--json"]).output().expect("the binary runs").stdout;
    let status: serde_json::Value = serde_json::from_slice(&status).expect("JSON");
    assert_eq!(
        (&status["gpu"]["policy"], &status["tenants"][0]["share"]["weight"]),
        (&"best-effort".into(), &200.into())
    );
}
