//! `cargo xtask bench gh100`: what nouveau's start and its submissions cost on a GH100 whose GSP we play.
//!
//! *First register to ready* is read from the trace of a guest that does nothing after it has loaded nouveau:
//! from the first access to the last one before the first long silence. `bench` and `fence` say the rest.

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::rig::Topology;
use gpuvmk_lab::verdict;
use serde_json::{Map, Value, json};

use super::access::{self, Access, Entry, Place};
use super::submission::{self, Costs};
use super::{Arguments, median, round3, workshop};
use crate::cases::Guest;
use crate::workshop::{Workshop, expected};

/// The most that starting may take, first register to ready.
const MOST_PROBE_MS: f64 = 250.0;
/// The most reads that stop the guest's processor, for a submission and the wait for it.
const MOST_READS: f64 = 7.0;
/// No access for so long: the driver is ready.
const SILENCE_NS: u64 = 1_000_000_000;

pub(super) fn run(arguments: &Arguments) -> Result<bool> {
    let (workshop, kernel) = workshop(arguments, Chip::GH100)?;
    let found = Found::on(&workshop, kernel, arguments.rounds)?;
    let guest = Guest::new("vm1", Chip::GH100, kernel, &["probe", "fence", "exec", "fill", "bench"]);
    let figures = boot(&workshop, &guest)?;
    found.print();
    for (name, value) in &figures {
        println!("{name:28} {value}");
    }
    let problems = found.problems();
    problems.iter().for_each(|problem| println!("{problem}"));
    if arguments.json {
        let mut result = found.to_json();
        if let Some(result) = result.as_object_mut() {
            result.insert("ok".to_owned(), problems.is_empty().into());
            result.insert("accelerator".to_owned(), workshop.accelerator().name().into());
            result.insert("kernel".to_owned(), kernel.name().into());
            result.insert("guest".to_owned(), figures.into());
            result.insert("problems".to_owned(), problems.clone().into());
        }
        println!("{result}");
    }
    Ok(problems.is_empty())
}

/// What a driver's start and its submissions cost.
#[derive(Debug)]
pub(super) struct Found {
    times: Vec<f64>,
    counts: Counts,
    costs: Costs,
}

impl Found {
    pub(super) fn on(workshop: &Workshop, kernel: KernelSeries, rounds: u32) -> Result<Self> {
        let mut probes = Vec::new();
        for round in 0..rounds {
            probes.push(probe(workshop, kernel, round).with_context(|| format!("round {round}"))?);
        }
        let guest = Guest::new("vm1", Chip::GH100, kernel, &[]);
        Ok(Self {
            times: probes.iter().map(|probe| probe.milliseconds).collect(),
            counts: probes.last().map(|probe| probe.counts).unwrap_or_default(),
            costs: submission::costs(workshop, Topology::Mediated, &guest)?,
        })
    }

    pub(super) fn print(&self) {
        let Self { times, counts, costs } = self;
        println!("first register to ready: {times:.0?} ms");
        println!("accesses until ready: {counts:?}");
        println!("per submission and wait: {:.2} blocking reads, {:.2} writes", costs.reads, costs.writes);
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let probe_ms = median(&self.times);
        if probe_ms > MOST_PROBE_MS {
            problems
                .push(format!("first register to ready takes {probe_ms:.0} ms, {MOST_PROBE_MS} is allowed"));
        }
        if self.costs.reads > MOST_READS + 0.05 {
            problems.push(format!(
                "a submission and its wait take {:.2} blocking reads, {MOST_READS} is allowed",
                self.costs.reads
            ));
        }
        problems
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "probe_register_to_ready_ms": self.times,
            "probe_accesses": self.counts.to_json(),
            "reads_per_submission": round3(self.costs.reads),
            "writes_per_submission": round3(self.costs.writes),
        })
    }
}

/// One guest that works; its programs' figures that are times.
fn boot(workshop: &Workshop, guest: &Guest) -> Result<Map<String, Value>> {
    let label = "gh100-work";
    let mut rig = workshop.rig(label, Topology::Mediated, std::slice::from_ref(guest))?;
    let outcome = workshop.start(label, guest.name, &rig, guest, 0)?.wait(&mut |_| {})?;
    let verdict = verdict::judge(&outcome, &expected(guest));
    ensure!(verdict.ok(), "the guest failed: {}", verdict.problems.join("; "));
    rig.stop()?;
    let figures = verdict.results.into_iter().flat_map(|result| result.figures);
    Ok(figures.filter(|(name, _)| name.contains("_us_") || name.ends_with("_ms")).collect())
}

