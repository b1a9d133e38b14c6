//! The machines of attacks at sockets: one GPU, a victim at work, and a second vGPU whose device backend is
//! attacked.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_control_client::Status;
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::machine::{self, Machine, Said};
use gpuvmk_lab::process::{Priority, Process};
use gpuvmk_lab::processors::{self, Half};
use gpuvmk_lab::report::Report;
use gpuvmk_lab::rig::{Rig, RigSpec, SHARED_IN_TURNS, Topology};

use super::resources::Baseline;
use crate::attack::field::{VICTIMS_WORDS, awake, victims_problems};
use crate::attack::figures::Tick;
use crate::cases::Guest;
use crate::workshop::Workshop;

const VICTIM: &str = "victim";
const PEER: &str = "peer";
/// The folder of all logs.
pub const CASE: &str = "peers";
/// VRAM beside the partitions of the two: what the software GPU keeps, 36 more VMs, hostile backends.
const SPARE_VRAM_MIB: u32 = 768 + 36 * 32 + 512;
/// Channels of the two vGPUs. 36 more VMs with two each are to have room beside them and hostile backends.
const CHANNELS: u16 = 16;
const BOOT: Duration = Duration::from_secs(300);
/// How often the tenants' counts are looked at.
const COUNT: Duration = Duration::from_millis(200);

/// What is counted at a moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When.
    pub at: Instant,
    /// Bytes of all daemons' logs.
    pub log_bytes: u64,
    wanted: Wanted,
}

/// Microseconds in which there was work for the GPU that was not done.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted {
    victim: u64,
    /// All others together, those that are gone too, and zeroing their memory: the GPU works for them then as
    /// well.
    others: u64,
}

impl Wanted {
    fn of(all: &[Status]) -> Self {
        let mut wanted = Self::default();
        for status in all {
            let scrub = &status.gpu.scrub;
            let engine_ns = scrub.figures.as_ref().map_or(0, |figures| figures.engine_ns);
            wanted.others += engine_ns / 1000 + scrub.departures.wanted_us;
            for tenant in &status.tenants {
                *(if tenant.name == VICTIM { &mut wanted.victim } else { &mut wanted.others }) +=
                    tenant.wanting_ms * 1000;
            }
        }
        wanted
    }
}

impl Snapshot {
    fn part_of_time(&self, before: &Self, wanted: impl Fn(&Wanted) -> u64) -> f64 {
        let micros = wanted(&self.wanted).saturating_sub(wanted(&before.wanted));
        // CAST: far below 2^53.
        (micros as f64 / 1e6 / self.at.duration_since(before.at).as_secs_f64().max(1e-3)).min(1.0)
    }

    /// The part of the time since `before` in which the victim had work that was not done.
    pub fn victim_wanting_since(&self, before: &Self) -> f64 {
        self.part_of_time(before, |wanted| wanted.victim)
    }

    /// The same of all others together.
    pub fn others_wanting_since(&self, before: &Self) -> f64 {
        self.part_of_time(before, |wanted| wanted.others)
    }
}

/// The machines.
#[derive(Debug)]
pub struct Stage<'a> {
    // Field order is drop order: guests go before the GPU.
    victim: Machine,
    pub rig: Rig,
    pub workshop: &'a Workshop,
    pub chip: Chip,
    pub program: PathBuf,
    pub ticks: Vec<Tick>,
    baseline: Option<Baseline>,
    /// Engine accesses outside their VM's memory, by tenant: those who have left are not forgotten.
    foreign: BTreeMap<String, u64>,
    wanted: Wanted,
    counted: Instant,
    apart: bool,
    _awake: Vec<Process>,
}

impl<'a> Stage<'a> {
    /// Starts the GPU, both device backends and the victim, which is at work when this returns.
    pub fn start(workshop: &'a Workshop, program: PathBuf) -> Result<Self> {
        let chip = Chip::GF100;
        let kernel = chip.usual_kernel();
        let victim = Guest { kernel_words: VICTIMS_WORDS, ..Guest::new(VICTIM, chip, kernel, &["victim"]) };
        let peer = Guest { vram_mib: 64, ..Guest::new(PEER, chip, kernel, &[]) };
        workshop.forget_logs(CASE)?;
        let guests = [victim.clone(), peer];
        let spec = workshop.rig_spec(CASE, Topology::Mediated, &guests);
        let rig = Rig::start(RigSpec {
            policy: SHARED_IN_TURNS,
            spare_vram_mib: SPARE_VRAM_MIB,
            channels: CHANNELS,
            ..spec
        })?;
        let machine = workshop.start_with_orders(CASE, VICTIM, &rig, &victim, 0)?;
        let mut stage = Self {
            victim: machine,
            rig,
            workshop,
            chip,
            program,
            ticks: Vec::new(),
            baseline: None,
            foreign: BTreeMap::new(),
            wanted: Wanted::default(),
            counted: Instant::now(),
            apart: false,
            _awake: awake()?,
        };
        let start = Instant::now();
        while stage.ticks.is_empty() {
            ensure!(start.elapsed() < BOOT, "The victim is not at work after {} s", BOOT.as_secs());
            stage.pump()?;
            thread::sleep(machine::LOOK);
        }
        stage.give_attacked(Priority::Lower)?;
        Ok(stage)
    }

    /// Gives the device process that is attacked a priority.
    pub fn give_attacked(&mut self, priority: Priority) -> Result<()> {
        let device = self.rig.device(1).context("There is no second device process")?;
        device.process().set_priority(priority)
    }

