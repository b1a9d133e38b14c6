//! Every entry of every filter is needed: the daemons run traced, in their jail, while a client does all that
//! a QEMU and a driver do; then each role's rare paths are run. An entry that neither shows is reported.
//!
//! Needs strace. The calls of a real GPU's driver are not made here: they count by their rare paths.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests may fail as tests do"
)]

#[path = "common/client.rs"]
mod client;
#[path = "common/prisoner.rs"]
mod prisoner;
#[path = "common/remote.rs"]
mod remote;
#[path = "common/scenarios.rs"]
mod scenarios;
#[path = "common/strace.rs"]
mod strace;
#[path = "common/tiny_driver/mod.rs"]
mod tiny_driver;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, QEMU_PROPOSAL, version};
use gpuvmk::chip::gf100::regs::{pmc, ptimer};
use gpuvmk::frontend::vfio_user::wire::{command, irq};
use gpuvmk::jail::Role;
use gpuvmk::pci::{PciFunction, Region};
use remote::Remote;
use strace::Census;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const PRISONER: &str = "the_prisoner";
const PATIENCE: Duration = Duration::from_secs(30);

/// Not a test: the process that runs rare paths.
#[test]
#[ignore = "started by the other tests"]
fn the_prisoner() {
    prisoner::serve_sentence();
}

/// A daemon below strace.
struct Traced {
    child: Child,
    log: PathBuf,
}

impl Traced {
    fn start(folder: &Path, label: &str, arguments: &[&str]) -> Self {
        let log = folder.join(format!("{label}.strace"));
        let words = strace::command(log.to_str().unwrap());
        let child = Command::new(words[0])
            .args(&words[1..])
            .arg(env!("CARGO_BIN_EXE_gpuvmk"))
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stderr(Stdio::from(std::fs::File::create(folder.join(format!("{label}.log"))).unwrap()))
            .spawn()
            .expect("strace runs");
        Self { child, log }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    }

