//! Recording a VM while it runs: at its back end's socket, by somebody who comes and goes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on panics")]

#[path = "common/client.rs"]
mod client;
#[path = "common/daemon.rs"]
mod daemon;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use client::Client;
use daemon::{Site, until};
use gpuvmk::trace::{Event, Reader};
use serde_json::Value;

/// How a VM of a site is recorded.
trait Recorded {
    fn record(&self, arguments: &[&str]) -> Child;
    fn events(&self, file: &str) -> Vec<Event>;
    fn wait_for(&self, said: &str);
}

/// A VM that can be recorded.
fn site() -> Site {
    Site::with("[trace.socket]\npath = \"vm1.record\"\n")
}

impl Recorded for Site {
    fn record(&self, arguments: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_gpuvmk"))
            .args(["trace", "record", "vm1.toml", "--json"])
            .args(arguments)
            .current_dir(self.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn events(&self, file: &str) -> Vec<Event> {
        let bytes = std::fs::read(self.path().join(file)).unwrap();
        Reader::new(bytes.as_slice()).unwrap().map(|entry| entry.unwrap().event).collect()
    }

    fn wait_for(&self, said: &str) {
        until(said, || self.device.said().contains(said));
    }
}

/// Ends a recording as Ctrl-C does; what it said.
fn end(recording: Child) -> Value {
    assert!(Command::new("kill").args(["-INT", &recording.id().to_string()]).status().unwrap().success());
    let output = recording.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn count(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Access(_))).count()
}

#[test]
fn vm_is_recorded_while_somebody_wants_it_and_only_what_he_wants() {
    let site = site();
    let mut client = Client::negotiated(&site.path().join("vm1.sock"));
    let read = |client: &mut Client, times: usize| (0..times).for_each(|_| drop(client.read(0, 0, 4)));

    read(&mut client, 10);
    let recording = site.record(&["-o", "first.trace", "bar=0"]);
    site.wait_for("an operator records");
    read(&mut client, 100);
    // A second one is told, and the first goes on.
    let second = site.record(&["-o", "second.trace"]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("somebody else records"), "{said}");
    assert!(!site.path().join("second.trace").exists());
    let said = end(recording);
    site.wait_for("the recording has ended");
    read(&mut client, 10);

    let events = site.events("first.trace");
    assert_eq!(count(&events), 100, "{events:?}");
    assert_eq!(said["entries"], events.len());

    // Another time, with a condition that leaves everything out.
    let recording = site.record(&["-o", "third.trace", "bar=0", "op=write"]);
    until("it records again", || site.device.said().matches("an operator records").count() == 2);
    read(&mut client, 10);
    end(recording);
    assert_eq!(count(&site.events("third.trace")), 0);
}

#[test]
fn recording_ends_whole_when_its_time_is_up_or_the_back_end_ends() {
    let mut site = site();
    let output = site.record(&["-o", "short.trace", "--seconds", "1"]).wait_with_output().unwrap();
    assert!(output.status.success());
    site.events("short.trace");

    let recording = site.record(&["-o", "long.trace"]);
    until("it records again", || site.device.said().matches("an operator records").count() == 2);
    let mut client = Client::negotiated(&site.path().join("vm1.sock"));
    (0..50).for_each(|_| drop(client.read(0, 0, 4)));
    drop(client);
    assert!(site.device.terminate().success());
    let output = recording.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(count(&site.events("long.trace")) >= 50);
    assert!(!site.path().join("vm1.record").exists(), "the socket is removed");
}

#[test]
fn wrong_wishes_are_refused_and_silent_or_slow_readers_hold_up_nobody() {
    let mut site = site();
    for (wish, why) in
        [("{\"conditions\":[\"colour=red\"]}\n", "allowed are"), ("x\n", "expected"), ("", "line")]
    {
        let mut socket = UnixStream::connect(site.path().join("vm1.record")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.write_all(wish.as_bytes()).unwrap();
        if wish.is_empty() {
            socket.shutdown(std::net::Shutdown::Write).unwrap();
        }
        let mut said = String::new();
        BufReader::new(socket).read_line(&mut said).unwrap();
        assert!(said.contains("\"error\"") && said.contains(why), "{wish}: {said}");
    }

    // One who never reads: the VM goes on, and he is left.
    let mut deaf = UnixStream::connect(site.path().join("vm1.record")).unwrap();
    deaf.write_all(b"{}\n").unwrap();
    site.wait_for("an operator records");
    let mut client = Client::negotiated(&site.path().join("vm1.sock"));
    for _ in 0..200_000 {
        drop(client.read(0, 0, 4));
    }
    site.wait_for("the recording has ended");
    let mut rest = Vec::new();
    deaf.read_to_end(&mut rest).unwrap();
    assert!(site.device.runs());
    drop(client);
    assert!(site.device.terminate().success());
}

#[test]
fn answered_accesses_are_counted_for_operators() {
    let site = site();
    let trapped = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
        let output =
            command.args(["status", "gpu0.toml", "--json"]).current_dir(site.path()).output().unwrap();
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        status["tenants"][0]["trapped"].as_u64()
    };
    until("the VM is there", || trapped().is_some());
    let mut client = Client::negotiated(&site.path().join("vm1.sock"));
    let before = trapped().unwrap();
    (0..70).for_each(|_| drop(client.read(0, 0, 4)));
    let configuration = 7;
    (0..30).for_each(|_| drop(client.read(configuration, 0, 4)));

    assert_eq!(trapped().unwrap() - before, 100);
}
