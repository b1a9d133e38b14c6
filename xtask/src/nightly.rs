//! `cargo xtask nightly`: what takes too long for every change. Each part is a run of this program with a log
//! of its own; one that fails does not keep the others from running.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::interrupt;
use gpuvmk_lab::nvidia;
use gpuvmk_lab::process::Process;
use serde_json::{Value, json};

use crate::tenths;

/// What runs, and what it shows that `.ci/run` does not.
const PARTS: &[(&str, &str, &[&str])] = &[
    ("tests", "host tests and all guests with gpuvmk as users build it", &["test", "--all"]),
    (NVIDIA, "guests with NVIDIA's own driver, fetched and built", &["test", "--guests", "--only", "nvidia"]),
    ("fuzz", "every fuzzer for ten minutes", &["fuzz", "--seconds", "600"]),
    ("attack", "every attack, judged by the victim's speed as well", &["attack"]),
    ("soak", "VMs that come and go for half an hour", &["soak", "--minutes", "30"]),
    ("stress", "a million sleeps for the end of work in each guest", &["stress"]),
    ("nested", "every case of a card given away through VFIO", &["test", "nested"]),
    ("nested-kvm", "every guest of our own VMM", &["test", "nested-kvm"]),
    ("kvm", "micro guests on this host's KVM", &["test", "kvm"]),
    ("bench-trace", "what recording costs, and how fast the tools are", &["bench", "trace"]),
    ("bench-traps", "what exits cost", &["bench", "traps"]),
    ("bench-suite", "mediated against native, and 1 to 64 VMs", &["bench", "suite"]),
];

/// The part with packages that not everybody wants.
const NVIDIA: &str = "nvidia";

/// Parts that need `/dev/kvm`.
const WITH_KVM: [&str; 2] = ["kvm", "bench-traps"];

const LOOK: Duration = Duration::from_millis(500);

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
    /// Only parts whose name contains this. May be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the parts and do nothing
    #[arg(long)]
    list: bool,
    /// Where logs go
    #[arg(long, value_name = "FOLDER", default_value = "target/xtask-nightly")]
    logs: PathBuf,
}

pub fn run(arguments: &Arguments) -> Result<bool> {
    let wanted = |name: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|part| name.contains(part.as_str()))
    };
    let parts: Vec<_> = PARTS.iter().filter(|(name, ..)| wanted(name)).collect();
    ensure!(!parts.is_empty(), "No part has such a name: see 'cargo xtask nightly --list'");
    if arguments.list {
        parts
            .iter()
            .for_each(|(name, what, words)| println!("{name:12} {what}: cargo xtask {}", words.join(" ")));
        return Ok(true);
    }
    fs::create_dir_all(&arguments.logs)
        .with_context(|| format!("Cannot make {}", arguments.logs.display()))?;
    let kvm = Path::new("/dev/kvm").exists();
    let mut outcomes = Vec::new();
    for (name, _, words) in parts {
        interrupt::check()?;
        let left_out = match *name {
            NVIDIA if !nvidia::is_wanted() => Some(format!("{} is 'off'", nvidia::VARIABLE)),
            _ if WITH_KVM.contains(name) && !kvm => Some("this host has no /dev/kvm".to_owned()),
            _ => None,
        };
        if let Some(why) = left_out {
            println!("{name:12} left out: {why}");
            outcomes.push(json!({ "name": name, "ok": Value::Null, "why": why }));
            continue;
        }
        let log = arguments.logs.join(format!("{name}.log"));
        let start = Instant::now();
        let ok = carry_out(name, words, &log)?;
        let seconds = tenths(start.elapsed());
        println!("{name:12} {:6} {seconds:8.1} s  {}", if ok { "ok" } else { "FAILED" }, log.display());
        outcomes.push(json!({ "name": name, "ok": ok, "seconds": seconds, "log": log }));
    }
    let ok = outcomes.iter().all(|outcome| outcome["ok"] != false);
    println!("{}", if ok { "all passed" } else { "FAILED" });
    if arguments.json {
        println!("{}", json!({ "ok": ok, "parts": outcomes }));
    }
    Ok(ok)
}

/// Runs a part; whether it passed.
fn carry_out(name: &str, words: &[&str], log: &Path) -> Result<bool> {
    let output = File::create(log).with_context(|| format!("Cannot make {}", log.display()))?;
    let mut command = Command::new(env::current_exe().context("Cannot tell where this program is")?);
    command.args(words).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let mut process = Process::start(command, name)?;
    loop {
        if let Some(status) = process.ended()? {
            return Ok(status.success());
        }
        interrupt::check()?;
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn every_part_is_an_order_that_this_program_takes() {
        for (name, _, words) in PARTS {
            let parsed = crate::Arguments::try_parse_from(std::iter::once(&"xtask").chain(*words));
            assert!(parsed.is_ok(), "{name}: {}", parsed.unwrap_err());
        }
    }
}
