//! `cargo xtask bench trace`: what recording costs a guest that probes its GF100, and how fast the tools are
//! on ten million entries, which are the blocks of that recording again and again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::kernel::KernelSeries;
use gpuvmk_lab::process::Process;
use gpuvmk_lab::rig::Topology;
use gpuvmk_lab::verdict;
use serde_json::{Value, json};

use super::{Arguments, median, round3, workshop, yardstick};
use crate::cases::Guest;
use crate::workshop::{Workshop, expected};

/// How much longer a recorded probe may take.
const MOST_SLOWDOWN: f64 = 1.10;
const MOST_BYTES: f64 = 16.0;
/// For ten million entries: processor time by that of the yardstick. `dump` to nowhere takes 13, `stat` 23.
const MOST_DUMP: f64 = 40.0;
const MOST_STAT: f64 = 40.0;
const MOST_STAT_MIB: f64 = 200.0;
const MANY: u64 = 10_000_000;

/// What a recording has.
#[derive(Debug, Clone, Copy)]
struct Recording {
    entries: u64,
    lost: u64,
    bytes: u64,
}

pub(super) fn run(arguments: &Arguments) -> Result<bool> {
    let (workshop, kernel) = workshop(arguments, Chip::GF100)?;
    let (mut plain, mut recorded, mut last) = (Vec::new(), Vec::new(), None);
    for round in 0..arguments.rounds {
        plain.push(probe(&workshop, kernel, round, false)?.0);
        let (milliseconds, trace) = probe(&workshop, kernel, round, true)?;
        recorded.push(milliseconds);
        last = trace;
    }
    let trace = last.context("nothing was recorded")?;
    let recording = look_at(workshop.gpuvmk(), &trace)?;
    let slowdown = median(&recorded) / median(&plain);
    let bytes = recording.bytes as f64 / recording.entries.max(1) as f64;

    let many = multiply(&trace, recording.entries)?;
    let entries = look_at(workshop.gpuvmk(), &many)?.entries as f64;
    let on_many = |verb: &[&str]| {
        let mut command = Command::new(workshop.gpuvmk());
        command.arg("trace").args(verb).arg(&many);
        timed(command)
    };
    let (dump, stat) = (on_many(&["dump"])?, on_many(&["stat", "--json"])?);
    fs::remove_file(&many).with_context(|| format!("Cannot remove {}", many.display()))?;
    let yardstick = yardstick::processor_time()?.as_secs_f64();
    // Of ten million entries; the file may have some more.
    let of_many = |cost: &Cost| cost.processor.as_secs_f64() * MANY as f64 / entries;
    let [dump_s, stat_s] = [&dump, &stat].map(of_many);
    let [dump_by, stat_by] = [dump_s, stat_s].map(|seconds| seconds / yardstick);
    let demmio = demmio(workshop.gpuvmk(), &trace)?;

    let limits = [
        ("a recorded probe takes longer, times", slowdown, slowdown <= MOST_SLOWDOWN, MOST_SLOWDOWN),
        ("entries lost", recording.lost as f64, recording.lost == 0, 0.0),
        ("bytes for each access", bytes, bytes <= MOST_BYTES, MOST_BYTES),
        (
            "processor time to show ten million entries, by the yardstick",
            dump_by,
            dump_by <= MOST_DUMP,
            MOST_DUMP,
        ),
        (
            "processor time to count ten million entries, by the yardstick",
            stat_by,
            stat_by <= MOST_STAT,
            MOST_STAT,
        ),
        ("MiB to count ten million entries", stat.mib, stat.mib <= MOST_STAT_MIB, MOST_STAT_MIB),
    ];
    for (what, found, ok, limit) in limits {
        println!("{what}: {found:.3} (limit {limit}){}", if ok { "" } else { " MISSED" });
    }
    let mut problems: Vec<_> = limits
        .iter()
        .filter(|(.., ok, _)| !ok)
        .map(|(what, found, _, limit)| format!("{what}: {found:.3}, limit {limit}"))
        .collect();
    match &demmio {
        Some((ours, theirs)) if ours == theirs => println!("demmio has a line for each of {ours} accesses"),
        Some((ours, theirs)) => problems.push(format!("demmio shows {theirs} of {ours} accesses")),
        None => println!("demmio is not there: it was not asked"),
    }
    problems.iter().for_each(|problem| println!("{problem}"));
    if arguments.json {
        println!(
            "{}",
            json!({
                "ok": problems.is_empty(), "recorded": recording.entries, "lost": recording.lost,
                "slowdown": round3(slowdown), "bytes_per_access": round3(bytes),
                "dump_10m_s": round3(dump_s), "stat_10m_s": round3(stat_s), "stat_10m_mib": round3(stat.mib),
                "yardstick_s": round3(yardstick), "dump_by_yardstick": round3(dump_by), "stat_by_yardstick": round3(stat_by),
                "probe_ms": plain, "recorded_probe_ms": recorded, "demmio": demmio, "problems": problems,
            })
        );
    }
    Ok(problems.is_empty())
}

