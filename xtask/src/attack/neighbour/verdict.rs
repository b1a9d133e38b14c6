//! Whether an attack left its neighbour alone.

use std::thread::available_parallelism;

use gpuvmk_attacks::peers::PeerAttack;
use serde_json::{Value, json};

use super::figures::{Figures, Period};
use super::steps::Steps;
use crate::attack::judge::{self, Noted, Told};
use crate::attack::speed::Speeds;

/// The most that the 99th percentile may grow by.
const P99: f64 = 2.0;
/// The most milliseconds that anything of the neighbour's may take.
const STALL_MS: f64 = 10.0;
/// The same where there are too few processors for everybody.
const STALL_MS_IF_SHORT: f64 = 20.0;
/// Processors from which on there are enough: the neighbour's, the aggregator's, an engine's, and the
/// attacker's.
const ENOUGH: usize = 4;

/// So many times the limit is not measured again.
const GROSS: f64 = 20.0;

fn has_enough() -> bool {
    available_parallelism().map_or(1, usize::from) >= ENOUGH
}

/// What one measurement came to.
#[derive(Debug, Clone, Copy)]
struct Measured {
    undisturbed: Figures,
    shared: Figures,
    during: Figures,
}

/// The neighbour's times.
#[derive(Debug, Clone)]
pub struct Times {
    /// Beside a process that only spins.
    pub undisturbed: Period,
    /// Beside an honest tenant that copies without a pause: told, and judged by where processors are short.
    /// Who attacks with copies may cost as many turns at an engine.
    pub shared: Period,
    /// During the attack.
    pub during: Period,
}

impl Measured {
    fn p99_ratio(&self) -> f64 {
        let ratio = |during: f64, undisturbed: f64| during / undisturbed.max(1.0);
        let requests = ratio(self.during.request_p99, self.undisturbed.request_p99);
        requests.max(ratio(self.during.copy_p99, self.undisturbed.copy_p99))
    }

    /// The same without what the machine does to any thread, and to anybody beside a tenant that copies: one
    /// processor is engine and aggregator where there are two, and who is in the kernel keeps the other.
    fn p99_ratio_over_machine(&self) -> f64 {
        let late = (self.during.machine_late - self.undisturbed.machine_late).max(0.0);
        let ratio = |during: f64, undisturbed: f64| (during - late).max(0.0) / undisturbed.max(1.0);
        let copies = self.undisturbed.copy_p99.max(self.shared.copy_p99);
        let requests = ratio(self.during.request_p99, self.undisturbed.request_p99);
        requests.max(ratio(self.during.copy_p99, copies))
    }

    fn stall_ms(&self) -> f64 {
        self.during.request_max.max(self.during.copy_max) / 1000.0
    }
}

/// What came of an attack.
#[derive(Debug, Clone)]
pub struct Verdict {
    judged: judge::Verdict,
    measured: Vec<Measured>,
    wrong: u64,
    steps: Steps,
    /// False if there are too few processors for everybody.
    has_enough: bool,
}

impl Verdict {
    /// Judges an attack, and the neighbour's times if they were taken.
    pub fn of(attack: &PeerAttack, told: Told, noted: Noted, times: Option<Times>) -> Self {
        let judged = judge::Verdict::of(attack.into(), told, noted, Speeds::default());
        let wrong = |times: &Times| times.undisturbed.wrong + times.shared.wrong + times.during.wrong;
        let wrong = times.as_ref().map_or(0, wrong);
        let measured = times.into_iter().map(|times| Measured {
            undisturbed: times.undisturbed.figures(),
            shared: times.shared.figures(),
            during: times.during.figures(),
        });
        Self {
            judged,
            measured: measured.collect(),
            wrong,
            steps: Steps::default(),
            has_enough: has_enough(),
        }
    }

    /// With how long the aggregator's thread was at what.
    pub fn with_steps(self, steps: Steps) -> Self {
        Self { steps, ..self }
    }

