//! One run of one fuzzer.

use std::fs::{self, File};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gpuvmk_lab::interrupt;
use gpuvmk_lab::process::Process;

use super::Place;
use super::build::Fuzzers;
use super::outcome::{End, Ending, Outcome};

/// An input that takes longer is a finding. Long, because a busy machine must not look like one.
const SECONDS_PER_INPUT: u64 = 30;
/// A process that takes more memory is a finding.
const MEMORY_MIB: u64 = 2048;
/// Inputs are at most so long.
const INPUT_BYTES: u64 = 4096;
/// What the corpus may take on top of a run's time.
const CORPUS_TIME: Duration = Duration::from_secs(300);

/// Runs `target`'s fuzzer for `time`.
pub fn run(fuzzers: &Fuzzers, place: &Place, target: &str, time: Duration) -> Result<Outcome> {
    let (found, tree, findings) = (place.found(target), place.corpus(target), place.findings(target));
    for folder in [&found, &tree, &findings] {
        fs::create_dir_all(folder).with_context(|| format!("Cannot make the folder {}", folder.display()))?;
    }
    let log = place.log(target);
    let output = create(&log)?;
    let mut command = fuzzer(fuzzers, target);
    command
        .arg(format!("-max_total_time={}", time.as_secs()))
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .arg("-print_final_stats=1")
        .args([&found, &tree])
        .stdout(output.try_clone()?)
        .stderr(output);
    let start = Instant::now();
    let end = wait(Process::start(command, target)?, time + CORPUS_TIME)?;
    let text = fs::read(&log).with_context(|| format!("Cannot read {}", log.display()))?;
    Ok(Outcome::read(target, &String::from_utf8_lossy(&text), &end, start.elapsed()))
}

/// The fuzzer's command, with the limits that every run has.
pub fn fuzzer(fuzzers: &Fuzzers, target: &str) -> Command {
    let mut command = Command::new(fuzzers.program(target));
    command
        .arg(format!("-timeout={SECONDS_PER_INPUT}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-max_len={INPUT_BYTES}"));
    command
}

/// Makes the file `path` and the folders above it.
pub fn create(path: &std::path::Path) -> Result<File> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| File::create(path));
    made.with_context(|| format!("Cannot make the file {}", path.display()))
}

/// Waits for the process; an interrupted run ends it.
pub fn wait(mut process: Process, limit: Duration) -> Result<End> {
    let start = Instant::now();
    let mut processor_time = Duration::ZERO;
    while start.elapsed() < limit {
        processor_time = process.cpu_time().max(processor_time);
        if let Some(status) = process.wait(Duration::from_millis(500))? {
            return Ok(End { ending: Ending::By(status), processor_time });
        }
        interrupt::check()?;
    }
    Ok(End { ending: Ending::Stuck, processor_time })
}
