//! `gpuvmk gpu`: NVIDIA GPUs of this machine, what could be done with each, which driver has one, and what a
//! native client gets from one.

use std::ffi::OsString;
use std::process::ExitCode;

use gpuvmk_companion::BenchOptions;

use super::card::{self, BindArgs, ProbeArgs, To};
use super::companion::Companion;
use super::vbios;
use super::{init, output};
use crate::gpu::rm::HostPaths;
use crate::gpu::rm::inventory::{Inventory, Verdict, inventory};
use crate::pci::PciAddress;

/// The program that measures: it has compute kernels, which the daemons' program has not.
const BENCH: Companion = Companion {
    name: "gpuvmk-gpu-bench",
    folder: "gpu_bench",
    task: "What a native client gets is measured",
    from_sources: "cargo run --release -- gpu bench",
};

/// Arguments of `gpuvmk gpu`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List NVIDIA GPUs, and what each backend could do with them.
    #[command(after_help = "Example:\n  gpuvmk gpu list --json")]
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Give a GPU to vfio-pci, so that this program can have it for itself.
    ///
    /// Refused for a GPU that somebody uses, that shows the console, that shares its IOMMU group with
    /// functions in use, or that the kernel cannot reset. Nothing survives the next boot.
    #[command(
        after_help = "Examples:\n  gpuvmk gpu bind 0000:65:00.0 --dry-run\n  sudo gpuvmk gpu bind 0000:65:00.0"
    )]
    Bind(BindArgs),
    /// Take a GPU from vfio-pci, and let the kernel find its driver.
    #[command(after_help = "Example:\n  sudo gpuvmk gpu unbind 0000:65:00.0")]
    Unbind(BindArgs),
    /// Open a GPU that vfio-pci has, reset it, and say what it is.
    #[command(
        after_help = "Examples:\n  gpuvmk gpu probe 0000:65:00.0 --json\n  gpuvmk gpu probe 0000:65:00.0 --engines"
    )]
    Probe(ProbeArgs),
    /// Make a file of what a stock driver did to a card, for its aggregator to do again.
    ///
    /// From a trace of a guest that had the whole card. What concerns that guest's memory, channels and
    /// interrupts is left out, and said.
    #[command(
        after_help = "Example:\n  gpuvmk gpu init /var/log/gpuvmk/vm1.trace -o /etc/gpuvmk/fermi.init\n\nThe trace comes from a VM with `card` and [trace] filter = [\"bar=0\"] in its file."
    )]
    Init(init::Args),
    /// Read a card's VBIOS from its ROM, check it, and keep it as a file.
    #[command(
        after_help = "Examples:\n  gpuvmk gpu vbios 0000:65:00.0 -o fermi.rom\n  gpuvmk gpu vbios --file fermi.rom --json"
    )]
    Vbios(vbios::Args),
    /// Measure what a native client of the NVIDIA driver gets: copies, latencies, mappings.
    ///
    /// Guests' figures are compared with these. Uses some 600 MiB of VRAM for a few seconds.
    #[command(
        after_help = "Examples:\n  gpuvmk gpu bench --json\n  sudo gpuvmk gpu bench --uid 65534 --rehearse\n  sudo gpuvmk gpu bench --uid 65534 --residue --json"
    )]
    Bench(BenchOptions<PciAddress>),
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List { json } => {
            let inventory = inventory(&HostPaths::of_host());
            if *json {
                say!("{}", serde_json::to_string_pretty(&inventory)?)?;
            } else {
                output::print(&describe(&inventory))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Bind(args) => card::bind(args, To::Vfio),
        Command::Unbind(args) => card::bind(args, To::ItsDriver),
        Command::Probe(args) => card::probe(args),
        Command::Init(args) => init::run(args),
        Command::Vbios(args) => vbios::run(args),
        Command::Bench(args) => BENCH.start(|_| args.words().into_iter().map(OsString::from).collect()),
    }
}

fn describe(inventory: &Inventory) -> String {
    use std::fmt::Write as _;

    let mut text = String::new();
    let branches: Vec<_> = inventory.supported_branches.iter().map(ToString::to_string).collect();
    let branches = branches.join(", ");
    let driver = match &inventory.nvidia_driver {
        Some(version) if inventory.branch_supported => format!("{version} (supported branch)"),
        Some(version) => format!("{version} (not supported; supported branches: {branches})"),
        None => format!("not loaded (supported branches: {branches})"),
    };
    // Writing to a string does not fail.
    let _ = writeln!(text, "NVIDIA driver: {driver}");
    if let Some(problem) = &inventory.problem {
        let _ = writeln!(text, "{problem}");
    }
    if inventory.gpus.is_empty() {
        let _ = writeln!(text, "NVIDIA GPUs:   none");
    }
    for gpu in &inventory.gpus {
        let name = gpu.name.as_deref().unwrap_or("NVIDIA GPU");
        let architecture = gpu.architecture.as_deref().unwrap_or("architecture unknown");
        let _ = writeln!(text, "{}  {name} [{}], {architecture}", gpu.address, gpu.pci_id);
        if let (Some(vram), Some(free)) = (gpu.vram, gpu.vram_free) {
            let _ = writeln!(text, "    vram  {} MiB, {} MiB free", vram >> 20, free >> 20);
        }
        for (backend, verdict) in [("rm", &gpu.backends.rm), ("vfio", &gpu.backends.vfio)] {
            // A problem of the driver was printed above.
            let same = inventory.problem.as_ref() == Some(&verdict.why);
            let said = if same { "no, see above".to_owned() } else { describe_verdict(verdict) };
            let _ = writeln!(text, "    {backend:<5} {said}");
        }
    }
    let _ = writeln!(text, "soft backend:  {}", describe_verdict(&inventory.soft));
    text
}

fn describe_verdict(verdict: &Verdict) -> String {
    if verdict.possible {
        format!("serves {} ({})", verdict.chips.join(", "), verdict.why)
    } else {
        format!("no: {}", verdict.why)
    }
}
