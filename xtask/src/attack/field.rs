//! The machines: one GPU, a victim at work, an attacker that takes orders, and what is counted meanwhile.

mod outside;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use gpuvmk_attacks::{Attack, Host};
use gpuvmk_control_client::TenantStatus;
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::machine::{self, Machine, Outcome, Said};
use gpuvmk_lab::process::{Priority, Process};
use gpuvmk_lab::processors;
use gpuvmk_lab::report::Report;
use gpuvmk_lab::rig::{Rig, RigSpec, SHARED_IN_TURNS, Topology};
use serde_json::{Map, Value};

use super::figures::Tick;
use super::judge::{Noted, Told};
use super::series::Round;
use crate::cases::Guest;
use crate::workshop::Workshop;

const VICTIM: &str = "victim";
const ATTACKER: &str = "attacker";
/// How long a guest may take to boot and say that it is ready.
const BOOT: Duration = Duration::from_secs(300);
/// What an attack may take longer than it was told to, and what may pass until the GPU works again.
const MORE: Duration = Duration::from_secs(240);
/// Time that is worth one more attack.
const ENOUGH: Duration = Duration::from_millis(700);
/// Words for the kernels: registers may be mapped beside a driver, programs may run for long.
pub(super) const VICTIMS_WORDS: &[&str] = &["iomem=relaxed", "gpuvmk.limit=3000"];
/// The same for an attacker, which loads no driver by itself.
const ATTACKERS_WORDS: &[&str] = &["iomem=relaxed", "gpuvmk.limit=3000", "gpuvmk.bare=1"];

/// The counts of a tenant whose changes are told, as the aggregator's status has them.
const COUNTS: [(&str, Count); 6] = [
    ("throttled", |tenant| tenant.counters.throttled),
    ("refusals", |tenant| tenant.counters.refusals),
    ("bad_pages", |tenant| tenant.counters.bad_pages),
    ("updates", |tenant| tenant.counters.updates),
    ("fail_safe_count", |tenant| tenant.counters.fail_safe_count),
    ("wanting_ms", |tenant| tenant.wanting_ms),
];

/// Where a count is in a tenant's state.
type Count = fn(&TenantStatus) -> u64;

/// What is counted at a moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// When.
    pub at: Instant,
    /// Bytes of all daemons' logs.
    pub log_bytes: u64,
    tenants: Vec<TenantStatus>,
    /// Processor time that everything of this run has used, and that nobody has.
    own: Duration,
    idle: Duration,
}

impl Snapshot {
    fn tenant(&self, name: &str) -> Option<&TenantStatus> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    /// Processors that other programs of the machine used since `before`.
    fn others_since(&self, before: &Self) -> f64 {
        let time = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let used = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / time;
        // CAST: some hundreds at most.
        (processors as f64 - used(self.own, before.own) - used(self.idle, before.idle)).max(0.0)
    }

    /// Engine accesses of anybody outside its own memory; `None` if nobody counts.
    fn foreign_accesses(&self) -> Option<u64> {
        self.tenants.iter().map(|tenant| tenant.foreign_accesses).sum()
    }

    /// The part of the time since `before` in which a tenant had work that was not done.
    fn wanting_since(&self, before: &Self, name: &str) -> f64 {
        let wanting = |snapshot: &Self| snapshot.count(name, |tenant| tenant.wanting_ms);
        let millis = wanting(self).saturating_sub(wanting(before));
        // CAST: far below 2^53.
        (millis as f64 / 1e3 / self.at.duration_since(before.at).as_secs_f64().max(1e-3)).min(1.0)
    }

    /// The victim's, see [`Self::wanting_since`].
    pub fn victim_wanting_since(&self, before: &Self) -> f64 {
        self.wanting_since(before, VICTIM)
    }

    /// The attacker's, see [`Self::wanting_since`].
    fn attacker_wanting_since(&self, before: &Self) -> f64 {
        self.wanting_since(before, ATTACKER)
    }

