//! The guests of the suite: booted, listened to, judged.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk_control_client::TenantStatus;
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::machine::Said;
use gpuvmk_lab::report::{ProgramResult, Report};
use gpuvmk_lab::rig::{Rig, Topology};
use gpuvmk_lab::{traffic, verdict};
use serde_json::Value;

use super::counts::{self, Counts};
use super::table::{POWER_OFF, PROBE, READY, Samples};
use crate::cases::Guest;
use crate::workshop::{Workshop, expected};

/// How often a guest is looked at: a power-off takes some tens of milliseconds.
const LOOK: Duration = Duration::from_millis(2);
/// Room for two buffers of 1 GiB.
const VRAM_MIB: u32 = 2304;
/// Room for buffers of 256 MiB: the guest's kernel gives half of this to buffers.
const MEMORY_MIB: u32 = 1536;
pub const WORDS: &[&str] = &["gpuvmk.limit=280"];

/// Where there is a native form, `bench` measures in guests that have both GPUs.
const TIMED: &[&str] = &["probe", "suite"];
// Long enough for the host to move threads about: how they lie to each other decides much of a short
// submission's time.
const TIMED_ALONE: &[&str] = &["probe", "bench:times=6", "suite"];
const COUNTED: &[&str] = &["probe", "suite:marks=1"];
/// The same before Linux 6.6, whose nouveau has no VM_BIND.
const TIMED_OLD: &[&str] = &["probe", "suite:maps=0"];
const COUNTED_OLD: &[&str] = &["probe", "suite:maps=0:marks=1"];
/// Enough for a power-off to have something to end.
const SHORT: &[&str] = &["probe", "fence"];

/// What the processes of a set-up say at their end, by the line that says it.
const TOTALS: [(&str, &[&str]); 2] = [
    ("Session ends:", &["messages", "reads", "writes"]),
    (
        "vGPU ends:",
        &["flushes", "walks", "table_pages", "pages_mapped", "pages_unmapped", "doorbells", "requests"],
    ),
];

/// What one boot gave.
#[derive(Debug, Default)]
pub struct Boot {
    /// Times, by name.
    pub figures: BTreeMap<String, f64>,
    /// What the whole boot cost the device's process.
    pub totals: BTreeMap<&'static str, f64>,
    /// What the guest did not measure, and why.
    pub left_out: Vec<String>,
    stages: Value,
}

impl Boot {
    pub fn add_to(&self, samples: &mut Samples) {
        for (name, value) in &self.figures {
            samples.entry(name.clone()).or_default().push(*value);
        }
    }
}

/// The guests of a chip.
#[derive(Debug, Clone, Copy)]
pub struct Guests<'a> {
    pub workshop: &'a Workshop,
    pub chip: Chip,
    pub kernel: KernelSeries,
    /// How a mediated one reaches instance memory, as configuration files have it; empty: as usual.
    pub bar3: &'static str,
}

impl Guests<'_> {
    fn guest(&self, programs: &'static [&'static str]) -> Guest {
        Guest {
            vram_mib: VRAM_MIB,
            memory_mib: Some(MEMORY_MIB),
            kernel_words: WORDS,
            bar3: self.bar3,
            ..Guest::new("vm1", self.chip, self.kernel, programs)
        }
    }

    fn label(&self, topology: Topology, what: &str) -> String {
        format!("suite-{}-{}-{what}", self.chip, topology.name()).to_lowercase()
    }

    /// Every time of such a guest, but that of its power-off.
    pub fn timed(&self, topology: Topology, round: u32) -> Result<Boot> {
        let programs = match (self.chip.has_native_form(), self.kernel) {
            (false, _) => TIMED_ALONE,
            (true, KernelSeries::V6_1) => TIMED_OLD,
            (true, _) => TIMED,
        };
        let label = self.label(topology, &round.to_string());
        let mut boot = boot(self.workshop, &label, topology, &self.guest(programs))?;
        boot.figures.remove(POWER_OFF);
        Ok(boot)
    }

    /// How long a guest with `kernel` takes to power off, in milliseconds.
    pub fn power_off(&self, topology: Topology, kernel: KernelSeries, round: u32) -> Result<f64> {
        let label = self.label(topology, &format!("off-{round}"));
        let guest = Guest { bar3: self.bar3, ..Guest::new("vm1", self.chip, kernel, SHORT) };
        let boot = boot(self.workshop, &label, topology, &guest)?;
        boot.figures.get(POWER_OFF).copied().context("the guest did not say that it ends")
    }

    /// What each operation does to the GPU's function.
    pub fn counted(&self, topology: Topology) -> Result<BTreeMap<String, Counts>> {
        let programs = if self.kernel == KernelSeries::V6_1 { COUNTED_OLD } else { COUNTED };
        let guest = Guest { trace: true, ..self.guest(programs) };
        let label = self.label(topology, "counts");
        let boot = boot(self.workshop, &label, topology, &guest)?;
        let trace = self.workshop.folder(&label).join("vm1.trace");
        let counts = counts::of_trace(self.workshop.gpuvmk(), &trace, self.chip, &boot.stages)?;
        // It has millions of entries.
        std::fs::remove_file(&trace).with_context(|| format!("Cannot remove {}", trace.display()))?;
        Ok(counts)
    }
}

