//! `gpuvmk gpu init`: what a stock driver did to a card, from a trace, as a file for its aggregator.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde_json::json;

use super::{output, vbios};
use crate::gpu::init_script::{Recorder, Report, Script, Section};
use crate::gpu::vfio::sysfs::NVIDIA;
use crate::trace::Source;

/// The longest file that is read: what [`crate::gpu::init_script::MOST_STEPS`] steps may take.
const MOST_BYTES: u64 = 64 << 20;
/// Registers that are named.
const MOST_NAMED: usize = 20;

/// Arguments of `gpuvmk gpu init`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The trace of a guest that had the whole card, from its start until its driver had used every engine.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// The file to write; it must not exist.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The card's VBIOS, as `gpuvmk gpu vbios` keeps it: a card with another one is refused then.
    #[arg(long, value_name = "FILE")]
    vbios: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shown = args.trace.display();
    let file = File::open(&args.trace).with_context(|| format!("Cannot open {shown}"))?;
    let source = Source::open(file).with_context(|| format!("Cannot read {shown}"))?;
    let function = source.header().function.clone();
    let Some(function) = function.filter(|function| function.vendor == NVIDIA) else {
        bail!(
            "{shown} does not say which NVIDIA card it is of: record a VM that has a whole card (`card` in its file)"
        );
    };
    let mut recorder = Recorder::default();
    for entry in source {
        recorder.step(&entry.with_context(|| format!("In {shown}"))?);
    }
    let made = recorder.finish(function.device);
    let (mut script, report) = made.with_context(|| format!("{shown} gives no initialisation"))?;
    if let Some(path) = &args.vbios {
        let vbios = vbios::read(path)?;
        let other = || format!("{} does not belong to this trace", path.display());
        vbios.check_device(script.device).with_context(other)?;
        script.vbios = Some(vbios.crc());
    }
    let written = File::options()
        .write(true)
        .create_new(true)
        .open(&args.output)
        .and_then(|mut file| file.write_all(script.to_text().as_bytes()));
    written.with_context(|| format!("Cannot write {}", args.output.display()))?;
    let told = if args.json {
        say!("{}", to_json(&script, &report))
    } else {
        output::print(&describe(&script, &report))
    };
    told.context(output::CARRIED_OUT)?;
    Ok(ExitCode::SUCCESS)
}

/// Reads such a file.
pub(super) fn read(path: &Path) -> anyhow::Result<Arc<Script>> {
    let shown = path.display();
    let length = path.metadata().with_context(|| format!("Cannot read {shown}"))?.len();
    ensure!(length <= MOST_BYTES, "{shown} has {length} bytes; at most {MOST_BYTES} are read");
    let text = std::fs::read_to_string(path).with_context(|| format!("Cannot read {shown}"))?;
    Ok(Arc::new(Script::parse(&text).with_context(|| format!("In {shown}"))?))
}

fn to_json(script: &Script, report: &Report) -> serde_json::Value {
    let kept: serde_json::Map<_, _> =
        script.sections.iter().map(|(section, steps)| (section.to_string(), steps.len().into())).collect();
    let skipped: serde_json::Map<_, _> =
        report.skipped.iter().map(|(why, count)| (why.words().to_owned(), (*count).into())).collect();
    json!({
        "ok": true, "device": format!("10de:{:04x}", script.device), "boot_0": format!("{:#010x}", script.boot_0),
        "vbios": script.vbios.map(|crc| format!("{crc:#010x}")), "steps": script.steps(), "parts": kept, "left_out": skipped, "undeclared": report.undeclared.len(),
        "unknown": report.unknown.iter().map(|offset| format!("{offset:#08x}")).collect::<Vec<_>>(),
    })
}

fn describe(script: &Script, report: &Report) -> String {
    use std::fmt::Write as _;

    let mut text = String::from("part                             steps\n");
    // Writing to a string does not fail.
    for section in Section::ALL {
        let _ = match script.section(section) {
            Some(steps) => writeln!(text, "{:<30} {:>7}", section.name(), steps.len()),
            None => writeln!(text, "{:<30} {:>7}", section.name(), "none: the driver did not use it"),
        };
    }
    let _ = writeln!(text, "\nwrites that are left out");
    for (why, count) in &report.skipped {
        let _ = writeln!(text, "{:<30} {count:>7}", why.words());
    }
    let registers = report.undeclared.len();
    let _ = writeln!(text, "\n{registers} registers of it are not in the chip's tables (gpuvmk registers)");
    if !report.unknown.is_empty() {
        let named: Vec<_> = report.unknown.iter().take(MOST_NAMED).map(|at| format!("{at:#08x}")).collect();
        let _ = writeln!(text, "left out because no rule knows them: {}", named.join(", "));
    }
    text
}
