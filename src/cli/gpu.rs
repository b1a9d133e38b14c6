//! `gpuvmk gpu`: NVIDIA GPUs of this machine, what could be done with each, which driver has one, and what a
//! native client gets from one.

use std::process::ExitCode;

use super::card::{self, BindArgs, ProbeArgs, To};
use super::places::places;
use super::vbios;
use super::{init, output};
use crate::gpu::rm::bench::{self, BenchConfig, Report};
use crate::gpu::rm::inventory::{Inventory, Verdict, inventory};
use crate::pci::PciAddress;

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
    Bench {
        /// PCI address of the GPU; without it, the only one.
        #[arg(long, value_name = "ADDRESS")]
        gpu: Option<PciAddress>,
        /// User to become before the GPU is opened; root must name one.
        #[arg(long)]
        uid: Option<u32>,
        /// Also rehearse the driver: a tenant's life, with every effect checked.
        #[arg(long)]
        rehearse: bool,
        /// Also look for what contexts of different clients find of each other's: shared memory, context
        /// buffers (reads only).
        #[arg(long)]
        residue: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// The second process of a rehearsal: its standard input is a window.
    #[command(hide = true)]
    WindowChild {
        #[arg(long)]
        size: u64,
    },
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::List { json } => {
            let inventory = inventory(&places());
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
        Command::Bench { gpu, uid, rehearse, residue, json } => {
            let gpu = gpu.map(|address| address.to_string());
            let config =
                BenchConfig { gpu, uid: *uid, rehearse: *rehearse, residue: *residue, places: places() };
            let report = bench::run(&config)?;
            if *json {
                say!("{}", serde_json::to_string_pretty(&report)?)?;
            } else {
                output::print(&describe_report(&report))?;
            }
            Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Command::WindowChild { size } => match bench::play_window_child(*size) {
            Ok(text) => {
                say!("{text}")?;
                Ok(ExitCode::SUCCESS)
            }
            Err(why) => anyhow::bail!("{why}"),
        },
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
            // A problem of the driver was told above.
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

fn describe_report(report: &Report) -> String {
    use std::fmt::Write as _;

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
