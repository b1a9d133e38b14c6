//! The operators' commands against a running aggregator with a VM: what they print, in words and as JSON, and
//! what they say when something is wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[path = "common/daemon.rs"]
mod daemon;

use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use daemon::{Site, until, write_gpu, write_vm};
use serde_json::{Value, json};

/// What the commands say on a site.
trait Commanded: Sized {
    fn start() -> Self;
    fn run(&self, arguments: &[&str]) -> Output;
    fn says(&self, arguments: &[&str]) -> String;
    fn json(&self, arguments: &[&str]) -> Value;
    fn fails(&self, arguments: &[&str]) -> String;
}

impl Commanded for Site {
    fn start() -> Self {
        let site = Self::with("");
        until("the VM is there", || site.json(&["ls"]).as_array().unwrap().len() == 1);
        site
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_gpuvmk"))
            .args(arguments)
            .args(["--gpu", "gpu0.toml"])
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let said = self.says(&[arguments, &["--json"]].concat());
        serde_json::from_str(said.lines().last().unwrap()).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "{arguments:?} must fail");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn list_and_details_and_types_are_printed_for_people_and_for_programs() {
    let site = Site::start();

    let list = site.says(&["ls"]);
    let lines: Vec<_> = list.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("VM") && lines[1].starts_with("vm1"), "{list}");
    assert!(lines[1].contains("active") && lines[1].contains("64M"), "{list}");
    let device = site.json(&["ls"])[0]["pid"].as_u64().unwrap();
    assert!(lines[1].contains(&device.to_string()), "{list}");

    let show = site.says(&["show", "vm1"]);
    assert!(show.contains("name: vm1") && show.contains("limits:") && show.contains("cleanups:"), "{show}");
    assert_eq!(site.json(&["show", "vm1"])["vram"], 64 << 20);

    let types = site.json(&["types"]);
    let of_64 = types.as_array().unwrap().iter().find(|one| one["name"] == "GF100-64M").unwrap();
    let left = of_64["available_instances"].as_u64().unwrap();
    assert!((1..=3).contains(&left), "{types}");
    // A software GPU that is driven by registers has no classes of other chips.
    assert_eq!(of_64["chips"], json!(["GF100"]));
    assert!(site.says(&["types"]).contains(&format!("GF100-64M\n  Available instances: {left}\n")));
}

#[test]
fn work_is_held_back_and_taken_off_and_goes_on() {
    let site = Site::start();

    assert!(site.says(&["pause", "vm1"]).contains("paused"));
    assert!(site.says(&["ls"]).contains("paused"));
    assert_eq!(site.json(&["resume", "vm1"])["paused"], false);
    assert_eq!(site.says(&["reset", "vm1"]), "vm1: 0 channels with unfinished work were taken off\n");
    assert_eq!(site.json(&["reset", "vm1"]), json!({ "vm": "vm1", "channels": 0 }));
    assert!(site.says(&["drain"]).contains("draining"));
    assert_eq!(site.json(&["drain", "--undo"])["draining"], false);
}