/// Boots a guest that probes its GPU; how long that took, and its recording.
fn probe(
    workshop: &Workshop,
    kernel: KernelSeries,
    round: u32,
    trace: bool,
) -> Result<(f64, Option<PathBuf>)> {
    let guest = Guest { trace, ..Guest::new("vm1", Chip::GF100, kernel, &["probe"]) };
    let label = format!("trace-{trace}-{round}");
    let mut rig = workshop.rig(&label, Topology::Mediated, std::slice::from_ref(&guest))?;
    let outcome = workshop.start(&label, guest.name, &rig, &guest, 0)?.wait(&mut |_| {})?;
    let verdict = verdict::judge(&outcome, &expected(&guest));
    ensure!(verdict.ok(), "the guest failed: {}", verdict.problems.join("; "));
    let recording = rig.trace(0);
    rig.stop()?;
    let figures = verdict.results.iter().find_map(|result| result.figures.get("probe_ms"));
    let milliseconds =
        figures.and_then(Value::as_f64).context("the guest did not say how long its probe took")?;
    Ok((milliseconds, recording))
}

fn look_at(gpuvmk: &Path, trace: &Path) -> Result<Recording> {
    let output = Command::new(gpuvmk)
        .args(["trace", "verify", "--json"])
        .arg(trace)
        .output()
        .with_context(|| format!("Cannot start {}", gpuvmk.display()))?;
    let found: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("'gpuvmk trace verify': {}", String::from_utf8_lossy(&output.stderr)))?;
    if let Some(damage) = found["damage"].as_str() {
        bail!("{}: {damage}", trace.display());
    }
    let number = |key: &str| found[key].as_u64().with_context(|| format!("no {key}"));
    let bytes = fs::metadata(trace)?.len();
    Ok(Recording { entries: number("entries")?, lost: number("lost")?, bytes })
}

/// A trace of the same entries, again and again: blocks can be read without each other.
fn multiply(trace: &Path, entries: u64) -> Result<PathBuf> {
    let mut bytes = Vec::new();
    File::open(trace)?.read_to_end(&mut bytes)?;
    let length = bytes.get(8..12).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
    let head = 12 + length.context("the trace has no head")? as usize;
    let many = trace.with_extension("many");
    let mut file = File::create(&many).with_context(|| format!("Cannot create {}", many.display()))?;
    file.write_all(bytes.get(..head).context("the trace has no head")?)?;
    for _ in 0..MANY.div_ceil(entries.max(1)) {
        file.write_all(bytes.get(head..).unwrap_or_default())?;
    }
    Ok(many)
}

/// What a command cost.
struct Cost {
    processor: Duration,
    /// The most memory that it had, as far as somebody looked.
    mib: f64,
}

fn timed(mut command: Command) -> Result<Cost> {
    command.stdout(Stdio::null());
    let shown = format!("{command:?}");
    let mut process = Process::start(command, "gpuvmk trace")?;
    let (mut most, mut processor) = (0.0_f64, Duration::ZERO);
    loop {
        // What the kernel notes is gone with the process: the last 10 ms may be missing.
        let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        most = most.max(kib.unwrap_or(0.0) / 1024.0);
        processor = processor.max(process.cpu_time());
        if let Some(status) = process.ended()? {
            ensure!(status.success(), "{shown} ended with {status}");
            return Ok(Cost { processor, mib: most });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Accesses that we export, and those that envytools' demmio shows of them; `None` where it is not installed.
fn demmio(gpuvmk: &Path, trace: &Path) -> Result<Option<(usize, usize)>> {
    if Command::new("demmio").arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        return Ok(None);
    }
    let text = trace.with_extension("mmiotrace");
    let status = Command::new(gpuvmk).args(["trace", "convert", "--output"]).args([&text, trace]).status()?;
    ensure!(status.success(), "'gpuvmk trace convert' ended with {status}");
    let access = |line: &&str| line.starts_with("R ") || line.starts_with("W ");
    let ours = fs::read_to_string(&text)?.lines().filter(access).count();
    // What it says of its database is on standard error.
    let output = Command::new("demmio").arg("-c").arg("-f").arg(&text).output()?;
    let theirs = String::from_utf8_lossy(&output.stdout).lines().filter(|line| line.starts_with('[')).count();
    fs::remove_file(&text).with_context(|| format!("Cannot remove {}", text.display()))?;
    Ok(Some((ours, theirs)))
}
