//! `cargo xtask attack --peers`: hostile processes at the sockets, beside a guest at work.
//!
//! A program in place of QEMU lies to a device backend; a program in place of a device backend lies to the aggregator;
//! and QEMUs are killed, stopped and started in numbers. After each attack all daemons must be the same processes,
//! hold no more descriptors, threads and memory than before the first, and serve an honest peer.

mod docs;
mod machines;
mod program;
mod resources;
mod stage;
mod verdict;
mod vms;

use std::time::{Duration, Instant};

use anyhow::Result;
use gpuvmk_attacks::peers::{ATTACKS, By, PeerAttack};
use gpuvmk_lab::interrupt;
use serde_json::Value;

use crate::attack::figures::Work;
use crate::workshop::Workshop;
pub use docs::write as write_docs;
use program::{Peer, Told};
use stage::Stage;
pub use verdict::PeerVerdict;
use verdict::{Round, Undisturbed};

/// How often an attack is made whose only fault is the victim's speed.
const TRIES: u32 = 3;
/// How long the victim is watched undisturbed before and after an attack.
const IDLE: Duration = Duration::from_millis(1500);

/// The attacks with one of these words in their names; all without words.
pub fn named(words: &[String], short: bool) -> Vec<&'static PeerAttack> {
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    ATTACKS.iter().filter(|attack| wanted(attack.name) && (attack.short || !short)).collect()
}

/// How attacks are made.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How long one lasts that has no end of its own.
    pub time: Duration,
    /// Whether the victim's speed counts.
    pub by_speed: bool,
}

/// What came of all attacks.
#[derive(Debug, Default)]
pub struct PeerReport {
    pub verdicts: Vec<PeerVerdict>,
    /// What is wrong beside single attacks.
    pub problems: Vec<String>,
    pub wall: Duration,
}

impl PeerReport {
    /// Whether everything came out as it must.
    pub fn ok(&self) -> bool {
        self.problems.is_empty() && self.verdicts.iter().all(PeerVerdict::ok)
    }

    /// As the JSON result has it.
    pub fn to_json(&self) -> Vec<Value> {
        self.verdicts.iter().map(PeerVerdict::to_json).collect()
    }
}

/// Makes the attacks. One that cannot be made has failed.
pub fn attack(workshop: &Workshop, attacks: &[&'static PeerAttack], options: Options) -> Result<PeerReport> {
    let start = Instant::now();
    let program = program::build()?;
    let mut run = Run { stage: Stage::start(workshop, program)?, before: None, options };
    let mut report = PeerReport::default();
    // The first seconds after boot are nobody's measure.
    run.stage.idle(IDLE)?;
    run.warm_up()?;
    run.stage.take_baseline()?;
    for attack in attacks {
        interrupt::check()?;
        match run.verdict(attack) {
            Ok(verdict) => {
                print(&verdict);
                report.verdicts.push(verdict);
            }
            Err(error) => {
                report.problems.push(format!("{}: {error:#}", attack.name));
                break;
            }
        }
        // What is broken stays broken: the next attack would say nothing.
        let damage = run.stage.rig.damage()?;
        if !damage.is_empty() {
            report.problems.extend(damage.into_iter().map(|what| format!("{}: {what}", attack.name)));
            break;
        }
    }
    report.problems.extend(run.stage.end()?);
    report.wall = start.elapsed();
    Ok(report)
}

struct Run<'a> {
    stage: Stage<'a>,
    /// The time before the next attack, once it is known.
    before: Option<Undisturbed>,
    options: Options,
}

