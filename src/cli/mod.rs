//! The command line: one file a subcommand. They wire parts together and hold no logic.

mod aggregator;
mod apply;
mod back_ends;
mod card;
mod check;
mod companion;
mod control;
mod controls;
mod demo;
mod device;
mod exposure;
mod generate;
mod gpu;
mod guest_firmware;
mod hold;
mod init;
mod jail;
mod ls;
mod metrics;
mod registers;
mod sched_sim;
mod screenshot;
mod serve;
mod set;
mod shader;
mod show;
mod softgpu;
mod status;
mod table;
mod top;
mod trace;
mod types;
mod vbios;
mod version;
mod vgpu;
mod view;
mod viewers;
mod vm_gpu;
mod vmm;
mod vmm_devices;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use gpuvmk_output as output;

use crate::chip::register_sets::{ALL, RegisterSet};
use crate::host::journal;
use crate::observe::log_limit::LimitedLog;

/// One physical NVIDIA GPU for many KVM/QEMU guests, each with its stock driver.
#[derive(Debug, Parser)]
#[command(name = "gpuvmk", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Own a physical GPU and share it among device backends.
    Aggregator(aggregator::Args),
    /// Make what runs be what a folder of configuration files says.
    Apply(apply::Args),
    /// Tell how what runs differs from what a folder of configuration files says.
    Assert(apply::AssertArgs),
    /// Check configuration files and name every mistake.
    Check(check::Args),
    /// Run stock guests on one shared software GPU, and check all that they see.
    Demo(demo::Args),
    /// Admit no more VMs to a GPU.
    Drain(hold::DrainArgs),
    /// Play one VM's GPU to its QEMU.
    Device(device::Args),
    /// Write man pages and shell completions.
    Generate(generate::Args),
    /// Write the firmware files that a guest with a GH100 asks for.
    GuestFirmware(guest_firmware::Args),
    /// Show which system calls each thread of the daemons may make.
    Jail(jail::Args),
    /// Look at the NVIDIA GPUs of this machine.
    Gpu(gpu::Args),
    /// List the VMs that share a GPU.
    Ls(ls::Args),
    /// Print or serve what monitoring sees.
    Metrics(metrics::Args),
    /// Hold a VM's work back.
    Pause(hold::PauseArgs),
    /// Take a VM's unfinished work off the GPU.
    Reset(hold::ResetArgs),
    /// Let a paused VM's work go on.
    Resume(hold::ResumeArgs),
    /// Print the register tables that traps, traces and documentation share.
    Registers(registers::Args),
    /// Print what the virtual GSP answers: functions, classes and controls (the page docs/controls.md)
    Controls(controls::Args),
    /// Run the scheduler on a modelled GPU in virtual time.
    SchedSim(sched_sim::Args),
    /// Write what a VM's monitor shows to a PNG file.
    Screenshot(screenshot::Args),
    /// Change a VM's part of the GPU, or the policy, while VMs work.
    Set(set::Args),
    /// Read shaders' machine code, and run kernels without a card.
    Shader(shader::Args),
    /// Show everything that is known of one VM.
    Show(show::Args),
    /// Serve the software GPU alone, as a PCI function for one QEMU.
    Softgpu(softgpu::Args),
    /// Show the tenants of a running aggregator.
    Status(status::Args),
    /// Watch who uses the GPU.
    Top(top::Args),
    /// Work with traces of register accesses.
    Trace(trace::Args),
    /// Show sizes of VMs, and how many of each could be had.
    Types(types::Args),
    /// Show versions.
    Version(version::Args),
    /// Show what a VM's monitor shows, by a viewer that this machine has.
    View(view::Args),
    /// Boot a VM on KVM with its GPU in the same process.
    Vmm(vmm::Args),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return output::usage(&error),
    };
    // Commands that only print end quietly when their reader is gone; daemons go on when a client hangs up.
    let serves = match &cli.command {
        Command::Aggregator(_) | Command::Device(_) | Command::Softgpu(_) | Command::Vmm(_) => true,
        Command::Metrics(args) => args.serves(),
        _ => false,
    };
    if !serves {
        sigpipe::reset();
    }
    // A replay has its own service and vGPU; messages about their start and end would only disturb.
    let level = if matches!(&cli.command, Command::Trace(_)) { "warn" } else { "info" };
    let mut logger = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(level));
    let to_journal = journal::is_there();
    if to_journal {
        logger.format(journal::write);
    } else {
        logger.format(output::log_line);
    }
    let logger = logger.build();
    log::set_max_level(logger.filter());
    // No logger was set before: this is the first step of the process.
    let _ = log::set_boxed_logger(Box::new(LimitedLog::new(logger)));
    let done = match cli.command {
        Command::Aggregator(args) => aggregator::run(&args),
        Command::Apply(args) => apply::apply(&args),
        Command::Assert(args) => apply::assert(&args),
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Device(args) => device::run(&args),
        Command::Drain(args) => hold::drain(&args),
        Command::Generate(args) => generate::run(&args, Cli::command()),
        Command::GuestFirmware(args) => guest_firmware::run(&args),
        Command::Gpu(args) => gpu::run(&args),
        Command::Jail(args) => jail::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Pause(args) => hold::pause(&args),
        Command::Reset(args) => hold::reset(&args),
        Command::Resume(args) => hold::resume(&args),
        Command::Registers(args) => registers::run(&args),
        Command::Controls(args) => controls::run(&args),
        Command::SchedSim(args) => sched_sim::run(&args),
        Command::Screenshot(args) => screenshot::run(&args),
        Command::Set(args) => set::run(&args),
        Command::Shader(args) => shader::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Softgpu(args) => softgpu::run(&args),
        Command::Status(args) => status::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Types(args) => types::run(&args),
        Command::Version(args) => version::run(&args),
        Command::View(args) => view::run(&args),
        Command::Vmm(args) => vmm::run(&args),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            // The whole chain, so that the innermost cause is never lost.
            let prefix = if to_journal { journal::prefix(log::Level::Error) } else { "" };
            output::complain(format_args!("{prefix}gpuvmk: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Understands a chip's name.
fn chip(text: &str) -> Result<&'static RegisterSet, String> {
    let known = || ALL.map(|set| set.chip).join(", ");
    RegisterSet::by_name(text).ok_or_else(|| format!("no chip is called `{text}`; there are {}", known()))
}