    /// What the aggregator counted of the attacker since `before`, without what did not change.
    fn counted_since(&self, before: &Self) -> BTreeMap<&'static str, u64> {
        let mut counts: BTreeMap<&str, u64> = COUNTS
            .iter()
            .map(|(name, of)| (*name, self.count(ATTACKER, *of).saturating_sub(before.count(ATTACKER, *of))))
            .collect();
        let faults = |snapshot: &Self| snapshot.tenant(ATTACKER).map_or(0, |tenant| tenant.counters.faults);
        counts.insert("faults", faults(self).saturating_sub(faults(before)));
        counts.retain(|_, count| *count > 0);
        counts
    }

    /// How long it took to decide that the attacker's vGPU is in fail-safe state, in microseconds, if it is.
    fn fail_safe_decided_us(&self) -> Option<u64> {
        Some(self.tenant(ATTACKER)?.fail_safe.as_ref()?.decided_us.into())
    }

    fn count(&self, tenant: &str, of: Count) -> u64 {
        self.tenant(tenant).map_or(0, of)
    }
}

/// Threads at the very lowest priority that keep processors awake. A processor that sleeps takes long to wake
/// up, in a virtual machine above all: without this, a victim is faster beside an attacker than alone.
pub(super) fn awake() -> Result<Vec<Process>> {
    /// More than this never sleep here.
    const MOST: usize = 4;
    let count = thread::available_parallelism().map_or(1, NonZero::get).min(MOST);
    let spin = || {
        let mut command = Command::new("chrt");
        command.args(["--idle", "0", "sh", "-c", "while :; do :; done"]);
        Process::start(command, "a spinning process")
    };
    (0..count).map(|_| spin()).collect()
}

/// The time in which processors of this machine had nothing to do.
fn idle() -> Duration {
    /// Of a second: what the kernel tells programs in.
    const TICK: Duration = Duration::from_millis(10);
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // User, nice, system, idle, waiting for disks.
    let words = text.lines().next().unwrap_or_default().split_whitespace().skip(4).take(2);
    words.filter_map(|word| word.parse::<u32>().ok()).map(|ticks| TICK * ticks).sum()
}

/// The machines.
#[derive(Debug)]
pub struct Field<'a> {
    // Field order is drop order: guests go before the GPU.
    victim: Machine,
    attacker: Option<Machine>,
    rig: Rig,
    workshop: &'a Workshop,
    case: String,
    guest: Guest,
    attackers: u32,
    /// What the guests reported and nobody has looked at.
    heard: VecDeque<(&'static str, Report)>,
    pub ticks: Vec<Tick>,
    awake: Vec<Process>,
    apart: bool,
}

impl<'a> Field<'a> {
    /// Starts the GPU, the victim and the attacker; both are ready when this returns.
    pub fn start(workshop: &'a Workshop, case: &str, chip: Chip) -> Result<Self> {
        let kernel = chip.usual_kernel();
        let victim = Guest { kernel_words: VICTIMS_WORDS, ..Guest::new(VICTIM, chip, kernel, &["victim"]) };
        let guest = Guest {
            kernel_words: ATTACKERS_WORDS,
            cpus: 2,
            vram_mib: 64,
            // What crashes comes up again.
            reboots: 1,
            // There is more to attack where windows are mapped.
            bar3: "direct",
            ..Guest::new(ATTACKER, chip, kernel, &["attack"])
        };
        workshop.forget_logs(case)?;
        let guests = [victim.clone(), guest.clone()];
        let spec = workshop.rig_spec(case, Topology::Mediated, &guests);
        let rig = Rig::start(RigSpec { policy: SHARED_IN_TURNS, ..spec })?;
        let victim = workshop.start_with_orders(case, VICTIM, &rig, &victim, 0)?;
        let mut field = Self {
            victim,
            attacker: None,
            rig,
            workshop,
            case: case.to_owned(),
            guest,
            attackers: 0,
            heard: VecDeque::new(),
            ticks: Vec::new(),
            awake: awake()?,
            apart: false,
        };
        field.await_event(VICTIM, "victim-ready", BOOT)?;
        field.ready()?;
        Ok(field)
    }

    /// Sees to it that there is an attacker: a new one if the last one has ended.
    pub fn ready(&mut self) -> Result<()> {
        if self.attacker.is_some() {
            return Ok(());
        }
        self.attackers += 1;
        let label = format!("{ATTACKER}-{}", self.attackers);
        let machine = self.workshop.start_with_orders(&self.case, &label, &self.rig, &self.guest, 1)?;
        self.attacker = Some(machine);
        self.await_event(ATTACKER, "attacker-ready", BOOT)?;
        // What the attacker's processors and its device process cost is shared out by the host's scheduler,
        // which is not what is measured here.
        if let Some(machine) = &self.attacker {
            machine.set_priority(Priority::Lower)?;
        }
        self.device(1)?.set_priority(Priority::Lower)?;
        if self.apart { self.keep_apart() } else { Ok(()) }
    }

