//! Whether an attack came out as it must, be it made by a guest or at a socket.

use std::collections::BTreeMap;
use std::time::Duration;

use gpuvmk_attacks::peers::{By, PeerAttack};
use gpuvmk_attacks::{Attack, Outcome, letters};
use serde_json::{Value, json};

use super::speed::Speeds;

/// Bytes of log that an attack may cause in a second: a burst, and a few lines a second for each process.
const LOG_BYTES: u64 = 16 << 10;
/// How long it may take to decide that a vGPU is in fail-safe state, in microseconds.
const FAIL_SAFE_US: u64 = 100_000;

/// What is attacked how, of a guest's attack or a peer's.
#[derive(Debug, Clone, Copy)]
pub struct Listed {
    pub row: Option<u8>,
    pub name: &'static str,
    pub what: &'static str,
    expected: &'static [Outcome],
    /// Keeps the engine from others until somebody takes it away.
    pub hang: bool,
    /// Who makes it, at a socket.
    pub by: Option<By>,
}

impl Listed {
    /// The expected letters, `V/Q` if there are several.
    pub fn letters(&self) -> String {
        letters(self.expected)
    }
}

impl From<&Attack> for Listed {
    fn from(attack: &Attack) -> Self {
        let Attack { row, name, what, expected, hang, .. } = *attack;
        Self { row, name, what, expected, hang, by: None }
    }
}

impl From<&PeerAttack> for Listed {
    fn from(attack: &PeerAttack) -> Self {
        let PeerAttack { row, name, what, expected, by, .. } = *attack;
        Self { row, name, what, expected, hang: false, by: Some(by) }
    }
}

/// What the attacker said of an attack.
#[derive(Debug, Clone, Default)]
pub struct Told {
    pub outcome: Option<String>,
    pub seen: String,
    /// Bytes of somebody else's that were found where zeros should have been.
    pub residue_bytes: u64,
    pub problems: Vec<String>,
}

impl Told {
    /// This, and what was told later.
    pub fn and(self, later: Self) -> Self {
        let seen = if self.seen.is_empty() { later.seen } else { self.seen };
        let problems = self.problems.into_iter().chain(later.problems).collect();
        let residue_bytes = self.residue_bytes + later.residue_bytes;
        Self { outcome: self.outcome.or(later.outcome), seen, residue_bytes, problems }
    }

    /// This, or `again`, told of the same attack, if that is not as expected.
    pub fn or_worse(self, again: Self, expected: &[Outcome]) -> Self {
        let fine = again.problems.is_empty()
            && again
                .outcome
                .as_deref()
                .and_then(Outcome::of)
                .is_some_and(|outcome| expected.contains(&outcome));
        if fine { self } else { again }
    }
}

/// What the host saw of an attack.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    pub took: Duration,
    /// How many processes of the attacker's log with a burst of their own.
    pub bursts: u64,
    pub log_bytes: u64,
    /// Engine accesses outside their VM's memory; `None` if nobody counted.
    pub foreign_accesses: Option<u64>,
    /// How long it took to decide on fail-safe state, if the attack ended in it.
    pub fail_safe_us: Option<u64>,
    /// What the aggregator counted of the attacker.
    pub counted: BTreeMap<&'static str, u64>,
    /// Bytes of somebody else's that the attacker found.
    pub residue_bytes: u64,
    /// Processors that other programs of the machine used meanwhile.
    pub others: Option<f64>,
}

/// What came of one attack.
#[derive(Debug, Clone)]
pub struct Verdict {
    pub attack: Listed,
    pub outcome: Option<Outcome>,
    pub seen: String,
    pub noted: Noted,
    /// The victim's speed, if it was measured.
    pub speeds: Speeds,
    /// What is wrong, but for the victim's speed.
    pub problems: Vec<String>,
}

impl Verdict {
    /// Judges an attack.
    pub fn of(attack: Listed, told: Told, noted: Noted, speeds: Speeds) -> Self {
        let outcome = told.outcome.as_deref().and_then(Outcome::of);
        let noted = Noted { residue_bytes: noted.residue_bytes + told.residue_bytes, ..noted };
        let mut verdict = Self { attack, outcome, seen: told.seen, noted, speeds, problems: told.problems };
        verdict.check();
        verdict
    }

    fn check(&mut self) {
        let problems = &mut self.problems;
        match self.outcome {
            Some(outcome) if self.attack.expected.contains(&outcome) => {}
            Some(outcome) => {
                problems.push(format!(
                    "the outcome is {} instead of {}",
                    outcome.letter(),
                    letters(self.attack.expected)
                ));
            }
            None if problems.is_empty() => problems.push("no outcome was told".into()),
            None => {}
        }
        match self.noted.foreign_accesses {
            Some(0) => {}
            Some(count) => problems.push(format!("{count} engine accesses left their VM's memory")),
            None => problems.push("nobody counted engine accesses".into()),
        }
        if let Some(took) = self.noted.fail_safe_us.filter(|took| *took > FAIL_SAFE_US) {
            problems.push(format!("it took {took} us to decide on fail-safe state"));
        }
        let Noted { took, bursts, log_bytes, .. } = self.noted;
        if log_bytes > LOG_BYTES * (took.as_secs() + bursts) {
            problems.push(format!("the daemons logged {log_bytes} bytes in {took:.1?}"));
        }
    }

