//! How long neighbours of a channel that hangs stand still: the loop of hangs of
//! `tests/in_process/hangs.rs`, in process, on both software GPUs.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use gpuvmk_lab::cache::source_tree;

/// The neighbours' longest pauses, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// 99 of 100 are at most this.
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// Provokes `times` hangs for each combination of chip, policy and penalties.
pub fn provoke(times: u32) -> Result<Pauses> {
    eprintln!("{times} hangs of each kind");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(source_tree())
        .args(["test", "--quiet", "--release", "--test", "hangs", "--"])
        .args(["--ignored", "--exact", "loop_of_a_hundred", "--nocapture"])
        .env("GPUVMK_HANGS", times.to_string())
        .stderr(Stdio::inherit())
        .output()
        .context("Cannot start cargo to provoke hangs")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().filter_map(|line| line.find('{').and_then(|at| line.get(at..)));
    let told: Value = found
        .filter_map(|line| serde_json::from_str(line).ok())
        .next_back()
        .with_context(|| format!("the loop of hangs told nothing: {text}"))?;
    let number = |key: &str| told[key].as_f64().with_context(|| format!("the loop of hangs told no {key}"));
    ensure!(output.status.success() || told["ok"] == false, "the loop of hangs failed: {text}");
    Ok(Pauses { p99_ms: number("hang_p99_ms")?, max_ms: number("hang_max_ms")? })
}