    /// From now on the victim's machine and device process have processors that attackers, and the device
    /// process that they attack, have not. The aggregator, which works for both, may use all.
    pub fn keep_apart(&mut self) -> Result<()> {
        self.apart = true;
        let mut device = |index| -> Result<u32> {
            Ok(self.rig.device(index).context("There is no device process")?.process().id())
        };
        let (victims, attacked) = (device(0)?, device(1)?);
        processors::divide([self.victim.id(), victims], [attacked])
    }

    /// Gives a process of the attackers' its processors, if they have some of their own.
    pub fn put_aside(&self, process: u32) -> Result<()> {
        if self.apart { processors::keep(process, Half::Second) } else { Ok(()) }
    }

    /// A process that spins in the attackers' place and leaves the sockets alone.
    pub fn neighbour(&self, priority: Priority) -> Result<Process> {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let process = Process::start(command, "a spinning neighbour")?;
        process.set_priority(priority)?;
        self.put_aside(process.id())?;
        Ok(process)
    }

    /// The socket of the device backend that is attacked.
    pub fn peer_socket(&self) -> PathBuf {
        self.rig.socket(1)
    }

    /// The aggregator's socket.
    pub fn aggregator_socket(&self) -> PathBuf {
        self.rig.shared_socket(self.chip)
    }

    /// Lets time pass.
    pub fn idle(&mut self, time: Duration) -> Result<()> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.pump()?;
            thread::sleep(machine::LOOK);
        }
        Ok(())
    }

    /// Waits until something has happened, for `limit` at most. Returns how long it took, if it did.
    pub fn wait(
        &mut self,
        limit: Duration,
        mut happened: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<Option<Duration>> {
        let start = Instant::now();
        loop {
            if happened(self)? {
                return Ok(Some(start.elapsed()));
            }
            if start.elapsed() > limit {
                return Ok(None);
            }
            self.pump()?;
            // To look is to ask the aggregator, whose time the victim lacks.
            thread::sleep(machine::LOOK);
        }
    }

    /// Takes in what the victim said, and counts now and then. An error if the victim has ended.
    pub fn pump(&mut self) -> Result<()> {
        let ticks = &mut self.ticks;
        let now = Instant::now();
        let mut failed = None;
        let ended = self.victim.pump(&mut |line| {
            if let Said::Report(report) = line {
                ticks.extend(Tick::of(report, now));
                if let Report::Result(result) = report
                    && !result.ok
                {
                    failed = Some(result.error.clone().unwrap_or_default());
                }
            }
        })?;
        if let Some(outcome) = ended {
            bail!("The victim ended: {}", victims_problems(&outcome).join("; "));
        }
        if let Some(error) = failed {
            bail!("The victim found wrong data: {error}");
        }
        if now.duration_since(self.counted) > COUNT {
            self.count()?;
        }
        Ok(())
    }

    /// Looks at all tenants.
    fn count(&mut self) -> Result<()> {
        let all = self.rig.status()?;
        self.wanted = Wanted::of(&all);
        for tenant in all.into_iter().flat_map(|status| status.tenants) {
            if let Some(foreign) = tenant.foreign_accesses {
                let place = self.foreign.entry(tenant.name).or_default();
                *place = foreign.max(*place);
            }
        }
        self.counted = Instant::now();
        Ok(())
    }

    /// What is counted now.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        self.count()?;
        let log_bytes = self.rig.log_bytes();
        Ok(Snapshot { at: Instant::now(), log_bytes, wanted: self.wanted })
    }

    /// Engine accesses of anybody outside its own memory, ever; `None` if nobody counts.
    pub fn foreign_accesses(&self) -> Option<u64> {
        self.foreign.contains_key(VICTIM).then(|| self.foreign.values().sum())
    }

    /// Takes what is held now for the measure of everything later.
    pub fn take_baseline(&mut self) -> Result<()> {
        self.baseline = Some(Baseline::settled(&mut self.rig)?);
        Ok(())
    }

    /// What of the daemons is broken, or is held that was not held at first.
    pub fn held_for_good(&mut self) -> Result<Vec<String>> {
        let mut found = self.rig.damage()?;
        if found.is_empty()
            && let Some(baseline) = self.baseline.clone()
        {
            found = baseline.await_return(&mut self.rig)?;
        }
        Ok(found)
    }

    /// Ends everything; returns what was wrong about the victim and the daemons.
    pub fn end(mut self) -> Result<Vec<String>> {
        self.victim.order("end")?;
        let outcome = self.victim.wait(&mut |_| {})?;
        let mut problems = victims_problems(&outcome);
        problems.extend(self.rig.stop()?);
        Ok(problems)
    }
}

/// Sends a signal to a process of this run.
pub fn signal(id: u32, signal: &str) -> Result<()> {
    let status =
        Command::new("kill").args([signal, &id.to_string()]).status().context("Cannot start kill")?;
    ensure!(status.success(), "kill {signal} {id} ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_others_wanted_is_not_forgotten_when_they_leave() {
        let status = |gone_us: u64, tenants: Value| -> Status {
            let scrub = json!({ "by": "copy engine", "engine_ns": 5_000_000, "departures": { "wanted_us": gone_us } });
            serde_json::from_value(json!({ "gpu": { "scrub": scrub }, "tenants": tenants })).unwrap()
        };
        let victim = json!({ "name": VICTIM, "wanting_ms": 900 });
        let at = Instant::now();
        let snapshot = |seconds, status| Snapshot {
            at: at + Duration::from_secs(seconds),
            log_bytes: 0,
            wanted: Wanted::of(&[status]),
        };

        let before = snapshot(0, status(0, json!([victim, { "name": "a", "wanting_ms": 100 }])));
        let after = snapshot(1, status(300_000, json!([victim, { "name": "a", "wanting_ms": 50 }])));

        assert!((after.others_wanting_since(&before) - 0.25).abs() < 1e-9);
        assert!(after.victim_wanting_since(&before).abs() < 1e-9);
    }
}
