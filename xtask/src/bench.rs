//! `cargo xtask bench suite`: native and mediated in the same run, taking turns; the medians over the boots of each
//! boot's medians, and their ratios.
//!
//! Ratios are of mediated to native: `suite` and `work_1ms` compare speed (1 is as fast as native, and they must
//! not fall below 0.9), `latency_4k` and `probe` compare time (and must not exceed 1.35 and 1.25).
//!
//! `cargo xtask bench gh100`: what a GH100's driver costs ([`gh100`]). `cargo xtask bench sched`: how policies share
//! ([`sched`]). `cargo xtask bench trace`: what traces cost ([`trace`]). `cargo xtask bench shadow`: what following page tables costs
//! (`benches/flush.rs`).

mod gh100;
mod own;
mod sched;
mod submission;
mod trace;
mod traps;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::rig::Topology;
use gpuvmk_lab::verdict;
use serde_json::json;

use self::submission::Waits;
use crate::cases::Guest;
use crate::workshop::{self, Workshop};

/// Work of at least this long must run at nine tenths of native speed.
const LONG_WORK_US: f64 = 1000.0;
/// Mediated speed of long work, native being 1.
const LEAST_WORK: f64 = 0.9;
/// Mediated latency of a 4 KiB copy, native being 1.
const MOST_LATENCY: f64 = 1.35;
/// Mediated probe time, native being 1.
const MOST_PROBE: f64 = 1.25;
const PROGRAMS: &[&str] = &["probe", "bench"];

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which benchmark: `suite` compares mediated with native on a GF100, `gh100` measures a GH100's driver,
    /// `sched` judges scheduling policies, `shadow` measures flushes, walks of page tables and the aggregator's check of
    /// them, `trace` recording and the tools for traces, `traps` what it costs to stop a guest on KVM, and what mapped
    /// windows and signalled doorbells save
    #[arg(value_enum, default_value_t = What::Suite)]
    what: What,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// The guest's kernel [default: 6.12; gh100: 7.2]
    #[arg(long)]
    kernel: Option<KernelSeries>,
    /// The chip, for `sched` [default: each in turn]
    #[arg(long)]
    chip: Option<Chip>,
    /// A policy that `sched` judges, instead of all and hangs; may be repeated
    #[arg(long, value_parser = sched::POLICIES)]
    policy: Vec<String>,
    /// How often each set-up is booted
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Where logs go
    #[arg(long, value_name = "FOLDER", default_value = "target/xtask-bench")]
    logs: PathBuf,
    /// A gpuvmk to use instead of building one
    #[arg(long, value_name = "FILE")]
    gpuvmk: Option<PathBuf>,
}

/// A benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Mediated against native.
    Suite,
    /// A GH100's driver.
    Gh100,
    /// Many guests under each scheduling policy.
    Sched,
    /// What following guests' page tables costs.
    Shadow,
    /// What recording costs, and how fast the tools are.
    Trace,
    /// What traps cost on KVM.
    Traps,
}

/// Every sample of a figure, by its name.
type Samples = BTreeMap<String, Vec<f64>>;

pub fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.rounds > 0, "At least one round is needed");
    match arguments.what {
        What::Suite => suite(arguments),
        What::Gh100 => gh100::run(arguments),
        What::Sched => sched::run(arguments),
        What::Shadow => own::run("flush", arguments.json),
        What::Trace => trace::run(arguments),
        What::Traps => traps::run(arguments.json),
    }
}

/// The tools for guests with a GPU of this chip, and their kernel.
fn workshop(arguments: &Arguments, chip: Chip) -> Result<(Workshop, KernelSeries)> {
    let kernel = arguments.kernel.unwrap_or(chip.usual_kernel());
    chip.check_kernel(kernel)?;
    let kinds = BTreeSet::from([(kernel, Firmware::for_kernel(kernel))]);
    let workshop = Workshop::open(&kinds, &arguments.logs, arguments.gpuvmk.as_deref())?;
    eprintln!("guests run on {}", workshop.accelerator().name());
    Ok((workshop, kernel))
}