    /// The attack's name.
    pub fn name(&self) -> &'static str {
        self.judged.attack.name
    }

    /// What the host saw and the attacker said.
    pub fn judged(&self) -> &judge::Verdict {
        &self.judged
    }

    /// This and the attack made again.
    pub fn and(mut self, again: Self) -> Self {
        self.measured.extend(again.measured);
        Self {
            judged: self.judged.and(again.judged),
            measured: self.measured,
            wrong: self.wrong + again.wrong,
            steps: again.steps,
            has_enough: self.has_enough,
        }
    }

    /// The median measurement's ratio of 99th percentiles.
    pub fn p99_ratio(&self) -> Option<f64> {
        median(self.measured.iter().map(Measured::p99_ratio))
    }

    /// The same without what is the machine's own doing.
    pub fn p99_ratio_over_machine(&self) -> Option<f64> {
        median(self.measured.iter().map(Measured::p99_ratio_over_machine))
    }

    /// What is judged on this machine.
    fn p99_judged(&self) -> Option<f64> {
        if self.has_enough { self.p99_ratio() } else { self.p99_ratio_over_machine() }
    }

    /// The most milliseconds that anything may take on this machine.
    const fn stall_limit(&self) -> f64 {
        if self.has_enough { STALL_MS } else { STALL_MS_IF_SHORT }
    }

    /// The median measurement's longest request or copy, in milliseconds.
    pub fn stall_ms(&self) -> Option<f64> {
        median(self.measured.iter().map(Measured::stall_ms))
    }

    /// The same of a thread that only sleeps, of all measurements.
    pub fn machine_ms(&self) -> Option<f64> {
        median(self.measured.iter().map(|measured| measured.during.machine_max / 1000.0))
    }

    /// How often it was measured.
    pub fn times(&self) -> usize {
        self.measured.len()
    }

    /// What is wrong about the neighbour's times.
    fn delays(&self) -> Vec<String> {
        let mut found = Vec::new();
        if let Some(ratio) = self.p99_judged().filter(|ratio| *ratio > P99) {
            found.push(format!(
                "the neighbour's 99th percentile is {ratio:.2} times the undisturbed one, {P99} are allowed"
            ));
        }
        if let Some(stall) = self.stall_ms().filter(|stall| *stall > self.stall_limit()) {
            found.push(format!("the neighbour waited {stall:.1} ms, {} are allowed", self.stall_limit()));
        }
        found
    }

    /// Everything that was wrong; empty if it came out as it must.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = [self.judged.problems.clone(), self.delays()].concat();
        if self.wrong > 0 {
            problems.push(format!("{} copies of the neighbour's were wrong", self.wrong));
        }
        if self.residue_bytes() > 0 {
            problems.push(format!("{} bytes of somebody else's were found", self.residue_bytes()));
        }
        problems
    }

    /// Bytes that were found where zeros should have been.
    pub fn residue_bytes(&self) -> u64 {
        self.judged.noted.residue_bytes
    }

    /// Whether all is well.
    pub fn ok(&self) -> bool {
        self.problems().is_empty()
    }

    /// Whether to measure once more, up to `most` times: the machine may have been busy.
    pub fn asks_for_more(&self, most: usize) -> bool {
        // What is so much too long is no machine's noise.
        let gross = self.stall_ms().is_some_and(|stall| stall > GROSS * self.stall_limit());
        let well = self.judged.problems.is_empty() && self.wrong == 0;
        well && !gross && !self.delays().is_empty() && self.times() < most
    }

    /// As the JSON result has it.
    pub fn to_json(&self) -> Value {
        let last = self.measured.last();
        let figures = |figures: Figures| {
            json!({
                "request_p99_us": figures.request_p99, "copy_p99_us": figures.copy_p99,
                "request_max_us": figures.request_max, "copy_max_us": figures.copy_max,
                "machine_late_us": figures.machine_late,
                "machine_max_us": figures.machine_max, "windows": figures.windows,
                "slow_windows": figures.slow_windows,
            })
        };
        json!({
            "name": self.name(),
            "outcome": self.judged.outcome.map(|outcome| outcome.letter().to_string()),
            "expected": self.judged.attack.letters(),
            "p99_ratio": self.p99_ratio().map(rounded),
            "p99_ratio_over_machine": self.p99_ratio_over_machine().map(rounded),
            "stall_ms": self.stall_ms().map(rounded),
            "stall_ms_allowed": self.stall_limit(),
            "measured": self.times(),
            "undisturbed": last.map(|measured| figures(measured.undisturbed)),
            "beside_co_tenant": last.map(|measured| figures(measured.shared)),
            "during": last.map(|measured| figures(measured.during)),
            "long_steps": self.steps.to_json(),
            "wrong_copies": self.wrong,
            "foreign_accesses": self.judged.noted.foreign_accesses,
            "residue_bytes": self.residue_bytes(),
            "seen": self.judged.seen,
            "log_bytes": self.judged.noted.log_bytes,
            "ok": self.ok(),
            "problems": self.problems(),
        })
    }

    /// Says on stderr what came of it.
    pub fn print(&self) {
        let number = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
        eprintln!(
            "{:24} {} ({}) p99 {} longest {} ms (machine {} ms) in {}: {}",
            self.name(),
            self.judged.outcome.map_or('-', gpuvmk_attacks::Outcome::letter),
            self.judged.attack.letters(),
            number(self.p99_ratio()),
            number(self.stall_ms()),
            number(self.machine_ms()),
            self.times(),
            self.judged.seen
        );
        if let Some(long) = self.steps.long() {
            eprintln!("    steps of the aggregator's thread over 20 us, 0.2 ms and 2 ms: {long}");
        }
        self.problems().iter().for_each(|problem| eprintln!("    {problem}"));
    }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use gpuvmk_attacks::Outcome;
    use gpuvmk_attacks::peers::By;

    use super::*;

    const ATTACK: PeerAttack = PeerAttack {
        row: None,
        name: "x",
        by: By::Neighbour,
        what: "",
        expected: &[Outcome::Refused],
        short: false,
    };

    fn period(time: u32) -> Period {
        let mut period = Period::default();
        let line =
            json!({ "from": 0, "to": 9, "requests": [time], "copies": [time], "machine": [1], "wrong": 0 });
        period.add(&line.to_string(), |_, _| false).unwrap();
        period
    }

    fn verdict(undisturbed: u32, during: u32) -> Verdict {
        let told = Told { outcome: Some("R".into()), ..Told::default() };
        let noted = Noted { foreign_accesses: Some(0), bursts: 1, ..Noted::default() };
        Verdict::of(
            &ATTACK,
            told,
            noted,
            Some(Times {
                undisturbed: period(undisturbed),
                shared: period(undisturbed),
                during: period(during),
            }),
        )
    }

    #[test]
    fn twice_the_time_is_allowed_and_no_more() {
        assert!(verdict(100, 200).ok());
        assert!(!verdict(100, 201).ok());
    }

    #[test]
    fn copies_are_judged_by_the_undisturbed_ones_where_processors_are_enough() {
        let judged = |requests: u32, copies: u32| {
            let line = json!({ "from": 0, "to": 9, "requests": [requests], "copies": [copies], "machine": [1], "wrong": 0 });
            let mut during = Period::default();
            during.add(&line.to_string(), |_, _| false).unwrap();
            let told = Told { outcome: Some("R".into()), ..Told::default() };
            let noted = Noted { foreign_accesses: Some(0), bursts: 1, ..Noted::default() };
            let times = Times { undisturbed: period(100), shared: period(1000), during };
            let verdict = Verdict::of(&ATTACK, told, noted, Some(times));
            [true, false].map(|has_enough| Verdict { has_enough, ..verdict.clone() }.ok())
        };
        assert_eq!(judged(200, 200), [true, true]);
        assert_eq!(judged(200, 201), [false, true], "where processors are short, the engine's are, too");
        assert_eq!([judged(201, 200), judged(200, 2001)], [[false; 2]; 2]);
    }

    #[test]
    fn what_a_sleeping_thread_suffers_is_the_machines_where_processors_are_short() {
        let judged = |late: u32| {
            let line = json!({ "from": 0, "to": 9, "requests": [500], "copies": [100], "machine": [late], "wrong": 0 });
            let mut during = Period::default();
            during.add(&line.to_string(), |_, _| false).unwrap();
            let told = Told { outcome: Some("R".into()), ..Told::default() };
            let noted = Noted { foreign_accesses: Some(0), bursts: 1, ..Noted::default() };
            let times = Times { undisturbed: period(100), shared: period(100), during };
            let verdict = Verdict::of(&ATTACK, told, noted, Some(times));
            assert_eq!(verdict.p99_ratio(), Some(5.0), "told as it is");
            [true, false].map(|has_enough| Verdict { has_enough, ..verdict.clone() }.ok())
        };
        assert_eq!([judged(300), judged(301)], [[false, false], [false, true]]);
    }

    #[test]
    fn one_long_wait_is_too_much_whatever_is_usual() {
        assert!(!verdict(900_000, 1_000_000).ok());
    }

    #[test]
    fn median_of_several_measurements_counts() {
        let bad = verdict(100, 5000);
        assert!(bad.asks_for_more(5));
        let twice = bad.clone().and(verdict(100, 100));
        assert!(twice.asks_for_more(5) && !twice.ok());
        assert!(twice.and(verdict(100, 100)).ok());
        let all = (0..4).fold(bad.clone(), |all, _| all.and(bad.clone()));
        assert!(!all.asks_for_more(5) && !all.ok());
    }

    #[test]
    fn residue_is_a_problem() {
        let mut verdict = verdict(100, 100);
        verdict.judged.noted.residue_bytes = 1;
        assert!(!verdict.ok());
    }
}
