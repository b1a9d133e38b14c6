//! A daemon as a process of its own, with what it says, and limits on what it may have.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests may fail as tests do"
)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// The running daemon; killed when dropped.
pub struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Runs `gpuvmk` in `folder`.
    pub fn start(folder: &Path, label: &str, arguments: &[&str]) -> Self {
        Self::start_limited(folder, label, "", arguments)
    }

    /// The same, after `limits`, which are commands of a shell (`ulimit -n 30`).
    pub fn start_limited(folder: &Path, label: &str, limits: &str, arguments: &[&str]) -> Self {
        let script = format!("{limits}\nexec \"$0\" \"$@\"");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_gpuvmk")]).args(arguments);
        Self::spawn(folder, label, command)
    }

    /// Runs `command` in `folder`.
    pub fn spawn(folder: &Path, label: &str, mut command: Command) -> Self {
        let log = folder.join(format!("{label}.log"));
        let output = File::create(&log).unwrap();
        let child =
            command.current_dir(folder).stdin(Stdio::null()).stderr(Stdio::from(output)).spawn().unwrap();
        Self { child, log }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Waits until it has said `text`.
    pub fn wait_for(&mut self, text: &str) {
        until(&format!("{} says \"{text}\"", self.log.display()), || {
            let ended = self.child.try_wait().unwrap();
            let said = self.said();
            assert!(ended.is_none() || said.contains(text), "it ended with {ended:?}: {said}");
            said.contains(text)
        });
    }

    /// True while it runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub fn end(&mut self) -> ExitStatus {
        let mut status = None;
        until("the end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Sends SIGTERM and waits for its end.
    pub fn terminate(&mut self) -> ExitStatus {
        assert!(Command::new("kill").arg(self.pid().to_string()).status().unwrap().success());
        self.end()
    }

    /// Memory that it shares with nobody, in KiB.
    pub fn private_kib(&self) -> u64 {
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap();
        let kib = |name: &str| {
            let line = rollup.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_end_matches(" kB").trim().parse::<u64>().unwrap()
        };
        kib("Private_Clean:") + kib("Private_Dirty:")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until something is so.
pub fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Writes a GPU's file, `gpu0.toml`: sockets `gpu0.sock` and `gpu0.control`.
pub fn write_gpu(folder: &Path, chip: &str) {
    write_gpu_of(folder, chip, "256M");
}

/// The same with so much VRAM.
pub fn write_gpu_of(folder: &Path, chip: &str, vram: &str) {
    let text = format!(
        "name = \"gpu0\"\nbackend = \"soft\"\nchip = \"{chip}\"\nvram = \"{vram}\"\n\
         [socket]\npath = \"gpu0.sock\"\n[control]\npath = \"gpu0.control\"\n"
    );
    std::fs::write(folder.join("gpu0.toml"), text).unwrap();
}

/// Writes a VM's file, `NAME.toml`: socket `NAME.sock`; `more` comes before it.
pub fn write_vm(folder: &Path, name: &str, chip: &str, more: &str) {
    let text = format!(
        "name = \"{name}\"\ngpu = \"gpu0.sock\"\nchip = \"{chip}\"\nvram = \"64M\"\n{more}\n\
         [socket]\npath = \"{name}.sock\"\n"
    );
    std::fs::write(folder.join(format!("{name}.toml")), text).unwrap();
}

/// An aggregator of a GF100 with one VM, `vm1`, on it; `more` stands at the end of the VM's file.
pub struct Site {
    pub folder: tempfile::TempDir,
    pub aggregator: Daemon,
    pub device: Daemon,
}

impl Site {
    pub fn with(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        write_gpu(path, "GF100");
        write_vm(path, "vm1", "GF100", "");
        let file = path.join("vm1.toml");
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + more).unwrap();
        let mut aggregator = Daemon::start(path, "aggregator", &["aggregator", "gpu0.toml"]);
        aggregator.wait_for("serves at");
        let mut device = Daemon::start(path, "device", &["device", "vm1.toml"]);
        device.wait_for("serves");
        Self { folder, aggregator, device }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}
