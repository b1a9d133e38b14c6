//! `gpuvmk pause VM`, `gpuvmk resume VM`, `gpuvmk reset VM`, `gpuvmk drain`: what an operator holds back and
//! takes off.

use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;

use super::control::Target;
use super::output::CARRIED_OUT;
use super::set::show_effective;

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

/// Arguments of `gpuvmk reset`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "For a VM whose work goes nowhere. Channels with unfinished work are taken off the GPU for good, as if each\n\
                        had hung (docs/scheduling.md): the guest's driver ends the programs that they belong to. Idle channels stay,\n\
                        and so does a pause. The guest itself goes on; a vGPU in fail-safe state needs its guest to be reset.\n\n\
                        Example:\n  gpuvmk reset vm1"
)]
pub(super) struct ResetArgs {
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

pub(super) fn reset(args: &ResetArgs) -> anyhow::Result<ExitCode> {
    let answer = args.vm.target.call("vm.reset", &json!({ "vm": args.vm.name }))?;
    let told = if args.vm.json {
        say!("{answer}")
    } else {
        say!("{}: {} channels with unfinished work were taken off", args.vm.name, answer["channels"])
    };
    told.context(CARRIED_OUT)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let method = if args.undo { "gpu.admit" } else { "gpu.drain" };
    show_effective(&args.target.call(method, &json!({}))?, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn of_vm(args: &OfVm, method: &str) -> anyhow::Result<ExitCode> {
    show_effective(&args.target.call(method, &json!({ "vm": args.name }))?, args.json)?;
    Ok(ExitCode::SUCCESS)
}
