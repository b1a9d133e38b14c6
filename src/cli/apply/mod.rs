//! `gpuvmk apply DIR`, `gpuvmk assert DIR`: bring the running state to the one of a folder of configuration
//! files, or compare both. systemd, or a command of the operator, starts and stops processes.

mod desired;
mod plan;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use gpuvmk_control_client::{Status, TenantStatus};
use serde_json::{Value, json};

use self::desired::DesiredState;
use self::plan::{Step, steps};
use super::output::CARRIED_OUT;

/// How long what was started or stopped may take to be there, or gone.
const PATIENCE: Duration = Duration::from_secs(30);

const LOOK: Duration = Duration::from_millis(50);

const START: &str = "systemctl start \"gpuvmk-$KIND@$NAME\"";
const STOP: &str = "systemctl stop \"gpuvmk-$KIND@$NAME\"";

/// Arguments of `gpuvmk apply`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The folder has a file for each GPU, with [control], and one for each VM. What is missing is started, VMs' parts and GPUs'\n\
                  policies are changed while they run, and VMs without a file are stopped once they have no unfinished work. VRAM and\n\
                  channels of a VM that runs cannot be changed: that is said, and makes the exit code 1, as does a VM of another user than the\n\
                  aggregator's whose name no [[vm]] section of the GPU's file vouches for: it may be anybody's. Done twice, the second time\n\
                  does nothing.\n\n\
                  Commands run by sh, with KIND (aggregator or device), NAME (the file's, without .toml; the VM's name to stop one)\n\
                  and FILE (to start).\n\n\
                  Examples:\n  gpuvmk apply /etc/gpuvmk\n  gpuvmk apply /etc/gpuvmk --dry-run\n  \
                  gpuvmk apply . --start 'setsid gpuvmk $KIND $FILE >$NAME.log 2>&1 & echo $! >$NAME.pid' --stop 'kill \"$(cat $NAME.pid)\"'"
)]
pub(super) struct Args {
    /// The folder.
    folder: PathBuf,
    /// Say what would be done, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Change only what can be changed while it runs; start and stop nothing. For `systemctl reload`.
    #[arg(long)]
    only_settings: bool,
    /// How a process is started.
    #[arg(long, value_name = "COMMAND", default_value = START)]
    start: String,
    /// How a process is stopped.
    #[arg(long, value_name = "COMMAND", default_value = STOP)]
    stop: String,
    /// How long a VM that is to go may go on with its work.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    drain: u64,
    /// Print what was done as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `gpuvmk assert`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The exit code is 0 where `gpuvmk apply` would do nothing, else 1.\n\nExample:\n  gpuvmk assert /etc/gpuvmk"
)]
pub(super) struct AssertArgs {
    /// The folder.
    folder: PathBuf,
    /// Print the differences as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn assert(args: &AssertArgs) -> anyhow::Result<ExitCode> {
    let mut found = Vec::new();
    for desired in desired::read(&args.folder)? {
        found.extend(steps(&desired, state(&desired.control)?.as_ref()));
    }
    for step in &found {
        say!("{step}")?;
    }
    if args.json {
        let steps: Vec<Value> = found.iter().map(Step::to_json).collect();
        say!("{}", json!({ "ok": found.is_empty(), "differences": steps }))?;
    }
    Ok(if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(super) fn apply(args: &Args) -> anyhow::Result<ExitCode> {
    // All files first: nothing is done where one is wrong.
    let desired = desired::read(&args.folder)?;
    let (mut done, mut left) = (Vec::new(), Vec::new());
    // Steps that cannot be shown are done all the same: half of a folder would be worse.
    let mut told = Ok(());
    for desired in &desired {
        for step in steps(desired, state(&desired.control)?.as_ref()) {
            if args.only_settings && step.starts_or_stops() {
                continue;
            }
            told = told.and(say!("{step}"));
            if step.is_left_to_others() {
                left.push(step);
                continue;
            }
            if !args.dry_run {
                carry_out(args, desired, &step).with_context(|| format!("Not done: {step}"))?;
            }
            done.push(step);
        }
    }
    if args.json {
        let list = |steps: &[Step]| steps.iter().map(Step::to_json).collect::<Vec<_>>();
        told =
            told.and(say!("{}", json!({ "ok": left.is_empty(), "steps": list(&done), "left": list(&left) })));
    }
    if args.dry_run {
        told?;
    } else {
        told.context(CARRIED_OUT)?;
    }
    Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An aggregator's status; `None` if none listens.
fn state(control: &Path) -> anyhow::Result<Option<Status>> {
    match gpuvmk_control_client::status(control) {
        Ok(status) => Ok(Some(status)),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn call(control: &Path, method: &str, params: &Value) -> anyhow::Result<Value> {
    Ok(gpuvmk_control_client::call(control, method, params)?)
}

fn carry_out(args: &Args, desired: &DesiredState, step: &Step) -> anyhow::Result<()> {
    let control = &desired.control;
    match step {
        Step::StartGpu { gpu, file } => {
            shell(&args.start, "aggregator", &stem(file), Some(file))?;
            wait(PATIENCE, &format!("the aggregator of {gpu} does not serve"), || {
                Ok(state(control)?.is_some())
            })
        }
        Step::SetGpu { settings, .. } => call(control, "gpu.set", &json!({ "settings": settings })).map(drop),
        Step::SetVm { vm, settings, .. } => {
            call(control, "vm.set", &json!({ "vm": vm, "settings": settings })).map(drop)
        }
        Step::StartVm { vm, file, .. } => {
            shell(&args.start, "device", &stem(file), Some(file))?;
            wait(PATIENCE, &format!("{vm} is not there"), || Ok(tenant(control, vm)?.is_some()))
        }
        Step::StopVm { vm, .. } => {
            // Its begun work may end; further submissions of its guest do not delay the stop.
            let drained = wait(Duration::from_secs(args.drain), "", || {
                Ok(tenant(control, vm)?.is_none_or(|tenant| !works(&tenant)))
            });
            if drained.is_err() {
                log::warn!("{vm} still works after {} s, and is stopped", args.drain);
            }
            shell(&args.stop, "device", vm, None)?;
            wait(PATIENCE, &format!("{vm} is still there"), || Ok(tenant(control, vm)?.is_none()))
        }
        Step::AllowVm { guest, .. } => {
            let wanted = serde_json::to_value(guest).context("Cannot write what a VM may have")?;
            call(control, "vm.allow", &wanted).map(drop)
        }
        Step::ForbidVm { vm, .. } => call(control, "vm.forbid", &json!({ "vm": vm })).map(drop),
        Step::Restart { .. } | Step::RestartGpu { .. } => bail!("cannot be done while it runs"),
        Step::Unvouched { .. } => bail!("nobody says whose name it is"),
    }
}

fn tenant(control: &Path, vm: &str) -> anyhow::Result<Option<TenantStatus>> {
    Ok(gpuvmk_control_client::status(control)?.tenant(vm).cloned())
}

/// Whether a VM has unfinished work.
fn works(tenant: &TenantStatus) -> bool {
    tenant.engines.iter().any(|engine| engine.queue_depth > 0)
}

fn stem(file: &Path) -> String {
    file.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn shell(command: &str, kind: &str, name: &str, file: Option<&Path>) -> anyhow::Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("KIND", kind).env("NAME", name);
    shell.env("FILE", file.unwrap_or(Path::new("")));
    let status = shell.status().context("Cannot start sh")?;
    ensure!(status.success(), "`{command}` ended with {status} (KIND={kind} NAME={name})");
    Ok(())
}

fn wait(
    limit: Duration,
    otherwise: &str,
    mut done: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let start = Instant::now();
    while !done()? {
        ensure!(start.elapsed() < limit, "{otherwise} after {} s", limit.as_secs());
        std::thread::sleep(LOOK);
    }
    Ok(())
}
