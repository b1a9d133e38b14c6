//! What an attacker saw: counted answers, and what should not have happened.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use anyhow::Result;
use gpuvmk_attacks::Outcome;
use serde_json::{Value, json};

/// Problems that are told one by one.
const TOLD: usize = 8;

/// Collected during one attack.
#[derive(Debug, Default)]
pub struct Findings {
    counts: BTreeMap<String, u64>,
    problems: Vec<String>,
    more: u64,
    residue: u64,
    waited: Duration,
}

impl Findings {
    /// Something was seen once more.
    pub fn count(&mut self, what: impl Display) {
        self.add(what, 1);
    }

    /// Something was seen so often.
    pub fn add(&mut self, what: impl Display, often: u64) {
        *self.counts.entry(what.to_string()).or_default() += often;
    }

    /// Something that should not have happened.
    pub fn problem(&mut self, what: impl Display) {
        if self.problems.len() < TOLD {
            self.problems.push(what.to_string());
        } else {
            self.more += 1;
        }
    }

    /// A problem unless `right`.
    pub fn check(&mut self, right: bool, what: impl Display) {
        if !right {
            self.problem(what);
        }
    }

    /// So many bytes of somebody else's were found in memory that should have been zero.
    pub fn residue(&mut self, bytes: u64) {
        self.residue = self.residue.saturating_add(bytes);
    }

    /// So long it was kept waiting before it was a tenant.
    pub fn waited(&mut self, time: Duration) {
        self.waited = self.waited.max(time);
    }

    /// As the host reads it.
    pub fn to_json(&self, outcome: Result<Outcome>) -> Value {
        let mut problems = self.problems.clone();
        if self.more > 0 {
            problems.push(format!("and {} more", self.more));
        }
        let outcome = match outcome {
            Ok(outcome) => Some(outcome.letter().to_string()),
            Err(error) => {
                problems.push(format!("{error:#}"));
                None
            }
        };
        let seen: Vec<_> = self.counts.iter().map(|(what, count)| format!("{what}: {count}")).collect();
        json!({
            "outcome": outcome,
            "seen": seen.join(", "),
            "residue_bytes": self.residue,
            "waited_ms": u64::try_from(self.waited.as_millis()).unwrap_or(u64::MAX),
            "problems": problems,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_and_problems_bounded() {
        let mut findings = Findings::default();
        findings.count("EINVAL");
        findings.add("EINVAL", 2);
        findings.check(true, "not told");
        (0..20).for_each(|number| findings.problem(number));

        let json = findings.to_json(Ok(Outcome::Refused));

        assert_eq!((json["outcome"].as_str(), json["seen"].as_str()), (Some("R"), Some("EINVAL: 3")));
        assert_eq!(json["problems"].as_array().unwrap().len(), TOLD + 1);
    }
}
