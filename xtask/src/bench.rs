//! `cargo xtask bench`: how fast guests are.
//!
//! `suite`: native and mediated in the same run, taking turns, and many VMs ([`suite`]). `gh100`: what a
//! GH100's driver costs ([`gh100`]). `sched`: how policies share ([`sched`]). `trace`: what traces cost
//! ([`trace`]). `cuda`: messages of CUDA's operations ([`cuda`]). `shader`: how fast shaders run, and what
//! their launches cost (`src/softgpu/sm/benches`, `src/softgpu/benches`). `shadow`: what following page
//! tables costs (`benches/flush.rs`).

mod access;
mod cuda;
mod gh100;
mod instance;
mod lavapipe;
mod own;
mod sched;
mod submission;
mod suite;
mod trace;
mod traps;
mod yardstick;

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use gpuvmk_lab::chip::{Chip, GuestChip as _};
use gpuvmk_lab::firmware::Firmware;
use gpuvmk_lab::kernel::KernelSeries;

use crate::workshop::Workshop;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Which benchmark: `suite` compares mediated with native and measures many VMs, `gh100` measures a
    /// GH100's driver, `cuda` counts what CUDA costs with NVIDIA's own driver, `instance` what mapped
    /// instance memory saves, `sched` judges scheduling policies, `shader` measures the software GPU's
    /// execution of shaders, `shadow` measures flushes, walks of page tables and the aggregator's check of
    /// them, `trace` recording and the tools for traces, `traps` what it costs to stop a guest on KVM, and
    /// what mapped windows and signalled doorbells save
    #[arg(value_enum, default_value_t = What::Suite)]
    what: What,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// The guest's kernel; `suite` takes it for a GF100 [default: 6.12; GH100: 7.2]
    #[arg(long)]
    kernel: Option<KernelSeries>,
    /// The chip, for `suite`, `instance` and `sched` [default: each in turn]
    #[arg(long)]
    chip: Option<Chip>,
    /// A policy that `sched` judges, instead of all and hangs; may be repeated
    #[arg(long, value_parser = sched::POLICIES)]
    policy: Vec<String>,
    /// How often each set-up is booted; `suite` boots guests with both GPUs as often
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// How many VMs `suite` lets share a GPU, one number after the other; 0 for none. What does not fit is
    /// left out
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16, 32, 64])]
    vms: Vec<usize>,
    /// How mediated guests of `suite` reach instance memory [default: as without `bar3` in a VM's file]
    #[arg(long)]
    bar3: Option<Bar3>,
    /// Write a page with the tables and plots of `suite`
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where logs go
    #[arg(long, value_name = "FOLDER", default_value = "target/xtask-bench")]
    logs: PathBuf,
    /// A gpuvmk to use instead of building one
    #[arg(long, value_name = "FILE")]
    gpuvmk: Option<PathBuf>,
}

/// A value of `bar3` in a VM's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Bar3 {
    Direct,
    Trapped,
}

impl Bar3 {
    const fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Trapped => "trapped",
        }
    }
}

/// A benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Mediated against native.
    Suite,
    /// 64 VMs on one aggregator.
    Density,
    /// A GH100's driver.
    Gh100,
    /// What CUDA costs, by NVIDIA's own driver.
    Cuda,
    /// Instance memory, mapped and trapped.
    Instance,
    /// Many guests under each scheduling policy.
    Sched,
    /// How fast shaders run on the software GPU.
    Shader,
    /// What following guests' page tables costs.
    Shadow,
    /// What recording costs, and how fast the tools are.
    Trace,
    /// What traps cost on KVM.
    Traps,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    ensure!(arguments.rounds > 0, "At least one round is needed");
    match arguments.what {
        What::Suite => suite::run(arguments),
        What::Density => own::run("density", arguments.json),
        What::Gh100 => gh100::run(arguments),
        What::Cuda => cuda::run(arguments),
        What::Instance => instance::run(arguments),
        What::Sched => sched::run(arguments),
        What::Shader => {
            let all = [("gpuvmk-sm", "kernels"), ("gpuvmk-sm", "vulkan"), ("gpuvmk-softgpu", "launches")];
            own::run_all(&all, arguments.json, lavapipe::compare)
        }
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

fn round3(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_an_even_count_lies_between_the_middle_two() {
        assert!((median(&[4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-9);
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
    }
}
