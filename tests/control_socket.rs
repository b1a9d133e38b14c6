//! The control socket of a running aggregator: every method that it lists, what it refuses, who may use it,
//! and clients that are slow, silent or hostile.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[path = "common/daemon.rs"]
mod daemon;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use daemon::{Daemon, Site, until, write_gpu, write_vm};
use serde_json::{Value, json};

/// How the tests speak to the site's aggregator.
trait Asked: Sized {
    fn start() -> Self;
    fn socket(&self) -> PathBuf;
    fn connect(&self) -> UnixStream;
    fn answer(&self, line: &str) -> Value;
    fn call(&self, method: &str, params: &Value) -> Value;
    fn result(&self, method: &str, params: &Value) -> Value;
    fn error(&self, method: &str, params: &Value) -> (i64, String);
}

impl Asked for Site {
    fn start() -> Self {
        let site = Self::with("");
        until("the VM is there", || {
            site.result("status", &json!({}))["tenants"].as_array().unwrap().len() == 1
        });
        site
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("gpu0.control")
    }

    fn connect(&self) -> UnixStream {
        let socket = UnixStream::connect(self.socket()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    }

    /// The answer to a line.
    fn answer(&self, line: &str) -> Value {
        let mut socket = self.connect();
        socket.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(socket).read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{line} is answered {answer:?}: {error}"))
    }

    fn call(&self, method: &str, params: &Value) -> Value {
        let answer = self
            .answer(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string());
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(7)), "{answer}");
        answer
    }

    fn result(&self, method: &str, params: &Value) -> Value {
        let mut answer = self.call(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].take()
    }

    fn error(&self, method: &str, params: &Value) -> (i64, String) {
        let answer = self.call(method, params);
        assert!(answer.get("result").is_none(), "{method}: {answer}");
        (answer["error"]["code"].as_i64().unwrap(), answer["error"]["message"].as_str().unwrap().to_owned())
    }
}

#[test]
fn every_method_that_is_listed_does_what_it_says() {
    let site = Site::start();
    let listed = site.result("rpc.discover", &json!({}));
    let methods = listed["methods"].as_array().unwrap();
    let listed_names: BTreeSet<_> = methods.iter().map(|method| method["name"].as_str().unwrap()).collect();
    let mut tried = BTreeSet::from(["rpc.discover"]);
    let mut result = |method: &'static str, params: &Value| {
        tried.insert(method);
        site.result(method, params)
    };

    let version = result("version", &json!({}));
    assert_eq!(version["program"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["api"], listed["info"]["version"]);

    let status = result("status", &json!({}));
    assert_eq!((&status["gpu"]["chip"], &status["tenants"][0]["name"]), (&json!("GF100"), &json!("vm1")));
    let vm = result("vm.show", &json!({ "vm": "vm1" }));
    assert_eq!((&vm["vram"], &vm["paused"]), (&json!(64 << 20), &json!(false)));

    let set = result("vm.set", &json!({ "vm": "vm1", "settings": ["weight=300", "cap=40"] }));
    assert_eq!((&set["share"]["weight"], &set["share"]["cap"]), (&json!(300), &json!(40)));
    assert_eq!(result("vm.pause", &json!({ "vm": "vm1" }))["paused"], true);
    assert_eq!(result("vm.show", &json!({ "vm": "vm1" }))["paused"], true);
    assert_eq!(result("vm.resume", &json!({ "vm": "vm1" }))["paused"], false);
    assert_eq!(result("vm.reset", &json!({ "vm": "vm1" })), json!({ "vm": "vm1", "channels": 0 }));

    let set = result("gpu.set", &json!({ "settings": ["policy=credit", "slice=3000"] }));
    assert_eq!((&set["policy"], &set["slice_us"]), (&json!("credit"), &json!(3000)));
    assert_eq!(result("gpu.drain", &json!({}))["draining"], true);
    assert_eq!(result("status", &json!({}))["gpu"]["draining"], true);
    assert_eq!(result("gpu.admit", &json!({}))["draining"], false);

    // This GPU's file has no list to change: tests/who_may_come.rs changes one.
    tried.extend(["vm.allow", "vm.forbid"]);
    let guest = json!({ "name": "vm9", "uid": 1, "vram": 1 << 26, "channels": 1 });
    for (method, params) in [("vm.allow", guest), ("vm.forbid", json!({ "vm": "vm9" }))] {
        let (code, said) = site.error(method, &params);
        assert!(code == -32002 && said.contains("no [[vm]] sections"), "{code} {said}");
    }

    assert_eq!(tried, listed_names, "a method has no case here, or is not listed");
}

