//! What the neighbour says of its times, exactly.

use anyhow::{Context, Result};
use serde::Deserialize;

/// One line of the neighbour's: times in microseconds.
#[derive(Debug, Clone, Deserialize)]
struct Window {
    requests: Vec<u32>,
    copies: Vec<u32>,
    /// How late a thread was that only sleeps.
    machine: u32,
    /// Copies whose data were wrong.
    wrong: u64,
}

/// Everything of some time.
#[derive(Debug, Clone, Default)]
pub struct Period {
    requests: Vec<u32>,
    copies: Vec<u32>,
    machine: u32,
    /// Copies whose data were wrong.
    pub wrong: u64,
}

impl Period {
    /// Adds a line.
    pub fn add(&mut self, line: &str) -> Result<()> {
        let window: Window =
            serde_json::from_str(line).with_context(|| format!("The neighbour said: {line}"))?;
        self.requests.extend(window.requests);
        self.copies.extend(window.copies);
        self.machine = self.machine.max(window.machine);
        self.wrong += window.wrong;
        Ok(())
    }

    /// This and `other` together.
    pub fn and(mut self, other: &Self) -> Self {
        self.requests.extend(&other.requests);
        self.copies.extend(&other.copies);
        self.machine = self.machine.max(other.machine);
        self.wrong += other.wrong;
        self
    }

    /// True if nothing was timed.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty() || self.copies.is_empty()
    }

    /// The figures.
    pub fn figures(&self) -> Figures {
        Figures {
            request_p99: p99(&self.requests),
            copy_p99: p99(&self.copies),
            request_max: most(&self.requests),
            copy_max: most(&self.copies),
            machine_max: f64::from(self.machine),
        }
    }
}

/// In microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Figures {
    pub request_p99: f64,
    pub copy_p99: f64,
    pub request_max: f64,
    pub copy_max: f64,
    /// How late a thread was that does nothing but sleep: the machine's own doing.
    pub machine_max: f64,
}

fn most(times: &[u32]) -> f64 {
    f64::from(times.iter().copied().max().unwrap_or(0))
}

/// What 99 of 100 are at most.
fn p99(times: &[u32]) -> f64 {
    let mut times = times.to_vec();
    times.sort_unstable();
    let index = (times.len() * 99).div_ceil(100).saturating_sub(1);
    f64::from(times.get(index).copied().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_end_is_exact() {
        let times: Vec<u32> = (1..=200).rev().collect();
        assert_eq!((p99(&times), most(&times)), (198.0, 200.0));
        assert_eq!((p99(&[7]), p99(&[])), (7.0, 0.0));
    }

    #[test]
    fn windows_add_up() {
        let mut period = Period::default();
        assert!(period.is_empty());
        period.add(r#"{"from":0,"to":9,"requests":[1,2],"copies":[5],"machine":3,"wrong":1}"#).unwrap();
        period.add(r#"{"from":9,"to":19,"requests":[9],"copies":[4],"machine":2,"wrong":0}"#).unwrap();
        let figures = period.figures();
        assert_eq!((figures.request_max, figures.copy_max, figures.machine_max), (9.0, 5.0, 3.0));
        assert_eq!((period.wrong, period.is_empty()), (1, false));
        assert!(period.add("thread 'main' panicked").is_err());
    }
}
