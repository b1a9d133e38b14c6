//! What a run found: read from libFuzzer's own words.

use std::process::ExitStatus;
use std::time::Duration;

use serde_json::{Value, json};

use crate::tenths;

/// A run's end.
#[derive(Debug)]
pub struct End {
    pub ending: Ending,
    /// Processor time of all its threads, but for its last half second.
    pub processor_time: Duration,
}

/// How a fuzzer ended.
#[derive(Debug)]
pub enum Ending {
    /// By itself.
    By(ExitStatus),
    /// It did not.
    Stuck,
}

/// One target's run.
#[derive(Debug, PartialEq)]
pub struct Outcome {
    pub target: String,
    /// Inputs tried.
    pub executions: u64,
    wall: Duration,
    /// At least: its last half second may be missing.
    processor_time: Duration,
    /// Branches reached.
    edges: u64,
    /// Branches by how often, comparisons by how close: what libFuzzer goes by.
    features: u64,
    /// Inputs kept.
    inputs: u64,
    /// Files that hold inputs that broke something.
    findings: Vec<String>,
    /// What is wrong, if something is.
    problem: Option<String>,
}

impl Outcome {
    /// Of the output `text` of `target`'s fuzzer.
    pub fn read(target: &str, text: &str, end: &End, wall: Duration) -> Self {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let mut outcome = Self {
            target: target.to_owned(),
            executions: 0,
            wall,
            processor_time: end.processor_time,
            edges: 0,
            features: 0,
            inputs: 0,
            findings: Vec::new(),
            problem: None,
        };
        let mut said = None;
        for line in text.lines() {
            let words = words(line);
            let after = |name: &str| {
                let at = words.iter().position(|word| word == name)?;
                words.get(at + 1)?.split('/').next()?.parse().ok()
            };
            if let Some(number) = words.first().and_then(|word| word.strip_prefix('#')?.parse().ok()) {
                outcome.executions = outcome.executions.max(number);
                outcome.edges = after("cov:").unwrap_or(outcome.edges);
                outcome.features = after("ft:").unwrap_or(outcome.features);
                outcome.inputs = after("corp:").unwrap_or(outcome.inputs);
            } else if let Some(executions) = after("stat::number_of_executed_units:") {
                outcome.executions = executions;
            } else if let Some((_, file)) = line.split_once("Test unit written to ") {
                outcome.findings.push(file.trim().to_owned());
            } else if said.is_none() && (line.contains("panicked at") || line.contains("ERROR: libFuzzer:")) {
                said = Some(line.trim().to_owned());
            }
        }
        outcome.problem = match &end.ending {
            Ending::Stuck => Some("it did not end in time and was killed".to_owned()),
            Ending::By(status) if !status.success() => {
                Some(said.unwrap_or_else(|| format!("it ended with {status}")))
            }
            Ending::By(_) if outcome.executions == 0 => Some("it tried nothing".to_owned()),
            Ending::By(_) => None,
        };
        outcome
    }

    pub fn ok(&self) -> bool {
        self.problem.is_none() && self.findings.is_empty()
    }

    fn per_second(&self) -> f64 {
        // CAST: a figure for people.
        #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
        let executions = self.executions as f64;
        (executions / self.wall.as_secs_f64().max(0.001)).round()
    }

    /// One line for people.
    pub fn line(&self) -> String {
        format!(
            "{:22} {:6} {:10} inputs tried, {:7} a second, {:7} s of a processor, {:6} edges, {:6} features, {:5} inputs kept",
            self.target,
            if self.ok() { "ok" } else { "FOUND" },
            self.executions,
            self.per_second(),
            tenths(self.processor_time),
            self.edges,
            self.features,
            self.inputs
        )
    }

    /// What is wrong, and how to see it again.
    pub fn explanation(&self) -> String {
        let problem = self.problem.as_deref().unwrap_or("it left findings");
        let mut text = format!("{}: {problem}", self.target);
        for file in &self.findings {
            text.push_str(&format!("\n    the input is {file}; the fuzzer takes it as its only argument"));
        }
        text
    }

    pub fn to_json(&self) -> Value {
        json!({
            "target": self.target,
            "ok": self.ok(),
            "executions": self.executions,
            "executions_per_second": self.per_second(),
            "seconds": tenths(self.wall),
            "processor_seconds": tenths(self.processor_time),
            "edges": self.edges,
            "features": self.features,
            "inputs": self.inputs,
            "findings": self.findings,
            "problem": self.problem,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn ended(code: i32) -> Ending {
        Ending::By(ExitStatus::from_raw(code << 8))
    }

    fn read(text: &str, ending: Ending) -> Outcome {
        let end = End { ending, processor_time: Duration::from_millis(1540) };
        Outcome::read("some", text, &end, Duration::from_secs(2))
    }

    #[test]
    fn figures_are_those_of_the_last_lines() {
        let text = "INFO: Seed: 1\n#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            #4096\tNEW    cov: 20 ft: 33 corp: 7/123b lim: 4 exec/s: 0 rss: 31Mb L: 1/1 MS: 1 ChangeByte-\n\
            #9000\tDONE   cov: 21 ft: 35 corp: 8/130b lim: 4 exec/s: 4500 rss: 31Mb\n\
            stat::number_of_executed_units: 9001\n";

        let outcome = read(text, ended(0));

        assert!(outcome.ok());
        assert_eq!((outcome.executions, outcome.edges, outcome.features, outcome.inputs), (9001, 21, 35, 8));
        assert_eq!(outcome.to_json()["executions_per_second"], 4501.0);
        assert_eq!(outcome.to_json()["processor_seconds"], 1.5);
    }

    #[test]
    fn crash_is_told_with_its_first_words_and_its_file() {
        let text = "#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb\n\
            thread '<unnamed>' panicked at src/lib.rs:3:5:\noh\n==7== ERROR: libFuzzer: deadly signal\n\
            artifact_prefix='f/'; Test unit written to f/crash-1234\n";

        let outcome = read(text, ended(77));

        assert!(!outcome.ok());
        assert!(outcome.explanation().contains("panicked at src/lib.rs:3:5:"));
        assert!(outcome.explanation().contains("f/crash-1234"));
        assert_eq!(outcome.to_json()["findings"][0], "f/crash-1234");
    }

    #[test]
    fn run_that_tried_nothing_or_did_not_end_is_not_ok() {
        assert!(!read("", ended(0)).ok());
        assert!(!read("#2\tINITED cov: 1 ft: 1 corp: 1/1b\n", Ending::Stuck).ok());
    }
}