/// How nouveau's start went.
#[derive(Debug)]
struct Probe {
    milliseconds: f64,
    counts: Counts,
}

/// Accesses until ready, by what they touch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    register_reads: u32,
    register_writes: u32,
    window_accesses: u32,
    flushes: u32,
    bar1: u32,
    bar2: u32,
}

impl Counts {
    fn to_json(self) -> Value {
        json!({
            "register_reads": self.register_reads,
            "register_writes": self.register_writes,
            "vram_window": self.window_accesses,
            "tlb_flushes": self.flushes,
            "bar1": self.bar1,
            "bar2": self.bar2,
        })
    }

    fn add(&mut self, access: &Access) {
        let counter = match access.place {
            Place::Bar0 if VRAM_WINDOW.contains(&access.offset) => &mut self.window_accesses,
            Place::Bar0 if access.write && access.offset == TLB_FLUSH => {
                self.flushes += 1;
                &mut self.register_writes
            }
            Place::Bar0 if access.write => &mut self.register_writes,
            Place::Bar0 => &mut self.register_reads,
            Place::Bar1 => &mut self.bar1,
            Place::Bar2 => &mut self.bar2,
        };
        *counter += 1;
    }
}

/// The window onto VRAM in BAR0, and the register whose writes flush TLBs.
const VRAM_WINDOW: std::ops::Range<u64> = 0x70_0000..0x80_0000;
const TLB_FLUSH: u64 = 0xb8_30b0;

/// Boots a guest that does nothing, and reads the trace of its GPU.
fn probe(workshop: &Workshop, kernel: KernelSeries, round: u32) -> Result<Probe> {
    let guest = Guest { trace: true, ..Guest::new("vm1", Chip::GH100, kernel, &["sleep:secs=3"]) };
    let label = format!("gh100-probe-{round}");
    let mut rig = workshop.rig(&label, Topology::Mediated, std::slice::from_ref(&guest))?;
    let trace = rig.trace(0).context("The set-up records nothing")?;
    let outcome = workshop.start(&label, guest.name, &rig, &guest, 0)?.wait(&mut |_| {})?;
    let verdict = verdict::judge(&outcome, &expected(&guest));
    ensure!(verdict.ok(), "the guest failed: {}", verdict.problems.join("; "));
    rig.stop()?;
    let mut found = Vec::new();
    access::each(workshop.gpuvmk(), &trace, |entry| {
        if let Entry::Access(access) = entry {
            found.push(access);
        }
    })?;
    until_ready(found.into_iter()).context("The trace has no access to a BAR")
}

fn until_ready(accesses: impl Iterator<Item = Access>) -> Option<Probe> {
    let mut counts = Counts::default();
    let (mut first, mut last) = (None, 0);
    // A kernel that sizes BARs, and firmware, touch configuration space only, which is not looked at here.
    for access in accesses {
        if first.is_some() && access.nanos.saturating_sub(last) > SILENCE_NS {
            break;
        }
        first.get_or_insert(access.nanos);
        last = access.nanos;
        counts.add(&access);
    }
    Some(Probe { milliseconds: (last - first?) as f64 / 1e6, counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_the_last_access_before_the_silence() {
        let text = "     0.100000000 R4 CONFIG 0x00000000 0x233010de\n\
                    \u{20}    1.000000000 R4 BAR0   0x00000000 0x180000a1 NV_PMC_BOOT_0\n\
                    \u{20}    1.100000000 W4 BAR0   0x00b830b0 0x80000007\n\
                    \u{20}    1.200000000 W4 BAR0   0x00700010 0x00000001\n\
                    \u{20}    1.210000000 W8 BAR3   0x00000010 0x0000000000000001\n\
                    \u{20}    2.500000000 R4 BAR1   0x00000010 0x00000001\n";
        let probe = until_ready(text.lines().filter_map(Access::parse)).unwrap();
        assert!((probe.milliseconds - 210.0).abs() < 1e-6, "{probe:?}");
        let expected = Counts {
            register_reads: 1,
            register_writes: 1,
            window_accesses: 1,
            flushes: 1,
            bar1: 0,
            bar2: 1,
        };
        assert_eq!(probe.counts, expected);
    }

    #[test]
    fn trace_without_accesses_has_no_probe() {
        assert!(
            until_ready(["reset", "     0.1 lost 3 records"].into_iter().filter_map(Access::parse)).is_none()
        );
    }
}
