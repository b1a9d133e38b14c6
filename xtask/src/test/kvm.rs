//! The KVM front end: micro guests on this host's KVM, and stock kernels under `gpuvmk vmm` in outer
//! machines.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::kernel::KernelSeries;
use serde_json::json;

use super::Arguments;
use super::inner::{self, DEBIAN, Nested, Task};
use super::nested;
use crate::cases::everything;

/// What is tested alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Micro guests on this host's KVM, then stock kernels under `gpuvmk vmm` in an outer machine.
    Kvm,
    /// The stock kernels alone.
    NestedKvm,
    /// A GPU given away through VFIO in an outer machine with an IOMMU.
    Nested,
}

/// Everything that there is for a chip, one that resets its machine while a second processor runs and is
/// stopped by a signal when it boots once more, one whose accesses are compared, two at once, and one with a
/// network and a folder.
fn tasks() -> [Task; 6] {
    let of = |name: &str, chip: Chip, programs: &[&'static str]| {
        Task::new(&format!("{chip}{name}").to_lowercase(), chip, &[&[DEBIAN], programs].concat())
    };
    let full = |chip: Chip| of("", chip, everything(chip, chip.usual_kernel()));
    let resets = Task { cpus: 2, reboots: 1, ..of("-reset", Chip::GF100, &["probe", "copy"]) };
    let compared = Task { compare: Some(PROBE), ..of("-trace", Chip::GF100, PROBE) };
    let two = Task { vms: 2, ..Task::new("gf100-two", Chip::GF100, &["probe", "copy"]) };
    let network = Task { network: true, ..Task::new("network", Chip::GF100, &["network:small=1000"]) };
    [full(Chip::GF100), full(Chip::GH100), resets, compared, two, network]
}

/// What guests do whose traces are compared.
const PROBE: &[&str] = &["probe"];

/// The kernels of inner guests.
pub fn inner_kernels() -> BTreeSet<KernelSeries> {
    tasks().into_iter().map(|task| task.kernel).collect()
}

/// Runs a part, and judges it.
pub fn run(part: Part, arguments: &Arguments) -> Result<bool> {
    if part == Part::Nested {
        return nested::run(arguments);
    }
    let micro = if part == Part::Kvm { Some(micro()?) } else { None };
    let stock = stock_kernels(arguments)?;
    let ok = micro != Some(false) && stock.iter().all(Nested::ok);
    if arguments.json {
        let machines: Vec<_> = stock.iter().map(Nested::to_json).collect();
        println!("{}", json!({ "ok": ok, "micro_guests": micro, "stock_kernels": machines }));
    }
    Ok(ok)
}

/// Micro guests on this host.
fn micro() -> Result<bool> {
    ensure!(
        Path::new("/dev/kvm").exists(),
        "This host has no /dev/kvm: micro guests need KVM (any kind of it will do, PVM too); nested-kvm alone does not"
    );
    let status = Command::new(env!("CARGO"))
        .args(["test", "--quiet", "--package", "gpuvmk"])
        .args(["--test", "kvm_micro", "--test", "kvm_windows", "--test", "kvm_queues"])
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("Cannot run cargo")?;
    Ok(status.success())
}

/// Stock kernels of both chips under `gpuvmk vmm`, each in an outer machine.
fn stock_kernels(arguments: &Arguments) -> Result<Vec<Nested>> {
    let gpuvmk = arguments.gpuvmk()?;
    let mut all = Vec::new();
    for task in tasks().into_iter().filter(|task| arguments.wants(&task.name)) {
        all.push(inner::run(&task, &gpuvmk, &arguments.logs)?);
    }
    ensure!(!all.is_empty(), "No such guest: there are {}", tasks().map(|task| task.name).join(", "));
    Ok(all)
}
