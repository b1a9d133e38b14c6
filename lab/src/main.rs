//! `gpuvmk-lab`: what needs the laboratory and is no test. `gpuvmk demo` starts it.

use std::env;
use std::io::{ErrorKind, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use gpuvmk_companion::DemoOptions;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::demo::{self, Options};
use gpuvmk_lab::interrupt;
use gpuvmk_lab::kernel::KernelSeries;
use serde_json::Value;

/// Stock guests on GPUs of gpuvmk.
#[derive(Debug, Parser)]
#[command(name = "gpuvmk-lab", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run stock guests on one shared software GPU, and check all that they see.
    Demo(Demo),
}

/// Arguments of `gpuvmk-lab demo`. Those of `gpuvmk demo` are the same, without `--gpuvmk`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "QEMU and the guest kernels come from Debian's packages; they are kept in the folder that \
                  GPUVMK_CACHE names (.cache in the source tree by default).\n\n\
                  Example:\n  gpuvmk-lab demo --gpuvmk target/release/gpuvmk --vms 3 --kernel 7.2 --json"
)]
struct Demo {
    /// The gpuvmk program [default: the one beside this program].
    #[arg(long, value_name = "PROGRAM")]
    gpuvmk: Option<PathBuf>,
    #[command(flatten)]
    options: DemoOptions<Chip, KernelSeries>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info"))
        .format_timestamp_millis()
        .format_target(false)
        .init();
    let Command::Demo(args) = cli.command;
    match demo(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Where standard error takes nothing, the exit status tells.
            let _ = writeln!(std::io::stderr(), "gpuvmk: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the demonstration; whether every guest passed.
fn demo(args: Demo) -> Result<bool> {
    interrupt::watch()?;
    let gpuvmk = match args.gpuvmk {
        Some(program) => program,
        None => env::current_exe().context("Cannot tell where this program is")?.with_file_name("gpuvmk"),
    };
    let DemoOptions { vms, driver, chip, kernel, vulkan, display, json, keep } = args.options;
    let result = demo::run(&Options { gpuvmk, vms, driver, chip, kernel, vulkan, display, keep })?;
    if json {
        match writeln!(std::io::stdout(), "{result}") {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            written => written.context("Cannot write to standard output")?,
        }
    }
    Ok(result.get("ok").and_then(Value::as_bool) == Some(true))
}
