//! What was measured, found, passed and failed.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::step_error::{StepError, chain};

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// What.
    pub(crate) name: String,
    /// In which unit.
    pub(crate) unit: &'static str,
    /// Middle value.
    pub(crate) p50: f64,
    /// Smallest.
    pub(crate) min: f64,
    /// Only one in a hundred is larger.
    pub(crate) p99: f64,
    /// How many.
    pub(crate) samples: usize,
}

impl Figure {
    /// Times, in microseconds.
    pub(crate) fn times(name: impl Into<String>, mut samples: Vec<Duration>) -> Self {
        samples.sort_unstable();
        let micros = |index: usize| samples.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6);
        Self {
            name: name.into(),
            unit: "us",
            p50: micros(samples.len() / 2),
            min: micros(0),
            p99: micros(samples.len().saturating_mul(99) / 100),
            samples: samples.len(),
        }
    }

    /// Rates: `bytes` in each of the times, in GB/s; the "smallest" is the slowest.
    pub(crate) fn rates(name: impl Into<String>, bytes: u64, samples: &[Duration]) -> Self {
        // Figures for people; no exact number of bytes is needed.
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let bytes = bytes as f64;
        let mut rates: Vec<f64> = samples.iter().map(|time| bytes / time.as_secs_f64() / 1e9).collect();
        rates.sort_by(f64::total_cmp);
        let at = |index: usize| rates.get(index).copied().unwrap_or(0.0);
        Self {
            name: name.into(),
            unit: "GB/s",
            p50: at(rates.len() / 2),
            min: at(0),
            p99: at(rates.len().saturating_mul(99) / 100),
            samples: rates.len(),
        }
    }
}

/// What was found where nobody should find anything of another's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Look {
    /// Where.
    pub(crate) what: String,
    /// Bytes that were looked at.
    pub(crate) bytes: u64,
    /// Words of the pattern that another context had left, where one was left.
    pub(crate) pattern: Option<u64>,
    /// Words that are not 0.
    pub(crate) not_zero: u64,
}

/// A step that did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    /// Which.
    pub(crate) step: String,
    /// Why.
    pub(crate) why: String,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Version of the NVIDIA driver.
    pub(crate) driver: String,
    /// PCI address.
    pub(crate) address: String,
    /// Marketing name.
    pub(crate) name: String,
    /// Real copy engines behind Copy(0), Copy(1) and Copy(2).
    pub(crate) copy_engines: [u32; 3],
    /// User that measured.
    pub(crate) uid: u32,
    /// Figures.
    pub(crate) figures: Vec<Figure>,
    /// What was looked for, and found.
    pub(crate) looks: Vec<Look>,
    /// What this driver does not tell, so that nobody looked.
    pub(crate) not_told: Vec<String>,
    /// Steps that were done and checked.
    pub(crate) passed: Vec<String>,
    /// Steps that failed.
    pub(crate) failed: Vec<Failure>,
    /// True when the driver refused a call, which ended the run.
    pub(crate) refused: bool,
}

impl Report {
    /// Notes how a step went. `Err` when nothing more is to be tried.
    pub(crate) fn note(&mut self, step: &str, outcome: Result<(), StepError>) -> Result<(), Stop> {
        match outcome {
            Ok(()) => {
                self.passed.push(step.to_owned());
                Ok(())
            }
            Err(error) => {
                self.failed.push(Failure { step: step.to_owned(), why: chain(&error) });
                self.refused |= error.is_refusal();
                if self.refused { Err(Stop) } else { Ok(()) }
            }
        }
    }
}

/// The run is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop;

/// The report for people.
pub(crate) fn describe(report: &Report) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{} at {}, NVIDIA driver {}", report.name, report.address, report.driver);
    for figure in &report.figures {
        let _ = writeln!(
            text,
            "  {:<72} {:>10.2} {} (min {:.2}, p99 {:.2}, n {})",
            figure.name, figure.p50, figure.unit, figure.min, figure.p99, figure.samples
        );
    }
    for look in &report.looks {
        let pattern = look.pattern.map(|words| format!("{words} words of the pattern, ")).unwrap_or_default();
        let _ = writeln!(
            text,
            "  {:<72} {} KiB: {pattern}{} words not 0",
            look.what,
            look.bytes >> 10,
            look.not_zero
        );
    }
    for what in &report.not_told {
        let _ = writeln!(text, "  not told by the driver, and not looked at: {what}");
    }
    for step in &report.passed {
        let _ = writeln!(text, "  passed: {step}");
    }
    for failure in &report.failed {
        let _ = writeln!(text, "  FAILED: {}: {}", failure.step, failure.why);
    }
    if report.refused {
        let _ = writeln!(text, "  The driver refused a call; nothing more was tried.");
    }
    text
}
