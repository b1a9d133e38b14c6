//! Whether an attack came out as it must.

use std::collections::BTreeMap;
use std::time::Duration;

use gpuvmk_attacks::{Attack, Outcome};
use serde_json::{Value, json};

use super::field::Round;
use super::figures::{Tick, Work, fair_share};

/// The least of its fair share that the victim must keep.
const THROUGHPUT: f64 = 0.95;
/// How much slower the slow end of the victim's register reads may become.
const SLOWER: f64 = 2.0;
/// How long the victim may stand still.
const STANDSTILL: Duration = Duration::from_secs(2);
/// Bytes of log that an attack may cause in a second: a burst, and a few lines a second for each process.
const LOG_BYTES: u64 = 16 << 10;
/// How long it may take to decide that a vGPU is in fail-safe state, in microseconds.
const FAIL_SAFE_US: u64 = 100_000;

/// The victim beside an attacker that leaves the GPU alone and keeps its processors as busy as an attack.
#[derive(Debug, Clone)]
pub struct Undisturbed {
    /// What it did.
    pub work: Work,
    /// The part of the time in which it had work for the GPU.
    pub wanting: f64,
    /// Processors that other programs of the machine used meanwhile.
    pub others: f64,
}

/// What came of one attack.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub attack: &'static Attack,
    pub outcome: Option<Outcome>,
    pub seen: String,
    pub throughput_ratio: Option<f64>,
    pub p99_ratio: Option<f64>,
    pub fair_share: f64,
    pub foreign_accesses: Option<u64>,
    pub log_bytes: u64,
    /// How long it took to decide on fail-safe state, if the attack ended in it.
    pub fail_safe_us: Option<u64>,
    /// How often it was made: once more if only the victim's figures missed.
    pub measured: u32,
    /// Processors that other programs of the machine used meanwhile.
    pub others: f64,
    pub counted: BTreeMap<&'static str, u64>,
    /// What is wrong however quiet the machine is.
    pub problems: Vec<String>,
    /// What another load on the machine may have caused.
    pub slowness: Vec<String>,
}

impl Verdict {
    /// Whether the attack came out as it must.
    pub fn ok(&self) -> bool {
        self.problems.is_empty() && self.slowness.is_empty()
    }

    /// As the JSON result has it.
    pub fn to_json(&self) -> Value {
        json!({
            "row": self.attack.row,
            "name": self.attack.name,
            "outcome": self.outcome.map(|outcome| outcome.letter().to_string()),
            "expected": self.attack.letters(),
            "victim_throughput_ratio": self.throughput_ratio.map(rounded),
            "victim_p99_ratio": self.p99_ratio.map(rounded),
            "victim_fair_share": rounded(self.fair_share),
            "foreign_accesses": self.foreign_accesses,
            "failsafe_decided_us": self.fail_safe_us,
            "measured": self.measured,
            "hang": self.attack.hang,
            "seen": self.seen,
            "counted": self.counted,
            "log_bytes": self.log_bytes,
            "other_programs_cpus": rounded(self.others),
            "ok": self.ok(),
            "problems": self.problems.iter().chain(&self.slowness).collect::<Vec<_>>(),
        })
    }

    /// This one, or the second measurement where the victim lost less in it: what else the machine does can only make
    /// it worse. What the second one found beside figures counts in any case.
    pub fn or_again(self, again: Self) -> Self {
        let worse = self.problems.is_empty() && again.slowness.len() < self.slowness.len();
        let kept = if worse || !again.problems.is_empty() { again } else { self };
        Self { measured: 2, ..kept }
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Judges a round by everything but the victim's speed.
pub fn judge_outcome(attack: &'static Attack, round: &Round) -> Verdict {
    let mut verdict = Verdict {
        attack,
        outcome: round.told.outcome.as_deref().and_then(Outcome::of),
        seen: round.told.seen.clone(),
        throughput_ratio: None,
        p99_ratio: None,
        fair_share: 1.0,
        foreign_accesses: foreign(round),
        others: round.after.others_since(&round.before),
        log_bytes: round.after.log_bytes.saturating_sub(round.before.log_bytes),
        fail_safe_us: round.after.fail_safe_decided_us(),
        measured: 1,
        counted: round.after.counted_since(&round.before),
        problems: round.told.problems.clone(),
        slowness: Vec::new(),
    };
    verdict.check_outcome();
    let took = round.after.at.duration_since(round.before.at);
    if verdict.log_bytes > LOG_BYTES * (took.as_secs() + 1) {
        verdict.problems.push(format!("the daemons logged {} bytes in {took:.1?}", verdict.log_bytes));
    }
    verdict
}

/// The same, and by the victim's speed; `ticks` are the victim's during it.
pub fn judge(attack: &'static Attack, round: &Round, ticks: &[Tick], before: &Undisturbed) -> Verdict {
    let work = Work::of(ticks.iter());
    let attacker = round.after.attacker_wanting_since(&round.before);
    let share = fair_share(before.wanting, attacker);
    let ratio = |now: Option<f64>, then: Option<f64>| Some(now? / then.filter(|then| *then > 0.0)?);
    let outcome = judge_outcome(attack, round);
    let mut verdict = Verdict {
        throughput_ratio: ratio(work.rate(), before.work.rate()).map(|ratio| ratio / share),
        p99_ratio: ratio(work.p99(), before.work.p99()),
        fair_share: share,
        others: outcome.others.max(before.others),
        ..outcome
    };
    verdict.check_victim(longest_pause(round, ticks));
    verdict
}

impl Verdict {
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
        if let Some(took) = self.fail_safe_us.filter(|took| *took > FAIL_SAFE_US) {
            self.problems.push(format!("it took {took} us to decide on fail-safe state"));
        }
    }

    fn check_victim(&mut self, pause: Duration) {
        match self.throughput_ratio {
            Some(ratio) if ratio >= THROUGHPUT || self.attack.hang => {}
            Some(ratio) => {
                self.slowness
                    .push(format!("the victim had {ratio:.3} of its fair share of {:.3}", self.fair_share));
            }
            None => self.slowness.push("the victim did nothing".into()),
        }
        if let Some(ratio) = self.p99_ratio.filter(|ratio| *ratio > SLOWER) {
            self.slowness
                .push(format!("the victim's register reads took {ratio:.2} times as long at the slow end"));
        }
        if pause > STANDSTILL {
            self.slowness.push(format!("the victim stood still for {pause:.1?}"));
        }
    }
}

/// Accesses outside their VM's memory in this round.
fn foreign(round: &Round) -> Option<u64> {
    Some(round.after.foreign_accesses()?.saturating_sub(round.before.foreign_accesses()?))
}

/// The longest time in the round in which the victim said nothing.
fn longest_pause(round: &Round, ticks: &[Tick]) -> Duration {
    let inner = ticks.iter().map(|tick| tick.at).filter(|at| *at <= round.after.at);
    let times: Vec<_> = std::iter::once(round.before.at).chain(inner).chain([round.after.at]).collect();
    times
        .windows(2)
        .map(|pair| pair.last().zip(pair.first()).map_or(Duration::ZERO, |(b, a)| *b - *a))
        .max()
        .unwrap_or_default()
}