fn suite(arguments: &Arguments) -> Result<bool> {
    let (workshop, kernel) = workshop(arguments, Chip::Gf100)?;
    let (mut native, mut mediated) = (Samples::new(), Samples::new());
    for round in 0..arguments.rounds {
        for (topology, samples) in [(Topology::Native, &mut native), (Topology::Mediated, &mut mediated)] {
            one_boot(&workshop, topology, kernel, round, samples)
                .with_context(|| format!("{}, round {round}", topology.name()))?;
        }
    }
    let messages = |topology| -> Result<f64> {
        let guest = Guest::new("vm1", Chip::Gf100, kernel, &[]);
        Ok(submission::costs(&workshop, topology, &guest, Waits::Both)?.messages())
    };
    let (native_messages, mediated_messages) = (messages(Topology::Native)?, messages(Topology::Mediated)?);
    let table = Table::new(&native, &mediated)?;
    table.print();
    println!(
        "vfio-user messages per submission: native {native_messages:.2}, mediated {mediated_messages:.2}"
    );
    let ratios = table.ratios()?;
    println!("mediated over native: {ratios:?}");
    let problems = ratios.problems();
    problems.iter().for_each(|problem| println!("{problem}"));
    if arguments.json {
        let rows: Vec<_> = table
            .rows
            .iter()
            .map(|row| json!({ "name": row.name, "native": row.native, "mediated": row.mediated }))
            .collect();
        println!(
            "{}",
            json!({
                "ok": problems.is_empty(),
                "accelerator": workshop.accelerator().name(),
                "kernel": kernel.name(),
                "rounds": arguments.rounds,
                "medians": rows,
                "mediated_over_native": {
                    "suite": round3(ratios.suite),
                    "work_1ms": round3(ratios.work_1ms),
                    "latency_4k": round3(ratios.latency_4k),
                    "probe": round3(ratios.probe),
                },
                "messages_per_submission": {
                    "native": round3(native_messages),
                    "mediated": round3(mediated_messages),
                },
                "problems": problems,
            })
        );
    }
    Ok(problems.is_empty())
}

fn round3(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Boots one guest and collects its figures.
fn one_boot(
    workshop: &Workshop,
    topology: Topology,
    kernel: KernelSeries,
    round: u32,
    samples: &mut Samples,
) -> Result<()> {
    let guest = Guest::new("vm1", Chip::Gf100, kernel, PROGRAMS);
    let label = format!("{}-{round}", topology.name());
    let mut rig = workshop.rig(&label, topology, std::slice::from_ref(&guest))?;
    let outcome = workshop.start(&label, guest.name, &rig, &guest, 0)?.wait(&mut |_| {})?;
    let verdict = verdict::judge(&outcome, &workshop::expected(&guest));
    if !verdict.ok() {
        bail!("the guest failed: {}", verdict.problems.join("; "));
    }
    for result in &verdict.results {
        for (name, value) in &result.figures {
            if name.ends_with("_us_p50") || name == "probe_ms" {
                let value = value.as_f64().with_context(|| format!("{name} is no number"))?;
                samples.entry(name.clone()).or_default().push(value);
            }
        }
    }
    rig.stop()?;
    Ok(())
}

/// One figure in both set-ups; all figures are times.
#[derive(Debug)]
struct Row {
    name: String,
    native: f64,
    mediated: f64,
}

impl Row {
    fn speed(&self) -> f64 {
        self.native / self.mediated.max(f64::MIN_POSITIVE)
    }
}

#[derive(Debug)]
struct Table {
    rows: Vec<Row>,
}

/// The results that are held against limits.
#[derive(Debug)]
struct Ratios {
    suite: f64,
    work_1ms: f64,
    latency_4k: f64,
    probe: f64,
}

impl Ratios {
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.work_1ms < LEAST_WORK {
            problems.push(format!(
                "long work runs at {:.2} of native speed, {LEAST_WORK} is needed",
                self.work_1ms
            ));
        }
        if self.latency_4k > MOST_LATENCY {
            problems.push(format!(
                "a 4 KiB copy takes {:.2} of native time, {MOST_LATENCY} is allowed",
                self.latency_4k
            ));
        }
        if self.probe > MOST_PROBE {
            problems.push(format!("probing takes {:.2} of native time, {MOST_PROBE} is allowed", self.probe));
        }
        problems
    }
}