    /// From now on the victim's machine and device process, and the attacker's, have processors of their own.
    /// The aggregator and the software GPU in it, which work for both, may use all.
    pub fn keep_apart(&mut self) -> Result<()> {
        self.apart = true;
        let victims = [self.victim.id(), self.device(0)?.id()];
        let attackers = self.attacker.as_ref().map(Machine::id).into_iter().chain([self.device(1)?.id()]);
        processors::divide(victims, attackers)
    }

    fn device(&mut self, index: usize) -> Result<&Process> {
        Ok(self.rig.device(index).context("There is no device process")?.process())
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

    /// Has the attacker's processors spin for so long; the GPU has nothing to do with it.
    pub fn busy(&mut self, time: Duration) -> Result<()> {
        self.order(&format!("busy {}", time.as_secs_f64()))?;
        self.await_event(ATTACKER, "attack-begin", MORE).map(drop)
    }

    /// Has the attacker make an attack, and again while there is time: one that costs it its vGPU is over
    /// soon.
    pub fn attack(&mut self, attack: &Attack, time: Duration) -> Result<Round> {
        let repeats = attack.host == Host::LooksOn && !attack.by_driver;
        let before = self.snapshot()?;
        let (mut told, mut after) = self.once(attack, time)?;
        let mut times = 1;
        while repeats && told.problems.is_empty() && time.saturating_sub(after.at - before.at) > ENOUGH {
            self.ready()?;
            let left = time.saturating_sub(before.at.elapsed()).max(ENOUGH);
            let again = self.once(attack, left)?;
            told = told.or_worse(again.0, attack.expected);
            after = again.1;
            times += 1;
        }
        if times > 1 {
            told.seen = format!("{} ({times} times)", told.seen);
        }
        Ok(Round {
            told,
            noted: noted(&before, &after),
            ticks: std::mem::take(&mut self.ticks),
            time: (before.at, after.at),
            others_wanted: after.attacker_wanting_since(&before),
        })
    }

    /// Has the attacker make an attack; returns what is counted when it is over, before the vGPU is reset.
    fn once(&mut self, attack: &Attack, time: Duration) -> Result<(Told, Snapshot)> {
        let over = match attack.host {
            Host::LooksOn => self.simply(attack.name, time),
            Host::Stops => self.stopped(attack.name, time),
            Host::Repeats => self.crashes(attack.name),
        };
        let after = self.snapshot()?;
        let fields = over.and_then(|so_far| Ok((so_far, self.await_event(ATTACKER, "attack", MORE)?)));
        let told = match fields {
            Ok((so_far, fields)) => so_far.and(told(&fields)),
            Err(error) => {
                // Whatever it hangs in: the next attack gets a fresh attacker.
                if let Some(mut machine) = self.attacker.take() {
                    machine.kill()?;
                }
                Told { problems: vec![format!("{error:#}")], ..Told::default() }
            }
        };
        Ok((told, after))
    }

    fn simply(&mut self, name: &str, time: Duration) -> Result<Told> {
        self.order(&format!("{name} {}", time.as_secs_f64()))?;
        self.await_event(ATTACKER, "attack-over", time + MORE).map(|_| Told::default())
    }

    fn order(&mut self, order: &str) -> Result<()> {
        self.attacker.as_mut().context("There is no attacker")?.order(order)
    }

    fn machine(&self) -> Result<&Machine> {
        self.attacker.as_ref().context("There is no attacker")
    }

    /// What is counted now.
    pub fn snapshot(&mut self) -> Result<Snapshot> {
        let tenants = self.rig.tenants()?;
        let log_bytes = self.rig.log_bytes();
        let machines = std::iter::once(&self.victim).chain(&self.attacker).map(Machine::cpu_time);
        let spinning = self.awake.iter().map(Process::cpu_time);
        let own = machines.chain(spinning).sum::<Duration>() + self.rig.cpu_time();
        Ok(Snapshot { at: Instant::now(), log_bytes, tenants, own, idle: idle() })
    }

    /// Daemons that do not run any more, or say that they panicked.
    pub fn damage(&mut self) -> Result<Vec<String>> {
        self.rig.damage()
    }

    /// Ends everything; returns what was wrong about the victim and the daemons.
    pub fn end(mut self) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        if let Some(attacker) = &mut self.attacker {
            attacker.order("end")?;
        }
        self.victim.order("end")?;
        let outcome = self.victim.wait(&mut |_| {})?;
        problems.extend(victims_problems(&outcome));
        if let Some(attacker) = &mut self.attacker {
            attacker.kill()?;
        }
        problems.extend(self.rig.stop()?);
        Ok(problems)
    }

