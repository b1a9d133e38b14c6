//! `cargo xtask attack --neighbour`: what attacks at the aggregator's socket cost the time of somebody else's
//! requests and copies.
//!
//! No guest is needed: the neighbour is a tenant (`tests/peers`) that times each of its requests, and each
//! copy from its submission to its fence. A throughput hides stalls of a second, because there is work that
//! waits; the slow end of these times does not.

mod docs;
mod figures;
mod stage;
mod steps;
mod verdict;

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use gpuvmk_attacks::peers::{ATTACKS, By, PeerAttack};
use gpuvmk_lab::interrupt;

use super::judge::{Noted, Told};
use super::peers::program::{self, Peer};
use crate::workshop::Workshop;
pub use docs::write as write_docs;
use figures::Period;
use stage::Stage;
use verdict::Times;
pub use verdict::Verdict;

/// How long the neighbour is watched undisturbed, before and after each attack.
const UNDISTURBED: Duration = Duration::from_millis(1500);
/// How long it is watched beside an honest tenant that copies.
const SHARED: Duration = Duration::from_millis(1000);
/// What is told of comes in windows.
const LATE: Duration = Duration::from_millis(250);
/// How often an attack whose first measurement misses is measured.
const MEASURED: usize = 5;

/// The attacks with one of these words in their names; all without words. The short run leaves those out that
/// the sockets' short run makes.
pub fn named(words: &[String], short: bool) -> Vec<&'static PeerAttack> {
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let here = |by: By| matches!(by, By::Neighbour) || !short && matches!(by, By::Backend);
    let all = ATTACKS.iter().filter(|attack| here(attack.by));
    all.filter(|attack| wanted(attack.name) && (attack.short || !short)).collect()
}

/// What came of all attacks.
#[derive(Debug, Default)]
pub struct NeighbourReport {
    /// In the order in which they were made.
    pub verdicts: Vec<Verdict>,
    /// What is wrong beside single attacks.
    pub problems: Vec<String>,
    /// How long it took.
    pub wall: Duration,
}

impl NeighbourReport {
    /// Whether all came out as they must.
    pub fn ok(&self) -> bool {
        self.problems.is_empty() && self.verdicts.iter().all(Verdict::ok)
    }

    /// The attacks that came out otherwise, and what is wrong beside them.
    pub fn failed(&self) -> Vec<String> {
        let attacks = self.verdicts.iter().filter(|verdict| !verdict.ok());
        let line = |verdict: &Verdict| format!("{}: {}", verdict.name(), verdict.problems().join("; "));
        attacks.map(line).chain(self.problems.iter().cloned()).collect()
    }

    /// The largest ratio of 99th percentiles, of requests and copies, and under what.
    pub fn worst_p99_ratio(&self) -> Option<(f64, &'static str)> {
        let all = self.verdicts.iter().filter_map(|verdict| Some((verdict.p99_ratio()?, verdict.name())));
        all.max_by(|one, other| one.0.total_cmp(&other.0))
    }

    /// The longest time that a request or a copy took under an attack, in milliseconds, and under what.
    pub fn worst_stall_ms(&self) -> Option<(f64, &'static str)> {
        let all = self.verdicts.iter().filter_map(|verdict| Some((verdict.stall_ms()?, verdict.name())));
        all.max_by(|one, other| one.0.total_cmp(&other.0))
    }
}