impl Table {
    fn new(native: &Samples, mediated: &Samples) -> Result<Self> {
        let mut rows = Vec::new();
        for (name, samples) in native {
            let other = mediated.get(name).with_context(|| format!("{name} was not measured mediated"))?;
            rows.push(Row { name: name.clone(), native: median(samples), mediated: median(other) });
        }
        Ok(Self { rows })
    }

    fn print(&self) {
        println!("{:28} {:>12} {:>12} {:>10}", "median time", "native", "mediated", "ratio");
        for row in &self.rows {
            let unit = if row.name.ends_with("_ms") { "ms" } else { "us" };
            let ratio = row.mediated / row.native.max(f64::MIN_POSITIVE);
            println!("{:28} {:9.1} {unit} {:9.1} {unit} {ratio:10.3}", row.name, row.native, row.mediated);
        }
    }

    fn row(&self, name: &str) -> Result<&Row> {
        self.rows.iter().find(|row| row.name == name).with_context(|| format!("{name} was not measured"))
    }

    fn ratios(&self) -> Result<Ratios> {
        let long: Vec<f64> = self
            .rows
            .iter()
            .filter(|row| row.name != "probe_ms" && row.native >= LONG_WORK_US)
            .map(Row::speed)
            .collect();
        ensure!(!long.is_empty(), "No measured work took {LONG_WORK_US} us or longer");
        let everything: Vec<f64> = self.rows.iter().map(Row::speed).collect();
        Ok(Ratios {
            suite: geometric_mean(&everything),
            work_1ms: geometric_mean(&long),
            latency_4k: 1.0 / self.row("latency_4k_us_p50")?.speed(),
            probe: 1.0 / self.row("probe_ms")?.speed(),
        })
    }
}

/// The middle of the boots' medians (the mean of the middle two where their number is even).
fn median(medians: &[f64]) -> f64 {
    let mut sorted = medians.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    if sorted.len().is_multiple_of(2) {
        (at(middle.saturating_sub(1)) + at(middle)) / 2.0
    } else {
        at(middle)
    }
}

fn geometric_mean(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    (values.iter().map(|value| value.ln()).sum::<f64>() / count).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(pairs: &[(&str, &[f64])]) -> Samples {
        pairs.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec())).collect()
    }

    #[test]
    fn ratios_compare_speed_for_work_and_time_for_latency() {
        let native = samples(&[
            ("latency_4k_us_p50", &[100.0, 90.0, 400.0]),
            ("work_64m_us_p50", &[9000.0]),
            ("copy_1m_us_p50", &[500.0]),
            ("probe_ms", &[2000.0]),
        ]);
        let mediated = samples(&[
            ("latency_4k_us_p50", &[130.0]),
            ("work_64m_us_p50", &[10_000.0]),
            ("copy_1m_us_p50", &[1000.0]),
            ("probe_ms", &[2200.0]),
        ]);
        let ratios = Table::new(&native, &mediated).unwrap().ratios().unwrap();
        assert!((ratios.latency_4k - 1.3).abs() < 1e-9);
        assert!((ratios.work_1ms - 0.9).abs() < 1e-9, "only work of a millisecond counts: {ratios:?}");
        assert!((ratios.probe - 1.1).abs() < 1e-9);
        assert_eq!(ratios.problems(), Vec::<String>::new());
    }

    #[test]
    fn results_beyond_the_limits_are_problems() {
        let ratios = Ratios { suite: 1.0, work_1ms: 0.5, latency_4k: 2.0, probe: 2.0 };
        assert_eq!(ratios.problems().len(), 3);
    }

    #[test]
    fn median_of_an_even_count_lies_between_the_middle_two() {
        assert!((median(&[4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-9);
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
    }
}