    /// Waits for an event of one of the guests; returns its fields.
    fn await_event(&mut self, guest: &str, event: &str, limit: Duration) -> Result<Map<String, Value>> {
        let start = Instant::now();
        loop {
            self.pump()?;
            while let Some((from, report)) = self.heard.pop_front() {
                match report {
                    Report::Event { name, fields } if from == guest && name == event => return Ok(fields),
                    Report::Event { name, .. } if from == guest && name == "attacker-ready" => {
                        bail!("{guest} has crashed and is up again")
                    }
                    Report::Result(result) if from == guest => {
                        bail!("{guest} ended early: {}", result.error.unwrap_or_default())
                    }
                    _ => {}
                }
            }
            if start.elapsed() > limit {
                bail!("{guest} did not say '{event}' within {} s", limit.as_secs());
            }
            thread::sleep(machine::LOOK);
        }
    }

    /// Takes in what the guests said. An error if the victim has ended; a dead attacker is forgotten.
    fn pump(&mut self) -> Result<()> {
        let (heard, ticks) = (&mut self.heard, &mut self.ticks);
        let now = Instant::now();
        let ended = self.victim.pump(&mut |line| {
            if let Said::Report(report) = line {
                match Tick::of(report, now) {
                    Some(tick) => ticks.push(tick),
                    None => heard.push_back((VICTIM, (*report).clone())),
                }
            }
        })?;
        if let Some(outcome) = ended {
            bail!("The victim ended: {}", victims_problems(&outcome).join("; "));
        }
        if let Some(attacker) = &mut self.attacker {
            let ended = attacker.pump(&mut |line| {
                if let Said::Report(report) = line {
                    heard.push_back((ATTACKER, (*report).clone()));
                }
            })?;
            if let Some(outcome) = ended {
                self.attacker = None;
                let why = outcome.problem.unwrap_or_else(|| "it powered off".into());
                bail!("The attacker's machine ended: {why}");
            }
        }
        Ok(())
    }
}

/// What the host saw between two moments.
fn noted(before: &Snapshot, after: &Snapshot) -> Noted {
    let foreign = || Some(after.foreign_accesses()?.saturating_sub(before.foreign_accesses()?));
    Noted {
        took: after.at.duration_since(before.at),
        bursts: 1,
        log_bytes: after.log_bytes.saturating_sub(before.log_bytes),
        foreign_accesses: foreign(),
        fail_safe_us: after.fail_safe_decided_us(),
        counted: after.counted_since(before),
        others: Some(after.others_since(before)),
        ..Noted::default()
    }
}

fn told(fields: &Map<String, Value>) -> Told {
    let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
    let broken =
        text("broken_afterwards").map(|why| format!("the attacker's GPU does not work after a reset: {why}"));
    let problems = text("error").into_iter().chain(broken).collect();
    Told { outcome: text("outcome"), seen: text("seen").unwrap_or_default(), problems, ..Told::default() }
}

/// What was wrong with the victim's run.
pub(super) fn victims_problems(outcome: &Outcome) -> Vec<String> {
    let failed = outcome.reports.iter().filter_map(|report| match report {
        Report::Result(result) if !result.ok => result.error.clone(),
        _ => None,
    });
    let unexplained = gpuvmk_lab::verdict::unexplained(&outcome.console, &[]);
    outcome
        .problem
        .iter()
        .cloned()
        .chain(failed)
        .map(|problem| format!("victim: {problem}"))
        .chain(unexplained.into_iter().map(|line| format!("victim's kernel: {line}")))
        .collect()
}
