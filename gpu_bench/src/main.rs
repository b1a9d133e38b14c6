//! `gpuvmk-gpu-bench`: what a native client of the NVIDIA driver gets on this machine.
//!
//! The figures that guests' figures are compared with, measured on the same code, the same engines and in the
//! same run; a rehearsal of the driver itself; and what contexts find of each other's. `gpuvmk gpu bench`
//! starts it: the daemons' program has none of the compute kernels that are measured here.

mod bench;
mod channel_checks;
mod compute;
mod figures;
mod papers;
mod rehearsal;
mod report;
mod residue;
mod step_error;
mod tenant;

use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

use anyhow::{Context, Result};
use bench::BenchConfig;
use clap::{Parser, Subcommand};
use gpuvmk_companion::BenchOptions;
use gpuvmk_gpu::rm::HostPaths;
use gpuvmk_pci::PciAddress;

/// Measure what a native client of the NVIDIA driver gets: copies, latencies, mappings.
///
/// Guests' figures are compared with these. Uses some 600 MiB of VRAM for a few seconds.
#[derive(Debug, Parser)]
#[command(
    name = "gpuvmk-gpu-bench",
    version,
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  gpuvmk-gpu-bench --json\n  sudo gpuvmk-gpu-bench --uid 65534 --rehearse"
)]
struct Cli {
    #[command(flatten)]
    options: BenchOptions<PciAddress>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the programs of the papers' table: machine code that guests launch through CUDA.
    Papers(papers::Options),
    /// The second process of a rehearsal: its standard input is a window.
    #[command(hide = true)]
    WindowChild {
        /// Bytes of the window.
        #[arg(long)]
        size: u64,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info"))
        .format_timestamp_millis()
        .format_target(false)
        .init();
    let done = match cli.command {
        Some(Command::WindowChild { size }) => window_child(size),
        Some(Command::Papers(options)) => run_papers(&options),
        None => measure(&cli.options),
    };
    done.unwrap_or_else(|error| {
        // Where standard error takes nothing, the exit status tells.
        let _ = writeln!(io::stderr(), "gpuvmk: {error:#}");
        ExitCode::FAILURE
    })
}

fn measure(options: &BenchOptions<PciAddress>) -> Result<ExitCode> {
    let BenchOptions { gpu, uid, rehearse, residue, json } = *options;
    let gpu = gpu.map(|address| address.to_string());
    let report = bench::run(&BenchConfig { gpu, uid, rehearse, residue, paths: HostPaths::of_host() })?;
    let text = if json { serde_json::to_string_pretty(&report)? + "\n" } else { report::describe(&report) };
    say(&text)?;
    Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_papers(options: &papers::Options) -> Result<ExitCode> {
    let (text, ok) = papers::run(options)?;
    say(&text)?;
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn window_child(size: u64) -> Result<ExitCode> {
    let text = rehearsal::play_window_child(size).map_err(anyhow::Error::msg)?;
    say(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints. An output that nobody reads is no error.
fn say(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("Cannot write to standard output"),
    }
}
