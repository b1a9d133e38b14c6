//! `suite`: what programs ask of a driver beside plain work, each operation timed by itself: channels opened
//! and closed, memory allocated, mapped and unmapped by size, submissions that do not wait for each other,
//! many channels, eviction, and the five phases that GPUvm's authors measured. Medians; the host compares
//! them between set-ups.
//!
//! `suite:marks=1` does each operation a few times only and sets it off by reads of the GPU's clock, by which
//! the host finds it in a trace of register accesses and counts what it cost. `maps=0` is for kernels without
//! VM_BIND, and `only=memory` (or another part) does one part alone.

mod channels;
mod copies;
mod eviction;
mod memory;
mod phases;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::{Figures, Options};
use crate::drm::Device;
use crate::drm::abi::Parameter;
use crate::stats;

/// How often an operation is done where it is counted and not timed: the first time may cost more.
const COUNTED: usize = 3;
/// How often a mark reads the clock, and the silence around it. The host knows both. Before it the kernel may
/// go on in the background with what an operation left to it.
const READS_OF_A_MARK: usize = 40;
const SILENCE_BEFORE: Duration = Duration::from_millis(50);
const SILENCE_BEHIND: Duration = Duration::from_millis(8);

type Part = fn(&mut Suite) -> Result<()>;

/// Every part but that of memory, which has an option of its own.
const PARTS: [(&str, Part); 6] = [
    ("copies", copies::counted),
    ("pipelined", copies::pipelined),
    ("channels", channels::one),
    ("many", channels::many),
    ("phases", phases::run),
    ("evict", eviction::run),
];

/// The measurement while it runs.
#[derive(Debug)]
struct Suite {
    gpu: usize,
    marks: Option<Device>,
    samples: BTreeMap<String, Vec<Duration>>,
    stages: Vec<Value>,
    left_out: Vec<String>,
}

pub fn run(options: &Options) -> Result<Figures> {
    let gpu = options.gpu()?;
    let marks = if options.get("marks", 0u8)? == 0 { None } else { Some(Device::open(gpu)?) };
    let mut suite = Suite { gpu, marks, samples: BTreeMap::new(), stages: Vec::new(), left_out: Vec::new() };

    let only: String = options.get("only", String::new())?;
    let maps = options.get("maps", 1u8)? != 0;
    for (name, part) in PARTS {
        // `bench` times what is only counted here.
        let wanted = if only.is_empty() { name != "copies" || suite.marks.is_some() } else { only == name };
        if wanted {
            part(&mut suite)?;
        }
    }
    if only.is_empty() || only == "memory" {
        memory::run(&mut suite, maps)?;
    }
    Ok(suite.figures())
}

impl Suite {
    /// How often to do what is usually done `usual` times.
    fn times(&self, usual: usize) -> usize {
        if self.marks.is_some() { usual.min(COUNTED) } else { usual }
    }

    /// Does `work`, and takes its time as a sample of `name`.
    fn time<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.time_each(name, 1, work)
    }

    /// The same with work that consists of `pieces` alike: the sample is the time of one.
    fn time_each<T>(&mut self, name: &str, pieces: u32, work: impl FnOnce() -> Result<T>) -> Result<T> {
        self.mark()?;
        let start = Instant::now();
        let done = work().with_context(|| name.to_owned())?;
        let took = start.elapsed();
        self.mark()?;
        if self.marks.is_some() {
            self.stages.push(json!([name, pieces]));
        }
        self.samples.entry(name.to_owned()).or_default().push(took / pieces.max(1));
        Ok(done)
    }

    fn mark(&self) -> Result<()> {
        if let Some(device) = &self.marks {
            // A read takes writes along that QEMU has posted and not handed on yet: they belong to what was
            // before.
            device.parameter(Parameter::PtimerTime)?;
            thread::sleep(SILENCE_BEFORE);
            for _ in 0..READS_OF_A_MARK {
                device.parameter(Parameter::PtimerTime)?;
            }
            thread::sleep(SILENCE_BEHIND);
        }
        Ok(())
    }

    fn leave_out(&mut self, what: String) {
        self.left_out.push(what);
    }

    fn figures(self) -> Figures {
        let mut figures = Figures::new();
        for (name, samples) in &self.samples {
            figures.insert(format!("{name}_us_p50"), stats::percentile_us(samples, 50).into());
        }
        figures.insert("left_out".into(), self.left_out.into());
        if self.marks.is_some() {
            figures.insert("stages".into(), self.stages.into());
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite() -> Suite {
        Suite {
            gpu: 0,
            marks: None,
            samples: BTreeMap::new(),
            stages: Vec::new(),
            left_out: vec!["alloc_gart_1g".to_owned()],
        }
    }

    #[test]
    fn sample_is_the_time_of_one_piece() {
        let mut suite = suite();
        for _ in 0..3 {
            suite.time_each("pipelined_4k", 64, || Ok(())).unwrap();
        }
        let figures = suite.figures();
        assert!(figures.get("pipelined_4k_us_p50").and_then(Value::as_f64).is_some_and(|time| time < 1e4));
        assert_eq!(figures.get("left_out"), Some(&json!(["alloc_gart_1g"])));
        assert_eq!(figures.get("stages"), None, "nothing was set off");
    }

    #[test]
    fn failure_names_the_operation_and_gives_no_sample() {
        let mut suite = suite();
        let error = suite.time("channel_open", || -> Result<()> { anyhow::bail!("no channel left") });
        assert_eq!(format!("{:#}", error.unwrap_err()), "channel_open: no channel left");
        assert!(suite.samples.is_empty());
    }
}
