//! `gpuvmk trace record` beside a guest at work, whether what it wrote is what a guest at work does, and what
//! a report of it looks like.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::process::Process;
use serde_json::Value;

use crate::report_page;

/// What the device back end of a guest with work must have told of.
const OF_A_VM: &[&str] = &["read", "write", "doorbell", "flush", "shadow", "channel", "interrupt"];
/// What the aggregator must have told of.
const OF_A_GPU: &[&str] = &["switch", "depth"];

/// A recording under way.
#[derive(Debug)]
pub struct Recording {
    gpuvmk: PathBuf,
    file: PathBuf,
    process: Process,
    kinds: &'static [&'static str],
}

impl Recording {
    /// Records at the socket of a VM's back end to `file`.
    pub fn of_vm(gpuvmk: &Path, socket: &Path, file: &Path) -> Result<Self> {
        Self::start(gpuvmk, socket, file, OF_A_VM)
    }

    /// The same at the aggregator's.
    pub fn of_gpu(gpuvmk: &Path, socket: &Path, file: &Path) -> Result<Self> {
        Self::start(gpuvmk, socket, file, OF_A_GPU)
    }

    fn start(gpuvmk: &Path, socket: &Path, file: &Path, kinds: &'static [&'static str]) -> Result<Self> {
        let log = file.with_extension("record.log");
        let log = File::create(&log).with_context(|| format!("Cannot create {}", log.display()))?;
        let mut command = Command::new(gpuvmk);
        command.args(["trace", "record", "--socket"]).arg(socket).arg("-o").arg(file);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = Process::start(command, "gpuvmk trace record")?;
        Ok(Self { gpuvmk: gpuvmk.to_owned(), file: file.to_owned(), process, kinds })
    }

    /// Ends it. Returns what is wrong with the trace.
    pub fn finish(mut self) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        let (status, _) = self.process.stop()?;
        if !status.success() {
            problems.push(format!("the recording ended with {status}"));
        }
        self.verb(&["verify"])?;
        let page = self.file.with_extension("html");
        self.verb(&["report", "--output", &page.to_string_lossy()])?;
        if self.kinds == OF_A_VM {
            problems.extend(report_page::check(&Cache::open()?, &page)?);
        }
        let lines = self.file.with_extension("jsonl");
        let to = lines.to_string_lossy().into_owned();
        self.verb(&["convert", "--output", &to])?;
        let text = fs::read_to_string(&lines).with_context(|| format!("Cannot read {to}"))?;
        fs::remove_file(&lines).with_context(|| format!("Cannot remove {to}"))?;
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for line in text.lines() {
            let entry: Value = serde_json::from_str(line).with_context(|| format!("Not JSON: {line}"))?;
            *kinds.entry(entry["kind"].as_str().unwrap_or("?").to_owned()).or_default() += 1;
        }
        let missing = self.kinds.iter().filter(|kind| !kinds.contains_key(**kind));
        problems.extend(missing.map(|kind| format!("the trace has no {kind}; it has {kinds:?}")));
        Ok(problems)
    }

    fn verb(&self, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(&self.gpuvmk);
        command.arg("trace").args(arguments).arg(&self.file).stdin(Stdio::null());
        let output = command.output().context("Cannot start gpuvmk trace")?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        ensure!(output.status.success(), "gpuvmk trace {} failed: {said}", arguments.join(" "));
        Ok(())
    }
}

/// Makes one file of several traces for Perfetto, and returns what is missing in it.
pub fn together(gpuvmk: &Path, traces: &[PathBuf]) -> Result<Vec<String>> {
    let file = traces.first().context("no traces")?.with_file_name("together.json");
    let mut command = Command::new(gpuvmk);
    command.args(["trace", "convert", "--output"]).arg(&file).args(traces).stdin(Stdio::null());
    let output = command.output().context("Cannot start gpuvmk trace")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(output.status.success(), "gpuvmk trace convert failed: {said}");
    let text = fs::read(&file).with_context(|| format!("Cannot read {}", file.display()))?;
    let all: Value = serde_json::from_slice(&text).context("Chrome's file is not JSON")?;
    fs::remove_file(&file).with_context(|| format!("Cannot remove {}", file.display()))?;
    let events = all["traceEvents"].as_array().context("Chrome's file has no events")?;
    let have = |is: fn(&Value) -> bool| events.iter().any(is);
    let wanted = [
        ("accesses", have(|event| event["cat"] == "access")),
        ("turns of vm1 on an engine", have(|event| event["cat"] == "turn" && event["name"] == "vm1")),
        ("queue's length", have(|event| event["ph"] == "C" && event["args"]["entries"].is_u64())),
    ];
    let missing = wanted.into_iter().filter(|(_, there)| !there);
    Ok(missing.map(|(what, _)| format!("Chrome's file has no {what}")).collect())
}