/// A guest that loads nouveau and powers off, with its instance memory reached as `bar3` says.
pub fn instance_memory(
    workshop: &Workshop,
    chip: Chip,
    kernel: KernelSeries,
    bar3: &'static str,
    round: u32,
) -> Result<Boot> {
    let label = format!("instance-{chip}-{bar3}-{round}").to_lowercase();
    let guest = Guest { bar3, ..Guest::new("vm1", chip, kernel, &["probe"]) };
    boot(workshop, &label, Topology::Mediated, &guest)
}

/// A guest that loads no driver and powers off: what is left of a power-off when the GPU has no part in it.
pub fn without_driver(workshop: &Workshop, chip: Chip, kernel: KernelSeries, round: u32) -> Result<Boot> {
    let label = format!("instance-{chip}-no-driver-{round}").to_lowercase();
    let guest =
        Guest { kernel_words: &["gpuvmk.bare=1"], ..Guest::new("vm1", chip, kernel, &["sleep:secs=0"]) };
    boot(workshop, &label, Topology::Mediated, &guest)
}

/// A guest that boots and does what it is told, and what its programs found.
pub fn told(workshop: &Workshop, label: &str, guest: &Guest) -> Result<(Boot, Vec<ProgramResult>)> {
    eprintln!("{label}");
    let mut rig = workshop.rig(label, Topology::Mediated, std::slice::from_ref(guest))?;
    let heard = hear(workshop, label, &rig, guest)?;
    stop(&mut rig)?;
    let log = rig.device(0).context("The set-up has no device")?.log();
    Ok((Boot { totals: totals(&log), ..Boot::default() }, heard.results))
}

/// What was heard of a guest that did what it was told.
#[derive(Debug)]
pub struct Heard {
    pub results: Vec<ProgramResult>,
    /// How long it took until nouveau was loaded.
    loaded: Option<Duration>,
    /// How long it took from its word that it ends.
    off: Option<Duration>,
}

/// The same, with what the aggregator says of the guest after each of its programs.
pub fn watched(
    workshop: &Workshop,
    label: &str,
    guest: &Guest,
) -> Result<Vec<(ProgramResult, TenantStatus)>> {
    eprintln!("{label}");
    let mut rig = workshop.rig(label, Topology::Mediated, std::slice::from_ref(guest))?;
    let mut seen = Vec::new();
    let mut look = |report: &Report| {
        if let Report::Result(result) = report {
            seen.push((result.clone(), rig.tenants()));
        }
    };
    hear_each(workshop, label, &rig, guest, &mut look)?;
    stop(&mut rig)?;
    let only = |tenants: Vec<TenantStatus>| tenants.into_iter().next().context("nobody is served");
    seen.into_iter().map(|(result, tenants)| Ok((result, only(tenants?)?))).collect()
}

/// Boots `guest` with the GPUs of `rig`, and waits for its end.
pub fn hear(workshop: &Workshop, label: &str, rig: &Rig, guest: &Guest) -> Result<Heard> {
    hear_each(workshop, label, rig, guest, &mut |_| {})
}