impl Run<'_> {
    /// An honest client and an honest backend, so that nothing is allocated for the first time during an attack.
    fn warm_up(&mut self) -> Result<()> {
        for name in ["honest-client", "honest-backend"] {
            let told = self.make_by_program(name, Duration::from_millis(200))?;
            anyhow::ensure!(told.problems.is_empty(), "{name}: {}", told.problems.join("; "));
        }
        Ok(())
    }

    /// Watches the victim undisturbed.
    fn watch(&mut self) -> Result<Undisturbed> {
        // A tick that began during an attack is not of this time.
        self.stage.idle(Duration::from_millis(300))?;
        self.stage.ticks.clear();
        let before = self.stage.snapshot()?;
        self.stage.idle(IDLE)?;
        let after = self.stage.snapshot()?;
        let work = Work::of(self.stage.ticks.iter());
        Ok(Undisturbed { work, wanting: after.victim_wanting_since(&before) })
    }

    /// Makes an attack until the victim's speed is right, or is not after several tries.
    fn verdict(&mut self, attack: &'static PeerAttack) -> Result<PeerVerdict> {
        let mut verdict = self.try_once(attack)?;
        for _ in 1..TRIES {
            if verdict.slowness.is_empty() || !verdict.problems.is_empty() {
                break;
            }
            verdict = verdict.or_better(self.try_once(attack)?);
        }
        Ok(verdict)
    }

    fn try_once(&mut self, attack: &'static PeerAttack) -> Result<PeerVerdict> {
        if !self.options.by_speed {
            let round = self.round(attack)?;
            return Ok(PeerVerdict::of(attack, round, None));
        }
        let before = match self.before.take() {
            Some(before) => before,
            None => self.watch()?,
        };
        let round = self.round(attack)?;
        let after = self.watch()?;
        let wanting = (before.wanting + after.wanting) / 2.0;
        let undisturbed = Undisturbed { work: before.work.and(&after.work), wanting };
        self.before = Some(after);
        Ok(PeerVerdict::of(attack, round, Some(&undisturbed)))
    }

    fn round(&mut self, attack: &'static PeerAttack) -> Result<Round> {
        let time = self.options.time;
        let foreign = self.stage.foreign_accesses();
        let before = self.stage.snapshot()?;
        self.stage.ticks.clear();
        let made = match (attack.by, attack.name) {
            (By::Client | By::Backend, name) => self.make_again(name, time),
            (By::Machine, "vms-36") => vms::start_and_stop(&mut self.stage),
            (By::Machine, name) => machines::make(&mut self.stage, name, time),
        };
        let after = self.stage.snapshot()?;
        let mut ticks = std::mem::take(&mut self.stage.ticks);
        // The first one began before the attack.
        if ticks.len() > 2 {
            ticks.remove(0);
        }
        let told =
            made.unwrap_or_else(|error| Told { problems: vec![format!("{error:#}")], ..Told::default() });
        let foreign_accesses = match (foreign, self.stage.foreign_accesses()) {
            (then, Some(now)) => Some(now.saturating_sub(then.unwrap_or(0))),
            (_, None) => None,
        };
        let damage = self.stage.damage()?;
        Ok(Round { before, after, told, ticks, foreign_accesses, damage })
    }

    /// Has the program make an attack until the time is up: many are over in no time.
    fn make_again(&mut self, name: &str, time: Duration) -> Result<Told> {
        let start = Instant::now();
        let mut told = self.make_by_program(name, time)?;
        let mut times = 1;
        while told.problems.is_empty() && start.elapsed() < time {
            told = self.make_by_program(name, time)?;
            times += 1;
        }
        if times > 1 {
            told.seen = format!("{} ({times} times)", told.seen);
        }
        Ok(told)
    }

    /// Has the program make an attack, and counts while it still holds what it got.
    fn make_by_program(&mut self, name: &str, time: Duration) -> Result<Told> {
        let (device, aggregator) = (self.stage.peer_socket(), self.stage.aggregator_socket());
        let folder = self.stage.workshop.folder(stage::CASE).join("attackers");
        let mut peer = Peer::start(&self.stage.program, name, (&device, &aggregator), time, &folder)?;
        loop {
            self.stage.pump()?;
            if let Some(told) = peer.told()? {
                self.stage.snapshot()?;
                peer.end()?;
                return Ok(told);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn print(verdict: &PeerVerdict) {
    let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
    let letter = verdict.outcome.map_or('-', gpuvmk_attacks::Outcome::letter);
    eprintln!(
        "{:24} {letter} ({}) throughput {} p99 {} {:.1} s: {}",
        verdict.attack.name,
        verdict.attack.letters(),
        number(verdict.throughput_ratio),
        number(verdict.p99_ratio),
        verdict.took.as_secs_f64(),
        verdict.seen
    );
    verdict.problems.iter().chain(&verdict.slowness).for_each(|problem| eprintln!("    {problem}"));
}
