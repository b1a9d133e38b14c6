//! `cargo xtask bench suite`: everything that a driver does, native and mediated in turns, and many VMs on
//! one GPU, for each chip, in one run. What is short is measured in guests that have both GPUs.
//!
//! A GH100 has no native form: its figures stand alone. What each number means, and what it may be, is in
//! docs/performance.md.

pub(super) mod boots;
mod counts;
mod host;
mod limits;
mod page;
mod paired;
mod pictures;
mod rounds;
mod scaling;
pub(super) mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Error, Result};
use gpuvmk_lab::chip::{Chip, GuestChip as _, USUAL};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::interrupt;
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::rig::Topology;
use serde_json::{Value, json};

use self::boots::Guests;
use self::host::Host;
use self::limits::Judged;
use self::rounds::Rounds;
use self::scaling::Scaling;
use self::table::Table;
use super::own::{self, Measured};
use super::{Arguments, Bar3, gh100, round3};
use crate::workshop::Workshop;

/// The kernel whose power-off is measured: the one that reads instance memory then.
const POWER_OFF_KERNEL: KernelSeries = KernelSeries::V7_2;

/// The benchmark of what a flush does, and that of many VMs whose guests cost nothing.
const FLUSH: &str = "flush";
const DENSITY: &str = "density";

/// What was found on a chip.
#[derive(Debug)]
struct Found {
    chip: Chip,
    kernel: KernelSeries,
    table: Table,
    /// What a boot cost the device's process, by set-up: the last of each.
    totals: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    driver: Option<gh100::Found>,
    scaling: Scaling,
    left_out: Vec<String>,
    /// What should have been measured, and why it was not.
    failed: Vec<String>,
}

/// A whole run.
#[derive(Debug)]
struct Run {
    host: Host,
    rounds: u32,
    /// How mediated guests reached instance memory.
    bar3: &'static str,
    chips: Vec<Found>,
    /// What following page tables costs, without a guest.
    flush: Measured,
    /// Many VMs on one aggregator, with guests that cost nothing.
    density: Measured,
}

pub(super) fn run(arguments: &Arguments) -> Result<bool> {
    let chips = arguments.chip.map_or_else(|| USUAL.to_vec(), |chip| vec![chip]);
    let kernel_of =
        |chip: Chip| arguments.kernel.filter(|kernel| chip.driven_by(*kernel)).unwrap_or(chip.usual_kernel());
    // Many VMs have the chip's usual kernel.
    let kernels: BTreeSet<KernelSeries> =
        chips.iter().flat_map(|chip| [kernel_of(*chip), chip.usual_kernel(), POWER_OFF_KERNEL]).collect();
    let kinds = kernels.into_iter().map(|kernel| (kernel, Firmware::for_kernel(kernel))).collect();
    let workshop = Workshop::open(&kinds, &arguments.logs, arguments.gpuvmk.as_deref())?;
    eprintln!("guests run on {}", workshop.accelerator().name());

    let host = Host::of_this_run(&workshop)?;
    let found = |chip| Found::on(&workshop, chip, kernel_of(chip), arguments);
    let chips = chips.into_iter().map(found).collect::<Result<Vec<_>>>()?;
    let bar3 = arguments.bar3.map_or("default", Bar3::word);
    let (flush, density) = (own::measure(FLUSH)?, own::measure(DENSITY)?);
    let run = Run { host, rounds: arguments.rounds, bar3, chips, flush, density };
    run.print();
    if let Some(path) = &arguments.html {
        let page = page::page(&run).context("Cannot write the page")?;
        fs::write(path, page).with_context(|| format!("Cannot write {}", path.display()))?;
    }
    let problems = run.problems();
    problems.iter().for_each(|problem| println!("{problem}"));
    if arguments.json {
        println!("{}", run.to_json());
    }
    Ok(problems.is_empty())
}

/// Notes what could not be measured; an error only if the user wants to end.
fn fail(failed: &mut Vec<String>, what: &str, error: &Error) -> Result<()> {
    interrupt::check()?;
    eprintln!("{what}: {error:#}");
    failed.push(format!("{what}: {error:#}"));
    Ok(())
}

fn topologies(chip: Chip) -> &'static [Topology] {
    if chip.has_native_form() { &[Topology::Native, Topology::Mediated] } else { &[Topology::Mediated] }
}