/// The same, and hands each of its reports on as it comes.
fn hear_each(
    workshop: &Workshop,
    label: &str,
    rig: &Rig,
    guest: &Guest,
    each: &mut dyn FnMut(&Report),
) -> Result<Heard> {
    let start = Instant::now();
    let mut machine = workshop.start(label, guest.name, rig, guest, 0)?;
    let (mut loaded, mut ending) = (None, None);
    let outcome = loop {
        let mut listen = |said: &Said<'_>| {
            if let Said::Report(report) = said {
                each(report);
            }
            if let Said::Report(Report::Event { name, .. }) = said {
                match name.as_str() {
                    "loaded" => loaded = Some(start.elapsed()),
                    "end" => ending = Some(Instant::now()),
                    _ => {}
                }
            }
        };
        if let Some(outcome) = machine.pump(&mut listen)? {
            break outcome;
        }
        thread::sleep(LOOK);
    };
    let off = ending.map(|ending: Instant| ending.elapsed());
    let verdict = verdict::judge(&outcome, &expected(guest));
    ensure!(verdict.ok(), "the guest failed: {}", verdict.problems.join("; "));
    Ok(Heard { results: verdict.results, loaded, off })
}

/// Ends the GPUs' processes, which must have nothing to complain about.
pub fn stop(rig: &mut Rig) -> Result<()> {
    let problems = rig.stop()?;
    ensure!(problems.is_empty(), "the GPU's processes failed: {}", problems.join("; "));
    Ok(())
}

/// Whether a program's figure of this name is the time of an operation.
pub fn is_time(name: &str) -> bool {
    name.ends_with("_us_p50")
}

fn boot(workshop: &Workshop, label: &str, topology: Topology, guest: &Guest) -> Result<Boot> {
    eprintln!("{label}");
    let mut rig = workshop.rig(label, topology, std::slice::from_ref(guest))?;
    let heard = hear(workshop, label, &rig, guest)?;
    let waits = doorbell_waits(&rig)?;
    stop(&mut rig)?;

    let mut found =
        Boot { totals: totals(&rig.device(0).context("The set-up has no device")?.log()), ..Boot::default() };
    found.totals.extend(waits);
    for (name, time) in [(READY, heard.loaded), (POWER_OFF, heard.off)] {
        if let Some(time) = time {
            found.figures.insert(name.to_owned(), time.as_secs_f64() * 1e3);
        }
    }
    for (name, value) in heard.results.iter().flat_map(|result| &result.figures) {
        match (name.as_str(), value.as_f64()) {
            ("left_out", _) => found.left_out.extend(words(value)),
            ("stages", _) => found.stages = value.clone(),
            (name, Some(value)) if is_time(name) || name == PROBE => {
                found.figures.insert(name.to_owned(), value);
            }
            _ => {}
        }
    }
    Ok(found)
}

/// How long doorbells took from the device's process to the GPU's driver, as the aggregator counts it;
/// nothing where there is none.
fn doorbell_waits(rig: &Rig) -> Result<BTreeMap<&'static str, f64>> {
    let tenants = rig.tenants()?;
    let Some(tenant) = tenants.first() else { return Ok(BTreeMap::new()) };
    let waits = tenant.doorbell_ns;
    // CAST: far below 2^53.
    Ok([("doorbell_ns_p50", waits.p50 as f64), ("doorbell_ns_p99", waits.p99 as f64)].into())
}

fn words(list: &Value) -> Vec<String> {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// A native GPU has no counts of a mediator.
fn totals(log: &str) -> BTreeMap<&'static str, f64> {
    let counts = TOTALS.iter().flat_map(|(marker, names)| names.iter().map(move |name| (*marker, *name)));
    counts.filter_map(|(marker, name)| Some((name, traffic::counted(log, marker, &[name])?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_what_the_processes_say_at_their_end() {
        let log = "[x INFO ] Session ends: messages=9 reads=5 writes=4 write_batches=0\n\
                   [x INFO ] vGPU ends: flushes=3 walks=2 pages_mapped=7 doorbells=1\n";
        let found = totals(log);
        assert_eq!(found.get("messages"), Some(&9.0));
        assert_eq!(found.get("pages_mapped"), Some(&7.0));
        assert_eq!(found.get("requests"), None, "what is not there is not zero");
        let native = totals("[x INFO ] Session ends: messages=9 reads=5 writes=4 write_batches=0\n");
        assert_eq!(native.len(), 3);
    }
}
