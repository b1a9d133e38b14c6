//! Whether an attack at a socket came out as it must.

use std::time::Duration;

use gpuvmk_attacks::Outcome;
use gpuvmk_attacks::peers::PeerAttack;
use serde_json::{Value, json};

use super::program::Told;
use super::stage::Snapshot;
use crate::attack::figures::{Tick, Work, fair_share};

/// The least of its fair share that the victim must keep.
const THROUGHPUT: f64 = 0.95;
/// How much slower the slow end of the victim's register reads may become.
const SLOWER: f64 = 2.0;
/// How long the victim may stand still.
const STANDSTILL: Duration = Duration::from_secs(2);
/// Bytes of log that an attack may cause in a second.
const LOG_BYTES: u64 = 16 << 10;

/// The victim undisturbed.
#[derive(Debug, Clone)]
pub struct Undisturbed {
    pub work: Work,
    /// The part of the time in which it had work for the GPU.
    pub wanting: f64,
}

/// An attack as it went.
#[derive(Debug)]
pub struct Round {
    pub before: Snapshot,
    pub after: Snapshot,
    pub told: Told,
    /// The victim's, during it.
    pub ticks: Vec<Tick>,
    pub foreign_accesses: Option<u64>,
    /// Broken daemons, and what they still hold.
    pub damage: Vec<String>,
}

/// What came of one attack.
#[derive(Debug, Clone)]
pub struct PeerVerdict {
    pub attack: &'static PeerAttack,
    pub outcome: Option<Outcome>,
    pub seen: String,
    pub throughput_ratio: Option<f64>,
    pub p99_ratio: Option<f64>,
    pub foreign_accesses: Option<u64>,
    pub log_bytes: u64,
    pub took: Duration,
    /// What is wrong however quiet the machine is.
    pub problems: Vec<String>,
    /// What another load on the machine may have caused.
    pub slowness: Vec<String>,
}

impl PeerVerdict {
    /// Judges a round; without `undisturbed`, by everything but the victim's speed.
    pub fn of(attack: &'static PeerAttack, round: Round, undisturbed: Option<&Undisturbed>) -> Self {
        let Round { before, after, told, ticks, foreign_accesses, damage } = round;
        let took = after.at.duration_since(before.at);
        let mut verdict = Self {
            attack,
            outcome: told.outcome.as_deref().and_then(Outcome::of),
            seen: told.seen,
            throughput_ratio: None,
            p99_ratio: None,
            foreign_accesses,
            log_bytes: after.log_bytes.saturating_sub(before.log_bytes),
            took,
            problems: told.problems,
            slowness: Vec::new(),
        };
        verdict.problems.extend(damage);
        verdict.check_outcome();
        // An attack is made again and again: each new process has a burst of its own.
        if verdict.log_bytes > LOG_BYTES * (took.as_secs() + 2) {
            verdict.problems.push(format!("the daemons logged {} bytes in {took:.1?}", verdict.log_bytes));
        }
        if ticks.is_empty() {
            verdict.problems.push("the victim did nothing".into());
        }
        if let Some(undisturbed) = undisturbed {
            let share = fair_share(undisturbed.wanting, after.others_wanting_since(&before));
            let work = Work::of(ticks.iter());
            let ratio = |now: Option<f64>, then: Option<f64>| Some(now? / then.filter(|then| *then > 0.0)?);
            verdict.throughput_ratio = ratio(work.rate(), undisturbed.work.rate()).map(|ratio| ratio / share);
            verdict.p99_ratio = ratio(work.p99(), undisturbed.work.p99());
            verdict.check_speed(share, longest_pause(&before, &after, &ticks));
        }
        verdict
    }

    fn check_outcome(&mut self) {
        match self.outcome {
            Some(outcome) if self.attack.expected.contains(&outcome) => {}
            Some(outcome) => self.problems.push(format!(
                "the outcome is {} instead of {}",
                outcome.letter(),
                self.attack.letters()
            )),
            None if self.problems.is_empty() => self.problems.push("no outcome was told".into()),
            None => {}
        }
        match self.foreign_accesses {
            Some(0) => {}
            Some(count) => self.problems.push(format!("{count} engine accesses left their VM's memory")),
            None => self.problems.push("nobody counted engine accesses".into()),
        }
    }

    fn check_speed(&mut self, share: f64, pause: Duration) {
        if let Some(ratio) = self.throughput_ratio.filter(|ratio| *ratio < THROUGHPUT) {
            self.slowness.push(format!("the victim had {ratio:.3} of its fair share of {share:.3}"));
        }
        if let Some(ratio) = self.p99_ratio.filter(|ratio| *ratio > SLOWER) {
            self.slowness
                .push(format!("the victim's register reads took {ratio:.2} times as long at the slow end"));
        }
        if pause > STANDSTILL {
            self.slowness.push(format!("the victim stood still for {pause:.1?}"));
        }
    }

    /// Whether the attack came out as it must.
    pub fn ok(&self) -> bool {
        self.problems.is_empty() && self.slowness.is_empty()
    }

    /// This one, or `other` where the victim lost less in it.
    pub fn or_better(self, other: Self) -> Self {
        let worse = self.problems.is_empty()
            && (other.slowness.len() < self.slowness.len() || !other.problems.is_empty());
        if worse { other } else { self }
    }

    /// As the JSON result has it.
    pub fn to_json(&self) -> Value {
        let rounded = |value: Option<f64>| value.map(|value| (value * 1000.0).round() / 1000.0);
        json!({
            "row": self.attack.row,
            "name": self.attack.name,
            "outcome": self.outcome.map(|outcome| outcome.letter().to_string()),
            "expected": self.attack.letters(),
            "victim_throughput_ratio": rounded(self.throughput_ratio),
            "victim_p99_ratio": rounded(self.p99_ratio),
            "foreign_accesses": self.foreign_accesses,
            "seen": self.seen,
            "log_bytes": self.log_bytes,
            "seconds": rounded(Some(self.took.as_secs_f64())),
            "ok": self.ok(),
            "problems": self.problems.iter().chain(&self.slowness).collect::<Vec<_>>(),
        })
    }
}

/// The longest time between two reports of the victim.
fn longest_pause(before: &Snapshot, after: &Snapshot, ticks: &[Tick]) -> Duration {
    let times = std::iter::once(before.at).chain(ticks.iter().map(|tick| tick.at)).chain([after.at]);
    let times: Vec<_> = times.collect();
    let pause = |pair: &[std::time::Instant]| match pair {
        [a, b] => b.saturating_duration_since(*a),
        _ => Duration::ZERO,
    };
    times.windows(2).map(pause).max().unwrap_or_default()
}