#[test]
fn versions_are_those_of_the_program_and_of_the_aggregator() {
    let site = Site::start();
    let version = site.json(&["version", "--running"]);
    assert_eq!(version["running"]["program"], env!("CARGO_PKG_VERSION"), "{version}");
    let alone = Command::new(env!("CARGO_BIN_EXE_gpuvmk")).arg("version").output().unwrap();
    assert!(String::from_utf8_lossy(&alone.stdout).contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn mistakes_name_the_vm_and_what_would_be_right() {
    let site = Site::start();
    for command in ["show", "pause", "resume", "reset"] {
        let said = site.fails(&[command, "vm2"]);
        assert!(said.contains("vm2") && said.contains("vm1"), "{command}: {said}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_gpuvmk"))
        .args(["ls", "--socket", "/nowhere/gpu0.control"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("/nowhere/gpu0.control"), "{said}");
}

#[test]
fn metrics_are_those_of_the_vm_and_end_as_their_format_wants() {
    let site = Site::start();
    let socket = site.folder.path().join("gpu0.control");
    let printed = |format: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
        let output = command.args(["metrics", "--socket"]).arg(&socket).args(format).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = printed(&["--format", "openmetrics"]);
    for wanted in [
        "gpuvmk_up{gpu=\"gpu0\"} 1",
        "gpuvmk_vm_vram_bytes{gpu=\"gpu0\",vm=\"vm1\"} 67108864",
        "gpuvmk_vm_foreign_accesses_total{gpu=\"gpu0\",vm=\"vm1\"} 0",
    ] {
        assert!(text.contains(wanted), "{wanted} is missing: {text}");
    }
    assert!(text.ends_with("# EOF\n"));
    let classic = printed(&[]);
    assert!(classic.contains("# TYPE gpuvmk_build_info gauge\n") && !classic.contains("# EOF"), "{classic}");
}

#[test]
fn metrics_are_served_in_the_form_that_a_scraper_asks_for() {
    let site = Site::start();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = free.to_string();
    let arguments = ["metrics", "--socket", "gpu0.control", "--listen", &address];
    let mut server = daemon::Daemon::start(site.path(), "metrics", &arguments);
    server.wait_for("serves http");
    let ask = |method: &str, path: &str, accept: &str| {
        let mut socket = std::net::TcpStream::connect(&address).unwrap();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: gpu\r\nConnection: close\r\n{accept}\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    };

    let (head, body) = ask("GET", "/metrics", "Accept: text/plain;version=0.0.4\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("gpuvmk_up") && !body.contains("# EOF"), "{body}");
    let (head, body) =
        ask("GET", "/metrics", "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.contains("# EOF"), "{body}");
    let (head, body) = ask("HEAD", "/metrics", "");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    assert_eq!(body, "");
    assert!(ask("HEAD", "/", "").0.starts_with("HTTP/1.1 404"));
    assert!(ask("POST", "/metrics", "").0.starts_with("HTTP/1.1 405"));
}

#[test]
fn reader_that_goes_away_is_no_error_to_speak_of() {
    let script = format!("{} registers | head -n 1", env!("CARGO_BIN_EXE_gpuvmk"));
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

/// Runs `gpuvmk apply` or `assert` on the folder, with processes of its own in place of systemd's.
fn bring(folder: &std::path::Path, verb: &[&str]) -> (bool, Value, String) {
    let start = "setsid \"$GPUVMK\" $KIND $FILE >$NAME.log 2>&1 & echo $! >$NAME.pid";
    let stop = "kill $(cat $NAME.pid)";
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
    command.args(verb).args([".", "--json"]).current_dir(folder).env("GPUVMK", env!("CARGO_BIN_EXE_gpuvmk"));
    if verb[0] == "apply" {
        command.args(["--start", start, "--stop", stop, "--drain", "1"]);
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = said.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null);
    (output.status.success(), last, said + &String::from_utf8_lossy(&output.stderr))
}

/// Ends what was started, whatever became of the test.
struct Started(std::path::PathBuf);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = Command::new("sh").args(["-c", "kill $(cat *.pid)"]).current_dir(&self.0).status();
    }
}

#[test]
fn folder_becomes_what_runs_and_twice_is_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let _started = Started(path.to_owned());
    write_gpu(path, "GF100");
    write_vm(path, "vm1", "GF100", "");
    write_vm(path, "vm2", "GF100", "weight = 50");
    let steps = |answer: &Value| -> Vec<String> {
        let step = |step: &Value| step["step"].as_str().unwrap().to_owned();
        answer["steps"].as_array().unwrap().iter().map(step).collect()
    };

    assert!(!bring(path, &["assert"]).0, "nothing runs yet");
    let (ok, answer, said) = bring(path, &["apply"]);
    assert!(ok, "{said}");
    assert_eq!(steps(&answer), ["start_gpu", "start_vm", "start_vm"], "{said}");
    assert!(bring(path, &["assert"]).0);
    let (ok, answer, said) = bring(path, &["apply"]);
    assert!(ok && steps(&answer).is_empty(), "{said}");

    // One goes, one changes, the policy changes, and one wants what it cannot have while it runs.
    std::fs::remove_file(path.join("vm2.toml")).unwrap();
    write_vm(path, "vm1", "GF100", "weight = 300");
    let gpu = std::fs::read_to_string(path.join("gpu0.toml")).unwrap();
    std::fs::write(path.join("gpu0.toml"), gpu.replace("[socket]", "policy = \"credit\"\n[socket]")).unwrap();
    let (ok, differences, _) = bring(path, &["assert"]);
    assert!(!ok && differences["differences"].as_array().unwrap().len() == 3, "{differences}");
    // As `systemctl reload` has it: nobody goes.
    let (ok, answer, said) = bring(path, &["apply", "--only-settings"]);
    assert!(ok, "{said}");
    assert_eq!(steps(&answer), ["set_gpu", "set_vm"], "{said}");
    let (ok, differences, _) = bring(path, &["assert"]);
    assert!(!ok && differences["differences"].as_array().unwrap().len() == 1, "{differences}");
    let (ok, answer, said) = bring(path, &["apply"]);
    assert!(ok, "{said}");
    assert_eq!(steps(&answer), ["stop_vm"], "{said}");
    assert!(bring(path, &["assert"]).0);

    write_vm(path, "vm1", "GF100", "weight = 300\nchannels = 8");
    let (ok, answer, said) = bring(path, &["apply"]);
    assert!(!ok && answer["left"][0]["step"] == "restart_vm" && said.contains("channels: 8"), "{said}");

    // A wrong file: nothing is done.
    std::fs::write(path.join("vm3.toml"), "name = 5\n").unwrap();
    let (ok, _, said) = bring(path, &["apply"]);
    assert!(!ok && said.contains("vm3.toml"), "{said}");
}
