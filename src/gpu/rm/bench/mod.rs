//! What a native client of the NVIDIA driver gets on this machine: the figures that guests' figures are
//! compared with, measured on the same code, the same engines and in the same run; and a rehearsal of the
//! driver itself.
//!
//! A measurement that fails is told, and the next one is made. A call that the driver refuses ends the run:
//! whoever reads the report decides what that means.

mod compute;
mod figures;
mod rehearsal;
mod residue;

pub use rehearsal::{WINDOW_PATTERN, play_window_child};

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::RmError;
use super::channels::EngineTable;
use super::device::{Device, DeviceFacts, Doorbell};
use super::discovery::{open_device, open_kernel};
use super::error::OpenError;
use super::places::Places;
use crate::GpuError;

/// How to measure.
#[derive(Clone, Debug, Default)]
pub struct BenchConfig {
    /// PCI address; none: the only one.
    pub gpu: Option<String>,
    /// User to become first.
    pub uid: Option<u32>,
    /// Also rehearse the driver, with this program as the second process.
    pub rehearse: bool,
    /// Also look for what contexts find of each other's, with a rehearsal.
    pub residue: bool,
    /// Where the host shows its driver.
    pub places: Places,
}

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What.
    pub name: String,
    /// In which unit.
    pub unit: &'static str,
    /// Middle value.
    pub p50: f64,
    /// Smallest.
    pub min: f64,
    /// Only one in a hundred is larger.
    pub p99: f64,
    /// How many.
    pub samples: usize,
}

impl Figure {
    /// Times, in microseconds.
    fn times(name: impl Into<String>, mut samples: Vec<Duration>) -> Self {
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
    fn rates(name: impl Into<String>, bytes: u64, samples: &[Duration]) -> Self {
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
pub struct Look {
    /// Where.
    pub what: String,
    /// Bytes that were looked at.
    pub bytes: u64,
    /// Words of the pattern that another context had left, where one was left.
    pub pattern: Option<u64>,
    /// Words that are not 0.
    pub not_zero: u64,
}

/// A step that did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Which.
    pub step: String,
    /// Why.
    pub why: String,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of the NVIDIA driver.
    pub driver: String,
    /// PCI address.
    pub address: String,
    /// Marketing name.
    pub name: String,
    /// Real copy engines behind Copy(0), Copy(1) and Copy(2).
    pub copy_engines: [u32; 3],
    /// User that measured.
    pub uid: u32,
    /// Figures.
    pub figures: Vec<Figure>,
    /// What was looked for, and found.
    pub looks: Vec<Look>,
    /// What this driver does not tell, so that nobody looked.
    pub not_told: Vec<String>,
    /// Steps that were done and checked.
    pub passed: Vec<String>,
    /// Steps that failed.
    pub failed: Vec<Failure>,
    /// True when the driver refused a call, which ended the run.
    pub refused: bool,
}

impl Report {
    /// Notes how a step went. `Err` when nothing more is to be tried.
    fn note(&mut self, step: &str, outcome: Result<(), StepError>) -> Result<(), Stop> {
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
struct Stop;

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Gpu(#[from] GpuError),
    #[error(transparent)]
    Rm(#[from] RmError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Wrong(String),
}

impl StepError {
    fn is_refusal(&self) -> bool {
        let status = match self {
            Self::Gpu(GpuError::Rm(error)) | Self::Rm(error) | Self::Open(OpenError::Rm(error)) => {
                error.status()
            }
            Self::Open(OpenError::Setup(error)) => match error.as_ref() {
                GpuError::Rm(error) => error.status(),
                _ => None,
            },
            _ => None,
        };
        status.is_some()
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// What measurements share.
struct Bench {
    device: Device,
    doorbell: Arc<Doorbell>,
    table: EngineTable,
}

/// Measures.
///
/// # Errors
/// The GPU cannot be taken at all.
pub fn run(config: &BenchConfig) -> Result<Report, OpenError> {
    let opened = open_kernel(&config.places, config.uid)?;
    let (mut device, facts, table) = open_device(&opened.kernel, &config.places, config.gpu.as_deref())?;
    let kernel = opened.for_good()?;
    let DeviceFacts { address, name, .. } = facts;
    let doorbell = Arc::new(device.doorbell()?);
    let mut report = Report {
        driver: config.places.driver().version().unwrap_or_default().to_owned(),
        address,
        name,
        copy_engines: table.copy,
        uid: rustix::process::geteuid().as_raw(),
        figures: Vec::new(),
        looks: Vec::new(),
        not_told: Vec::new(),
        passed: Vec::new(),
        failed: Vec::new(),
        refused: false,
    };
    let mut bench = Bench { device, doorbell, table };
    let _: Result<(), Stop> = all(&mut bench, &kernel, config, &mut report);
    Ok(report)
}

fn all(
    bench: &mut Bench,
    kernel: &Arc<dyn super::kernel::Kernel>,
    config: &BenchConfig,
    report: &mut Report,
) -> Result<(), Stop> {
    figures::measure(bench, report)?;
    if config.residue {
        let outcome = residue::shared_memory(bench, report);
        report.note("shared memory of other contexts", outcome)?;
    }
    if config.rehearse || config.residue {
        rehearsal::rehearse(kernel, config, report)?;
    }
    Ok(())
}
