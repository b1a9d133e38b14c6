//! `gpuvmk sched-sim SCENARIO [--json] [--plot FILE]`

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::output;
use crate::config;
use crate::scheduler::sim::report::{Report, VmReport};
use crate::scheduler::sim::{self, plot};

/// VMs that have a line each in the table; of more, each kind has one.
const MAX_LINES: usize = 32;

/// Arguments of `gpuvmk sched-sim`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk sched-sim eight-busy.toml --plot shares.svg\n\n\
                        The keys of a scenario are in docs/scheduling.md. The exit status is 0 if everything is as \
                        the scenario expects and the accounting is right within 2 percent.")]
pub(super) struct Args {
    /// Scenario: VMs with loads on a modelled GPU.
    #[arg(value_name = "SCENARIO")]
    scenario: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Write a picture of shares over time, as SVG.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.plot
        && path.extension().is_none_or(|extension| extension != "svg")
    {
        bail!("{} is no name of an SVG file, which is all that --plot writes", path.display());
    }
    let scenario = config::load_scenario(&args.scenario)?;
    let report = sim::run(&scenario).with_context(|| args.scenario.display().to_string())?;
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::svg(&report)?).with_context(|| path.display().to_string())?;
    }
    if args.json {
        say!("{}", serde_json::to_string(&report)?)?;
    } else {
        output::print(&table(&report))?;
    }
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "{:24} {:>8} {:>9} {:>9} {:>11} {:>11} {:>11}\n",
        "VM", "share %", "done", "of", "wait p50 us", "wait p99 us", "longest us"
    );
    if report.vms.len() <= MAX_LINES {
        report.vms.iter().for_each(|vm| text.push_str(&line(&vm.name, &[vm])));
    } else {
        let mut kinds: BTreeMap<&str, Vec<&VmReport>> = BTreeMap::new();
        report.vms.iter().for_each(|vm| kinds.entry(&vm.kind).or_default().push(vm));
        kinds
            .iter()
            .for_each(|(kind, vms)| text.push_str(&line(&format!("{kind} (each of {})", vms.len()), vms)));
    }
    for engine in &report.engines {
        text.push_str(&format!(
            "{}: {:.2} % at work, {:.2} % not at work while work waited, {} changes of VM\n",
            engine.engine, engine.busy, engine.idle_with_work, engine.switches
        ));
    }
    let jain = report.jain.map_or("none".to_owned(), |jain| format!("{jain:.4}"));
    text.push_str(&format!(
        "{}, {} s: Jain index {jain}, accounting wrong by {:.2} % at the most, by {:.2} % in all\n",
        report.policy,
        report.seconds,
        100.0 * report.accounting_error,
        100.0 * report.accounting_error_total
    ));
    report.problems.iter().for_each(|problem| text.push_str(&format!("not as expected: {problem}\n")));
    text
}

/// VMs of one kind in one line: the mean of what they got, and the longest of their waits.
fn line(name: &str, vms: &[&VmReport]) -> String {
    let count = f64::from(u32::try_from(vms.len()).unwrap_or(u32::MAX)).max(1.0);
    let longest = |wait: fn(&VmReport) -> u64| vms.iter().map(|vm| wait(vm)).max().unwrap_or(0);
    format!(
        "{name:24} {:8.2} {:9} {:9} {:11} {:11} {:11}\n",
        vms.iter().map(|vm| vm.share).sum::<f64>() / count,
        vms.iter().map(|vm| vm.done).sum::<u64>(),
        vms.iter().map(|vm| vm.submissions).sum::<u64>(),
        longest(|vm| vm.wait_p50_us),
        longest(|vm| vm.wait_p99_us),
        longest(|vm| vm.wait_max_us)
    )
}