impl Found {
    fn on(workshop: &Workshop, chip: Chip, kernel: KernelSeries, arguments: &Arguments) -> Result<Self> {
        let guests = Guests { workshop, chip, kernel, bar3: arguments.bar3.map_or("", Bar3::word) };
        let mut failed = Vec::new();
        let mut rounds = Rounds::run(&guests, arguments.rounds, &mut failed)?;
        let mut counts = BTreeMap::new();
        for &topology in topologies(chip) {
            match guests.counted(topology) {
                Ok(found) => drop(counts.insert(topology, found)),
                Err(error) => fail(&mut failed, &format!("{}, counts", topology.name()), &error)?,
            }
        }
        let mut driver = None;
        if chip == Chip::GH100 {
            match gh100::Found::on(workshop, kernel, arguments.rounds) {
                Ok(found) => driver = Some(found),
                Err(error) => fail(&mut failed, "its driver", &error)?,
            }
        }
        let scaling = scaling::run(workshop, chip, &arguments.vms)
            .or_else(|error| fail(&mut failed, "many VMs", &error).map(|()| Scaling::default()))?;
        rounds.left_out.extend(scaling.left_out.iter().cloned());
        let mut take = |topology| rounds.samples.remove(&topology).unwrap_or_default();
        let mut take_counts = |topology| counts.remove(&topology).unwrap_or_default();
        let table = Table::new(
            &take(Topology::Native),
            &take(Topology::Mediated),
            &take_counts(Topology::Native),
            &take_counts(Topology::Mediated),
            &rounds.paired,
        );
        let (totals, left_out) = (rounds.totals, rounds.left_out.into_iter().collect());
        Ok(Self { chip, kernel, table, totals, driver, scaling, left_out, failed })
    }

    /// Every figure that has a limit.
    fn judged(&self) -> Vec<Judged> {
        self.table.ratios().iter().flat_map(limits::judge).collect()
    }

    fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.judged().iter().filter_map(Judged::problem).collect();
        if self.table.ratios().is_none() && topologies(self.chip).len() > 1 {
            problems.push("figures that are to be compared were not measured in both set-ups".to_owned());
        }
        problems.extend(self.failed.iter().cloned());
        problems.extend(self.driver.iter().flat_map(gh100::Found::problems));
        problems.extend(self.scaling.problems.iter().cloned());
        problems.into_iter().map(|problem| format!("{}: {problem}", self.chip)).collect()
    }

    fn to_json(&self) -> Value {
        json!({
            "kernel": self.kernel.name(),
            "medians": self.table.to_json(),
            "totals_of_a_boot": self.totals,
            "driver": self.driver.as_ref().map(gh100::Found::to_json),
            "scaling": self.scaling.to_json(),
            "left_out": self.left_out,
        })
    }
}

impl Run {
    fn problems(&self) -> Vec<String> {
        let flush =
            (!self.flush.ok).then(|| "following page tables costs more than it may: see `flush`".to_owned());
        let density =
            (!self.density.ok).then(|| "many VMs cost more than they may: see `density`".to_owned());
        self.chips.iter().flat_map(Found::problems).chain(flush).chain(density).collect()
    }

    /// The chip whose comparison stands for the run: the one that has a native form, if it was measured.
    fn first(&self) -> Option<&Found> {
        self.chips.first()
    }

    fn print(&self) {
        for (name, fact) in self.host.facts() {
            println!("{name:12} {fact}");
        }
        for found in &self.chips {
            println!("\n{}, Linux {}, {} rounds", found.chip, found.kernel, self.rounds);
            found.table.print();
            for (topology, totals) in &found.totals {
                let counts: Vec<String> =
                    totals.iter().map(|(name, count)| format!("{name} {count}")).collect();
                println!("a whole boot, {topology}: {}", counts.join(", "));
            }
            if let Some(driver) = &found.driver {
                driver.print();
            }
            if let Some(ratios) = found.table.ratios() {
                println!("mediated over native: {ratios:?}");
            }
            found.scaling.print(found.chip);
            found.left_out.iter().for_each(|what| println!("{}: left out: {what}", found.chip));
        }
        println!("\n{}", self.flush.text);
        println!("\n{}", self.density.text);
    }

    fn to_json(&self) -> Value {
        let problems = self.problems();
        let chips: BTreeMap<String, Value> =
            self.chips.iter().map(|found| (found.chip.to_string(), found.to_json())).collect();
        let memory = self.density.figures["memory_mib_per_vgpu"].as_f64();
        let memory =
            self.chips.iter().filter_map(|found| found.scaling.memory_mib()).chain(memory).reduce(f64::max);
        json!({
            "ok": problems.is_empty(),
            "accelerator": self.host.accelerator,
            "machine": self.host.to_json(),
            "rounds": self.rounds,
            "bar3": self.bar3,
            "mediated_over_native": self.first().and_then(|found| found.table.ratios()).map(table::Ratios::to_json),
            "flush": self.flush.figures["flush"],
            "scaling": self.density.figures["scaling"],
            "density": self.density.figures,
            "memory_mib_per_vgpu": memory.map(round3),
            "chips": chips,
            "problems": problems,
        })
    }
}