/// Makes the attacks; one that has no end of its own lasts for `time`. Times are judged if `timed`.
pub fn attack(
    logs: &Path,
    gpuvmk: Option<&Path>,
    attacks: &[&'static PeerAttack],
    time: Duration,
    timed: bool,
) -> Result<NeighbourReport> {
    let start = Instant::now();
    let workshop = Workshop::open(&BTreeSet::new(), logs, gpuvmk)?;
    let mut run =
        Run { stage: Stage::start(&workshop, program::build()?)?, time, timed, before: None, shared: None };
    run.stage.watch(UNDISTURBED)?;
    let mut report = NeighbourReport::default();
    for attack in attacks {
        interrupt::check()?;
        let mut verdict = run.once(attack)?;
        while timed && verdict.asks_for_more(MEASURED) {
            verdict = verdict.and(run.once(attack)?);
        }
        verdict.print();
        report.verdicts.push(verdict);
        report.problems = run.stage.damage()?;
        if !report.problems.is_empty() {
            break;
        }
    }
    report.problems.extend(run.stage.end()?);
    report.wall = start.elapsed();
    Ok(report)
}

/// The machines, and what was measured before the next attack.
struct Run<'a> {
    stage: Stage<'a>,
    time: Duration,
    timed: bool,
    before: Option<Period>,
    shared: Option<Period>,
}

impl Run<'_> {
    fn once(&mut self, attack: &'static PeerAttack) -> Result<Verdict> {
        let before = match self.before.take() {
            Some(before) => before,
            None => self.undisturbed()?,
        };
        let shared = match self.shared.take() {
            Some(shared) => shared,
            None => self.beside_co_tenant()?,
        };
        let foreign = self.stage.foreign_accesses()?;
        let log_bytes = self.stage.log_bytes();
        let steps = self.stage.steps()?;
        let began = Instant::now();
        self.stage.forget();
        let made = self.make_again(attack.name);
        // The line that tells of the attack's last moment comes once that is over.
        thread::sleep(LATE);
        let during = self.stage.take()?;
        let steps = self.stage.steps()?.since(&steps);
        let mut told =
            made.unwrap_or_else(|error| Told { problems: vec![format!("{error:#}")], ..Told::default() });
        told.problems.extend(self.stage.held_for_good()?);
        let noted = Noted {
            took: began.elapsed(),
            bursts: 4,
            log_bytes: self.stage.log_bytes().saturating_sub(log_bytes),
            foreign_accesses: Some(self.stage.foreign_accesses()?.saturating_sub(foreign)),
            ..Noted::default()
        };
        let after = self.undisturbed()?;
        let undisturbed = before.and(&after);
        self.before = Some(after);
        let shared_after = self.beside_co_tenant()?;
        let times = self.timed.then_some(Times { undisturbed, shared: shared.and(&shared_after), during });
        self.shared = Some(shared_after);
        Ok(Verdict::of(attack, told, noted, times).with_steps(steps))
    }

    /// The neighbour beside a process that spins in the attackers' place.
    fn undisturbed(&mut self) -> Result<Period> {
        if !self.timed {
            return Ok(Period::default());
        }
        let _spins = self.stage.spinner()?;
        self.stage.watch(UNDISTURBED)
    }

    /// The neighbour beside an honest tenant that copies in the attackers' place.
    fn beside_co_tenant(&mut self) -> Result<Period> {
        if !self.timed {
            return Ok(Period::default());
        }
        let tenant = self.stage.co_tenant()?;
        let watched = self.stage.watch(SHARED)?;
        tenant.end()?;
        Ok(watched)
    }

    /// Has the program make an attack until the time is up.
    fn make_again(&mut self, name: &str) -> Result<Told> {
        let start = Instant::now();
        let mut told = self.make(name)?;
        let mut times = 1;
        while told.problems.is_empty() && start.elapsed() < self.time {
            let again = self.make(name)?;
            told = Told { residue_bytes: told.residue_bytes + again.residue_bytes, ..again };
            times += 1;
        }
        if times > 1 {
            told.seen = format!("{} ({times} times)", told.seen);
        }
        Ok(told)
    }

    fn make(&mut self, name: &str) -> Result<Told> {
        let mut peer = Peer::start(
            &self.stage.program,
            name,
            (&self.stage.device_socket(), &self.stage.aggregator_socket()),
            self.time,
            &self.stage.folder().join("attackers"),
        )?;
        self.stage.put_aside(peer.id())?;
        loop {
            self.stage.check()?;
            if let Some(told) = peer.told()? {
                peer.end()?;
                return Ok(told);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
