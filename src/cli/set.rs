//! `gpuvmk set NAME KEY=VALUE ...`: changes a VM's part of the GPU, its monitor, or the GPU's policy, while
//! VMs work.

use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::control::Target;
use super::output::CARRIED_OUT;

/// The name that means the GPU itself.
const GPU: &str = "gpu";

/// Arguments of `gpuvmk set`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Settings of a VM: weight=1..10000, cap=PERCENT|none, fixed=PERCENT|none, period=US, budget=US,\n\
                  display=WIDTHxHEIGHT|off (another monitor, or none, for a VM whose file says `display`).\n\
                  Settings of the GPU: policy=NAME, slice=US|none, period=US|none.\n\n\
                  All settings of one command are made, or none. They hold until the VM leaves or the aggregator\n\
                  ends; files are not changed. docs/scheduling.md tells what each policy makes of them.\n\n\
                  Examples:\n  gpuvmk set vm1 weight=200\n  gpuvmk set vm1 display=1920x1080\n  gpuvmk set vm1 period=20000 budget=5000\n  \
                  gpuvmk set gpu policy=best-effort slice=4000 --gpu /etc/gpuvmk/gpu0.toml"
)]
pub(super) struct Args {
    /// Name of the VM, or `gpu`.
    #[arg(value_name = "NAME")]
    name: String,
    /// What is to change.
    #[arg(value_name = "KEY=VALUE", required = true)]
    settings: Vec<String>,
    #[command(flatten)]
    target: Target,
    /// Print what holds now as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (method, params) = if args.name == GPU {
        ("gpu.set", json!({ "settings": args.settings }))
    } else {
        ("vm.set", json!({ "vm": args.name, "settings": args.settings }))
    };
    show_effective(&args.target.call(method, &params)?, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the settings in force, after an order.
pub(super) fn show_effective(answer: &Value, json: bool) -> anyhow::Result<()> {
    let told = if json { say!("{answer}") } else { say!("{}", summary(answer)) };
    told.context(CARRIED_OUT)
}

/// The settings in force, in a line.
fn summary(answer: &Value) -> String {
    let show = |value: &Value| if value.is_null() { "none".to_owned() } else { value.to_string() };
    match answer["vm"].as_str() {
        Some(vm) => {
            let share = &answer["share"];
            format!(
                "{vm}: weight={} cap={} fixed={} period={} budget={}{}",
                share["weight"],
                show(&share["cap"]),
                show(&share["fixed"]),
                share["period_us"],
                share["budget_us"],
                if answer["paused"] == true { " paused" } else { "" }
            )
        }
        None => format!(
            "gpu: policy={} slice={} period={}{}",
            answer["policy"].as_str().unwrap_or("?"),
            show(&answer["slice_us"]),
            show(&answer["period_us"]),
            if answer["draining"] == true { " draining" } else { "" }
        ),
    }
}
