//! `gpuvmk pause VM`, `gpuvmk resume VM`, `gpuvmk drain`: what an operator holds back.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::control::Target;
use super::set::summary;

/// Arguments of `gpuvmk pause`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Its channels leave the engines as the hardware allows (docs/scheduling.md); what its guest submits waits and\n\
                        is not lost. A guest that waits too long for its work takes that for a hang of its GPU: nouveau waits 15 s.\n\n\
                        Example:\n  gpuvmk pause vm1"
)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    vm: OfVm,
}

/// Arguments of `gpuvmk resume`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk resume vm1")]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    vm: OfVm,
}

#[derive(Debug, clap::Args)]
struct OfVm {
    /// Name of the VM.
    #[arg(value_name = "VM")]
    name: String,
    #[command(flatten)]
    target: Target,
    /// Print what holds now as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `gpuvmk drain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuvmk drain --gpu /etc/gpuvmk/gpu0.toml\n  gpuvmk drain --undo")]
pub(super) struct DrainArgs {
    /// Admit VMs again.
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    target: Target,
    /// Print what holds now as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn pause(args: &PauseArgs) -> anyhow::Result<ExitCode> {
    of_vm(&args.vm, "vm.pause")
}

pub(super) fn resume(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    of_vm(&args.vm, "vm.resume")
}

pub(super) fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let method = if args.undo { "gpu.admit" } else { "gpu.drain" };
    print(&args.target.call(method, &json!({}))?, args.json);
    Ok(ExitCode::SUCCESS)
}

fn of_vm(args: &OfVm, method: &str) -> anyhow::Result<ExitCode> {
    print(&args.target.call(method, &json!({ "vm": args.name }))?, args.json);
    Ok(ExitCode::SUCCESS)
}

fn print(answer: &Value, json: bool) {
    if json { println!("{answer}") } else { println!("{}", summary(answer)) }
}