    /// Ends it, and returns what strace wrote.
    fn end(mut self, signal: &str) -> String {
        self.signal(signal);
        let status = self.child.wait().unwrap();
        if signal == "-TERM" {
            assert!(status.success(), "{}: {status}: {}", self.log.display(), self.said());
        }
        // strace writes on until it has seen the last thread's end.
        let mut before = String::new();
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = std::fs::read_to_string(&self.log).unwrap();
            if now == before && now.contains("+++") {
                return now;
            }
            before = now;
        }
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.log.with_extension("log")).unwrap_or_default()
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn status(folder: &Path) -> String {
    let control = folder.join("gpu0.control");
    let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
    let output = command.args(["status", "--socket", control.to_str().unwrap()]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Records a VM for a moment, and is refused a wish that makes no sense.
fn record(folder: &Path) {
    for (wish, works) in [("bar=0", true), ("colour=red", false)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvmk"));
        command.args(["trace", "record", "vm1.toml", "-o", "vm1.trace", "--seconds", "1", wish]);
        let output = command.current_dir(folder).output().unwrap();
        assert_eq!(output.status.success(), works, "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A client that is told that the device is taken.
fn come_second(socket: &Path) {
    let mut client = Client::connect(socket);
    let reply = client.command(command::VERSION, &version(0, 0, QEMU_PROPOSAL));
    assert_eq!(reply.errno(), libc::EBUSY);
}

/// The life of a vGPU: four clients, somebody who records, work on every engine, short and long, both kinds
/// of interrupts, the alarm, an aggregator that goes and comes back.
fn live(folder: &Path) -> Vec<(Role, String)> {
    let mut logs = Vec::new();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
    write(
        "gpu0.toml",
        "name = \"gpu0\"\nbackend = \"soft\"\nvram = \"256M\"\n[socket]\npath = \"gpu0.sock\"\n[control]\npath = \"gpu0.control\"\n",
    );
    write(
        "vm1.toml",
        "name = \"vm1\"\ngpu = \"gpu0.sock\"\nvram = \"64M\"\nbar3 = \"direct\"\n[socket]\npath = \"vm1.sock\"\n[trace.socket]\npath = \"vm1.record\"\n",
    );
    let aggregator = Traced::start(folder, "aggregator", &["aggregator", "gpu0.toml"]);
    until("the aggregator's sockets", || folder.join("gpu0.control").exists());
    let device = Traced::start(folder, "device", &["device", "vm1.toml"]);
    until("the tenant", || status(folder).contains("vm1"));
    let socket = folder.join("vm1.sock");

    let function = Arc::new(Remote::connect(&socket));
    scenarios::copies_on_every_engine(function.clone());
    record(folder);
    come_second(&socket);
    drop(function);
    scenarios::copies_that_end_with_a_message(Arc::new(Remote::connect(&socket)), 40);
    scenarios::long_fills_that_end_with_a_message(Arc::new(Remote::connect(&socket)), 5);

    let function = Arc::new(Remote::connect(&socket));
    interrupts_of_the_alarm(&function);
    logs.push((Role::Supervisor, aggregator.end("-KILL")));
    // A reset looks for a new aggregator; it is late.
    let late = std::thread::scope(|scope| {
        scope.spawn(|| function.reset());
        std::thread::sleep(Duration::from_millis(500));
        Traced::start(folder, "aggregator-2", &["aggregator", "gpu0.toml"])
    });
    until("the tenant at the new aggregator", || status(folder).contains("vm1"));
    function.reset();
    scenarios::copies_on_every_engine(function.clone());

    logs.push((Role::Session, device.end("-TERM")));
    logs.push((Role::Supervisor, late.end("-TERM")));
    logs
}

/// The life of a software GPU that is alone: work on every engine, the alarm, two clients.
fn live_alone(folder: &Path) -> (Role, String) {
    let arguments = ["softgpu", "--socket-path=soft.sock", "--vram=64M", "--trace=soft.trace"];
    let process = Traced::start(folder, "softgpu", &arguments);
    let socket = folder.join("soft.sock");
    until("the software GPU's socket", || socket.exists() && process.said().contains("serves"));

    let function = Arc::new(Remote::connect(&socket));
    scenarios::copies_on_every_engine(function.clone());
    drop(function);

    let function = Arc::new(Remote::connect(&socket));
    interrupts_of_the_alarm(&function);
    function.reset();
    scenarios::copies_on_every_engine(function.clone());

    (Role::SoftGpu, process.end("-TERM"))
}

/// The alarm raises INTx, which a descriptor unmasks again and again.
fn interrupts_of_the_alarm(function: &Arc<Remote>) {
    let flags = EFD_NONBLOCK;
    let (line, unmask) = (EventFd::new(flags).unwrap(), EventFd::new(flags).unwrap());
    function.set_irq(irq::INTX, irq::ACTION_TRIGGER, &line);
    function.set_irq(irq::INTX, irq::ACTION_UNMASK, &unmask);
    let write = |reg: gpuvmk::chip::registers::Reg, value: u32| {
        function.write(Region::Bar(0), reg.0.into(), &value.to_le_bytes()).unwrap();
    };
    write(ptimer::NV_PTIMER_INTR_EN_0, 1);
    write(pmc::NV_PMC_INTR_EN_0, 1);
    let mut now = [0; 4];
    function.read(Region::Bar(0), ptimer::NV_PTIMER_TIME_0.0.into(), &mut now).unwrap();
    write(ptimer::NV_PTIMER_ALARM_0, u32::from_le_bytes(now).wrapping_add(200_000_000));
    // A read takes along what was written.
    function.read(Region::Bar(0), ptimer::NV_PTIMER_TIME_0.0.into(), &mut now).unwrap();
    until("the alarm", || line.read().is_ok());
    // Nobody has dealt with it: unmasked, the line is raised again.
    unmask.write(1).unwrap();
    until("the line again", || line.read().is_ok());
}

/// Each role's rare paths.
fn live_rarely(folder: &Path) -> Vec<(Role, String)> {
    let mut logs = Vec::new();
    for role in Role::ALL {
        for deed in ["work", "exit", "panic", "abort", "segv", "bus"] {
            let log = folder.join(format!("{role}-{deed}.strace"));
            prisoner::run(&strace::command(log.to_str().unwrap()), PRISONER, role, deed);
            until("the end of strace", || {
                std::fs::read_to_string(&log).is_ok_and(|log| log.trim_end().ends_with("+++"))
            });
            logs.push((role, std::fs::read_to_string(&log).unwrap()));
        }
    }
    logs
}

fn census(logs: &[(Role, String)]) -> Census {
    let mut census = Census::default();
    for (main, log) in logs {
        census.read(log, *main);
    }
    census
}

#[test]
fn entry_that_no_run_shows_is_in_no_filter() {
    strace::demand();
    let folder = tempfile::tempdir().unwrap();
    let mut logs = live(folder.path());
    logs.push(live_alone(folder.path()));
    let usual = census(&logs);
    let rare = census(&live_rarely(folder.path()));

    let mut needless = Vec::new();
    for role in Role::ALL {
        for (index, rule) in role.rules().enumerate() {
            // What all owners of a GPU do, and all who serve QEMU, is seen with a software GPU.
            let like = match role {
                Role::RmOwner | Role::CardOwner => Some(Role::Owner),
                Role::CardSession => Some(Role::Session),
                _ => None,
            };
            let like_another = like.is_some_and(|like| {
                like.rules().enumerate().any(|(index, other)| {
                    other.number == rule.number && other.when == rule.when && usual.saw(like, index, other)
                })
            });
            // Nothing here runs a machine: its threads' entries are made by themselves.
            let seen = usual.saw(role, index, rule) || like_another;
            if !(seen || (rule.rare.is_some() || role.needs_kvm()) && rare.saw(role, index, rule)) {
                needless.push(format!("{role}: {} {:?} ({})", rule.name(), rule.when, rule.why));
            }
        }
    }

    assert_eq!(usual.foreign, Vec::<String>::new(), "calls outside the caller's filter");
    assert!(needless.is_empty(), "not needed by anything here:\n{}", needless.join("\n"));
}