    /// What is wrong about the victim's speed.
    pub fn slowness(&self) -> Vec<String> {
        self.speeds.misses(self.attack.hang)
    }

    /// Whether the attack came out as it must.
    pub fn ok(&self) -> bool {
        self.problems.is_empty() && self.slowness().is_empty()
    }

    /// Whether the attack is to be made once more for the victim's speed.
    pub fn asks_for_more(&self) -> bool {
        self.problems.is_empty() && self.speeds.ask_for_more(self.attack.hang)
    }

    /// This and the attack made again, with what was wrong with either.
    pub fn and(self, again: Self) -> Self {
        let problems = self.problems.into_iter().chain(again.problems).collect();
        let residue_bytes = self.noted.residue_bytes + again.noted.residue_bytes;
        let noted = Noted { residue_bytes, ..again.noted };
        Self { speeds: self.speeds.and(again.speeds), problems, noted, ..again }
    }

    /// The least of its fair share that the victim had, where that is judged.
    pub fn throughput(&self) -> Option<f64> {
        self.speeds.median()?.throughput.filter(|_| !self.attack.hang)
    }

    /// As the JSON result has it.
    pub fn to_json(&self) -> Value {
        let speed = self.speeds.median();
        let problems: Vec<_> = self.problems.iter().cloned().chain(self.slowness()).collect();
        json!({
            "row": self.attack.row,
            "name": self.attack.name,
            "outcome": self.outcome.map(|outcome| outcome.letter().to_string()),
            "expected": self.attack.letters(),
            "victim_throughput_ratio": speed.and_then(|speed| speed.throughput).map(rounded),
            "victim_p99_ratio": speed.and_then(|speed| speed.p99).map(rounded),
            "victim_fair_share": speed.map(|speed| rounded(speed.fair_share)),
            "measured": self.speeds.count(),
            "foreign_accesses": self.noted.foreign_accesses,
            "residue_bytes": self.noted.residue_bytes,
            "failsafe_decided_us": self.noted.fail_safe_us,
            "hang": self.attack.hang,
            "seen": self.seen,
            "counted": self.noted.counted,
            "log_bytes": self.noted.log_bytes,
            "seconds": rounded(self.noted.took.as_secs_f64()),
            "other_programs_cpus": self.noted.others.map(rounded),
            "ok": problems.is_empty(),
            "problems": problems,
        })
    }

    /// Says on stderr what came of it.
    pub fn print(&self) {
        let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        let speed = self.speeds.median();
        eprintln!(
            "{:24} {} ({}) throughput {} p99 {} in {}, {:.1} s: {}",
            self.attack.name,
            self.outcome.map_or('-', Outcome::letter),
            self.attack.letters(),
            number(speed.and_then(|speed| speed.throughput)),
            number(speed.and_then(|speed| speed.p99)),
            self.speeds.count(),
            self.noted.took.as_secs_f64(),
            self.seen
        );
        self.problems.iter().chain(&self.slowness()).for_each(|problem| eprintln!("    {problem}"));
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: &[Outcome] = &[Outcome::Refused];

    fn verdict(outcome: &str, noted: Noted) -> Verdict {
        let attack = Listed { row: None, name: "x", what: "", expected: EXPECTED, hang: false, by: None };
        Verdict::of(
            attack,
            Told { outcome: Some(outcome.into()), ..Told::default() },
            noted,
            Speeds::default(),
        )
    }

    fn fine() -> Noted {
        Noted { foreign_accesses: Some(0), bursts: 1, ..Noted::default() }
    }

    #[test]
    fn only_the_expected_outcome_is_right() {
        assert!(verdict("R", fine()).ok());
        assert_eq!(verdict("V", fine()).problems, ["the outcome is V instead of R"]);
        assert_eq!(verdict("?", fine()).problems, ["no outcome was told"]);
    }

    #[test]
    fn foreign_accesses_late_fail_safe_and_floods_of_log_are_problems() {
        let noted = [
            Noted { foreign_accesses: Some(1), ..fine() },
            Noted { foreign_accesses: None, ..fine() },
            Noted { fail_safe_us: Some(FAIL_SAFE_US + 1), ..fine() },
            Noted { log_bytes: LOG_BYTES + 1, ..fine() },
        ];
        for noted in noted {
            assert_eq!(verdict("R", noted.clone()).problems.len(), 1, "{noted:?}");
        }
    }

    #[test]
    fn repeated_attack_is_told_of_as_it_went_wrong() {
        let told = |outcome: &str| Told { outcome: Some(outcome.into()), ..Told::default() };
        assert_eq!(told("R").or_worse(told("R"), EXPECTED).outcome.as_deref(), Some("R"));
        assert_eq!(told("R").or_worse(told("V"), EXPECTED).outcome.as_deref(), Some("V"));
        let broken = Told { problems: vec!["x".into()], ..told("R") };
        assert_eq!(told("R").or_worse(broken, EXPECTED).problems, ["x"]);
    }

    #[test]
    fn second_attempt_that_goes_wrong_is_not_hidden() {
        assert!(!verdict("R", fine()).and(verdict("V", fine())).ok());
        assert!(!verdict("V", fine()).and(verdict("R", fine())).ok());
        assert!(verdict("R", fine()).and(verdict("R", fine())).ok());
    }
}