#[test]
fn mistakes_are_told_with_what_would_be_right() {
    let site = Site::start();

    let (code, said) = site.error("vm.stop", &json!({}));
    assert!(code == -32601 && said.contains("vm.stop") && said.contains("vm.pause"), "{code} {said}");
    let (code, said) = site.error("vm.show", &json!({}));
    assert!(code == -32602 && said.contains("vm.show takes vm"), "{code} {said}");
    let (code, said) = site.error("vm.show", &json!(["vm1"]));
    assert!(code == -32602 && said.contains("by name"), "{code} {said}");
    let (code, said) = site.error("status", &json!({ "vm": "vm1" }));
    assert!(code == -32602 && said.contains("takes no parameters"), "{code} {said}");
    for method in ["vm.show", "vm.pause", "vm.resume", "vm.reset"] {
        let (code, said) = site.error(method, &json!({ "vm": "vm2" }));
        assert!(code == -32001 && said.contains("vm2") && said.contains("vm1"), "{method}: {code} {said}");
    }
    let (code, said) = site.error("vm.set", &json!({ "vm": "vm1", "settings": ["weight=1", "cap=101"] }));
    assert!(code == -32002 && said.contains("101"), "{code} {said}");
    assert_eq!(site.result("vm.show", &json!({ "vm": "vm1" }))["share"]["weight"], 100, "all or nothing");
    assert_eq!(site.answer("{\"jsonrpc\":")["error"]["code"], -32700);
    assert_eq!(site.answer("[]")["error"]["code"], -32600);
}

#[test]
fn drained_gpu_admits_nobody_and_says_why() {
    let site = Site::start();
    let path = site.folder.path();
    site.result("gpu.drain", &json!({}));
    write_vm(path, "vm2", "GF100", "");

    let mut refused = Daemon::start(path, "refused", &["device", "vm2.toml", "--wait", "0"]);
    assert!(!refused.end().success());
    let said = refused.said();
    assert!(said.contains("drain"), "{said}");

    site.result("gpu.admit", &json!({}));
    let mut admitted = Daemon::start(path, "admitted", &["device", "vm2.toml"]);
    admitted.wait_for("serves");
    until("the second VM is there", || {
        site.result("status", &json!({}))["tenants"].as_array().unwrap().len() == 2
    });
}

#[test]
fn socket_has_the_mode_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    write_gpu(folder.path(), "GF100");
    let file = folder.path().join("gpu0.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("gpu0.control\"\n", "gpu0.control\"\nmode = \"0600\"\n")).unwrap();
    let mut aggregator = Daemon::start(folder.path(), "aggregator", &["aggregator", "gpu0.toml"]);
    aggregator.wait_for("serves at");

    let mode = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("gpu0.control"), mode("gpu0.sock")), (0o600, 0o660));
}

#[test]
fn clients_that_say_nothing_or_read_nothing_hold_up_nobody() {
    let mut site = Site::start();
    let fds = |site: &Site| open_files(site.aggregator.pid());
    let before = fds(&site);

    // More of them than are served at a time, twice: silent ones, and such that ask without reading.
    let silent: Vec<_> = (0..20).map(|_| site.connect()).collect();
    let greedy: Vec<_> = (0..20)
        .map(|_| {
            let mut socket = site.connect();
            socket.set_nonblocking(true).unwrap();
            let line = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}\n".repeat(2000);
            let _ = socket.write(line.as_bytes());
            socket
        })
        .collect();
    let start = Instant::now();
    let version = site.result("version", &json!({}));
    assert_eq!(version["program"], env!("CARGO_PKG_VERSION"));
    assert!(start.elapsed() < Duration::from_secs(2), "an honest operator waited {:?}", start.elapsed());

    drop((silent, greedy));
    until("their descriptors are closed", || fds(&site) <= before);
    assert!(site.aggregator.runs());
}

#[test]
fn garbage_ends_its_connection_and_nothing_else() {
    let mut site = Site::start();
    for garbage in [vec![b'x'; 10_000], vec![0xff; 100], [b"{".repeat(4000), b"\n".to_vec()].concat()] {
        let mut socket = site.connect();
        let _ = socket.write_all(&garbage);
        let _ = socket.write_all(b"\n");
        let mut answer = Vec::new();
        // An error or the end, and no more than an error's length of it.
        let _ = socket.take(1 << 20).read_to_end(&mut answer);
        assert!(answer.len() < 4096, "{} bytes", answer.len());
    }
    // A batch asks for no more than a few answers.
    let many: Vec<_> = (0..9).map(|id| json!({ "jsonrpc": "2.0", "id": id, "method": "status" })).collect();
    assert_eq!(site.answer(&Value::Array(many.clone()).to_string())["error"]["code"], -32600);
    let few = site.answer(&Value::Array(many[..3].to_vec()).to_string());
    assert_eq!(few.as_array().unwrap().len(), 3);
    assert!(site.aggregator.runs());
    assert_eq!(site.result("status", &json!({}))["tenants"][0]["name"], "vm1");
}

fn open_files(pid: u32) -> usize {
    std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")).unwrap().count()
}
