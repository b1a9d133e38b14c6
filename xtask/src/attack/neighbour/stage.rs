//! The machines: an aggregator with a software GPU, an idle device backend, and the neighbour.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::process::{Priority, Process};
use gpuvmk_lab::processors::{self, Half, slow};
use gpuvmk_lab::rig::{RECOMMENDED, Rig, RigSpec, Topology};

use super::figures::Period;
use super::steps::Steps;
use crate::attack::peers::resources::Baseline;
use crate::cases::Guest;
use crate::workshop::Workshop;

/// The folder of all logs.
const CASE: &str = "neighbour";
/// VRAM beside the idle backend's: what the software GPU keeps, the neighbour, and attackers.
const SPARE_VRAM_MIB: u32 = 768 + 64 + 1536;
/// Channels of each.
const CHANNELS: u16 = 16;
/// The first line of the neighbour's.
const STARTS: Duration = Duration::from_secs(20);

/// See the module.
#[derive(Debug)]
pub struct Stage<'a> {
    // Field order is drop order: the neighbour goes before the GPU.
    neighbour: Child,
    lines: Receiver<String>,
    rig: Rig,
    workshop: &'a Workshop,
    pub program: PathBuf,
    baseline: Baseline,
    processors: slow::Watch,
}

impl<'a> Stage<'a> {
    /// Starts all; the neighbour is at work when this returns.
    pub fn start(workshop: &'a Workshop, program: PathBuf) -> Result<Self> {
        let idle = Guest { vram_mib: 64, ..Guest::new("idle", Chip::GF100, Chip::GF100.usual_kernel(), &[]) };
        workshop.forget_logs(CASE)?;
        let spec = workshop.rig_spec(CASE, Topology::Mediated, &[idle]);
        let mut rig = Rig::start(RigSpec {
            policy: RECOMMENDED,
            spare_vram_mib: SPARE_VRAM_MIB,
            channels: CHANNELS,
            ..spec
        })?;
        let log = File::create(workshop.folder(CASE).join("neighbour.log"))?;
        let mut neighbour = Command::new(&program)
            .arg("neighbour")
            .arg("--device")
            .arg(rig.socket(0))
            .arg("--aggregator")
            .arg(rig.shared_socket(Chip::GF100))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("Cannot start {}", program.display()))?;
        let output = neighbour.stdout.take().context("the neighbour's output")?;
        let (said, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        lines.recv_timeout(STARTS).context("The neighbour is not at work")?;
        // The aggregator, which works for both, may use all processors.
        processors::keep(neighbour.id(), Half::First)?;
        let baseline = Baseline::settled(&mut rig)?;
        Ok(Self { neighbour, lines, rig, workshop, program, baseline, processors: slow::Watch::start()? })
    }

    /// Where attackers' output goes.
    pub fn folder(&self) -> PathBuf {
        self.workshop.folder(CASE)
    }

    /// The idle device backend's socket.
    pub fn device_socket(&self) -> PathBuf {
        self.rig.socket(0)
    }

    /// The aggregator's socket.
    pub fn aggregator_socket(&self) -> PathBuf {
        self.rig.shared_socket(Chip::GF100)
    }

    /// Gives a process of the attackers' its processors.
    pub fn put_aside(&self, process: u32) -> Result<()> {
        processors::keep(process, Half::Second)
    }

    /// A process that spins in the attackers' place and leaves the socket alone.
    pub fn spinner(&self) -> Result<Process> {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let process = Process::start(command, "a spinning process")?;
        process.set_priority(Priority::Lower)?;
        self.put_aside(process.id())?;
        Ok(process)
    }

    /// An honest tenant in the attackers' place that copies without a pause; at work when this returns.
    pub fn co_tenant(&self) -> Result<CoTenant> {
        let mut child = Command::new(&self.program)
            .arg("co-tenant")
            .arg("--device")
            .arg(self.device_socket())
            .arg("--aggregator")
            .arg(self.aggregator_socket())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("Cannot start {}", self.program.display()))?;
        self.put_aside(child.id())?;
        let output = child.stdout.take().context("the co-tenant's output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line.trim() == "at work", "the co-tenant said '{line}'");
        Ok(CoTenant(child))
    }

    /// An error if the neighbour has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.neighbour.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let log = std::fs::read_to_string(self.folder().join("neighbour.log")).unwrap_or_default();
                bail!("the neighbour ended with {status}: {}", gpuvmk_lab::machine::last_lines(&log, 3))
            }
        }
    }

    /// Lets time pass, and says what was timed in it.
    pub fn watch(&mut self, time: Duration) -> Result<Period> {
        let start = Instant::now();
        self.forget();
        while start.elapsed() < time {
            self.check()?;
            thread::sleep(Duration::from_millis(20));
        }
        self.take()
    }

    /// What was timed before is of no interest.
    pub fn forget(&self) {
        while self.lines.try_recv().is_ok() {}
    }

    /// What was timed until now.
    pub fn take(&mut self) -> Result<Period> {
        let mut period = Period::default();
        let was_slow = |from, to| self.processors.was_slow(from, to);
        while let Ok(line) = self.lines.try_recv() {
            period.add(&line, was_slow)?;
        }
        // A request under way for long is told when it ends, or the neighbour does.
        while period.is_empty() {
            let line = self.lines.recv_timeout(Duration::from_secs(60));
            self.check()?;
            let line = line.context("The neighbour has said nothing for a minute")?;
            period.add(&line, |from, to| self.processors.was_slow(from, to))?;
        }
        Ok(period.settle())
    }

    /// Engine accesses of anybody outside its own memory that are known of those who are there.
    pub fn foreign_accesses(&self) -> Result<u64> {
        let mut foreign = 0;
        for tenant in self.rig.tenants()? {
            let name = &tenant.name;
            foreign += tenant.foreign_accesses.with_context(|| format!("{name}: nobody counts accesses"))?;
        }
        Ok(foreign)
    }

    /// How long the aggregator's thread was at what, so far.
    pub fn steps(&self) -> Result<Steps> {
        let status = self.rig.status()?;
        Ok(Steps::of(&status.first().context("there is no aggregator")?.gpu.steps))
    }

    /// Bytes of all daemons' logs.
    pub fn log_bytes(&self) -> u64 {
        self.rig.log_bytes()
    }

    /// What of the daemons is broken, or is held that was not held at first.
    pub fn held_for_good(&mut self) -> Result<Vec<String>> {
        let found = self.rig.damage()?;
        if found.is_empty() { self.baseline.clone().await_return(&mut self.rig) } else { Ok(found) }
    }

    /// What of the daemons is broken.
    pub fn damage(&mut self) -> Result<Vec<String>> {
        self.rig.damage()
    }

    /// Ends everything; returns what was wrong.
    pub fn end(mut self) -> Result<Vec<String>> {
        drop(self.neighbour.stdin.take());
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.neighbour.try_wait()? {
                break status;
            }
            ensure!(start.elapsed() < STARTS, "the neighbour does not end");
            thread::sleep(Duration::from_millis(10));
        };
        let mut problems = self.rig.stop()?;
        if !status.success() {
            problems.push(format!("the neighbour ended with {status}"));
        }
        Ok(problems)
    }
}

/// See [`Stage::co_tenant`].
#[derive(Debug)]
pub struct CoTenant(Child);

impl CoTenant {
    /// Ends it.
    pub fn end(mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        ensure!(status.success(), "the co-tenant ended with {status}");
        Ok(())
    }
}

impl Drop for CoTenant {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.neighbour.kill();
        let _ = self.neighbour.wait();
    }
}
