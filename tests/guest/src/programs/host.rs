//! `host`: this guest is a host itself. Starts an aggregator and boots a guest of its own with `gpuvmk vmm`, whose console goes where this
//! guest's goes, reports included.
//!
//! What it needs lies in `/host`: gpuvmk with the C library that it was linked with, configurations, the inner guest's kernel and
//! initramfs.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{Figures, Options};

const FOLDER: &str = "/host";
/// Where the aggregator listens, as its configuration says.
const SOCKET: &str = "/run/gpu.sock";
/// How long it may take to listen.
const START: Duration = Duration::from_secs(30);

/// Options: `cpus` and `memory` of the inner guest; `words`, the file with its kernel's command line.
pub fn run(options: &Options) -> Result<Figures> {
    let cpus: u32 = options.get("cpus", 1)?;
    let memory: String = options.get("memory", "512M".to_owned())?;
    let words =
        fs::read_to_string(format!("{FOLDER}/words")).context("cannot read the inner command line")?;
    ensure!(Path::new("/dev/kvm").exists(), "there is no /dev/kvm");
    let mut aggregator = gpuvmk(&["aggregator", "/host/gpu.toml"], "aggregator")?;
    wait_for_socket(&mut aggregator)?;
    let start = Instant::now();
    let mut vmm = Command::new(format!("{FOLDER}/lib/ld-linux-x86-64.so.2"));
    vmm.args(["--library-path", "/host/lib", "/host/gpuvmk", "vmm", "/host/vm.toml"]);
    vmm.args(["--kernel", "/host/vmlinuz", "--initrd", "/host/initramfs.cpio", "--append", words.trim()]);
    vmm.args(["--cpus", &cpus.to_string(), "--memory", &memory, "--no-reboot"]);
    vmm.args(options.get("trap", false)?.then_some("--trap-all"));
    let console = File::options().write(true).open("/dev/console").context("cannot open the console")?;
    let log = File::create("/run/vmm.log").context("cannot create a log")?;
    let status = vmm
        .stdin(Stdio::null())
        .stdout(console)
        .stderr(log)
        .env("RUST_LOG", "info")
        .status()
        .context("cannot start the VMM")?;
    let took = start.elapsed();
    aggregator.kill().context("cannot end the aggregator")?;
    aggregator.wait().context("cannot wait for the aggregator")?;
    if !status.success() {
        print_log("vmm");
        print_log("aggregator");
        bail!("the VMM ended with {:?}, signal {:?}", status.code(), status.signal());
    }
    let mut figures = Figures::new();
    let log = fs::read_to_string("/run/vmm.log").unwrap_or_default();
    for (name, value) in shortcuts(&log) {
        figures.insert(name, value.into());
    }
    figures.insert("inner_s".into(), Value::from((took.as_secs_f64() * 10.0).round() / 10.0));
    Ok(figures)
}

/// Starts a daemon whose output goes to a log.
fn gpuvmk(arguments: &[&str], name: &str) -> Result<Child> {
    let log = File::create(format!("/run/{name}.log")).context("cannot create a log")?;
    Command::new(format!("{FOLDER}/lib/ld-linux-x86-64.so.2"))
        .args(["--library-path", "/host/lib", "/host/gpuvmk"])
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start the {name}"))
}

fn wait_for_socket(aggregator: &mut Child) -> Result<()> {
    let start = Instant::now();
    while !Path::new(SOCKET).exists() {
        if let Some(status) = aggregator.try_wait().context("cannot look at the aggregator")? {
            print_log("aggregator");
            bail!("the aggregator ended: {status}");
        }
        ensure!(start.elapsed() < START, "the aggregator does not listen after {} s", START.as_secs());
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// What the VMM says at its end of exits and what saved them: the numbers of its last lines, by name.
fn shortcuts(log: &str) -> Vec<(String, u64)> {
    let lines = log.lines().filter_map(|line| line.split_once("Counts: "));
    let words = lines.flat_map(|(_, counts)| counts.split_whitespace());
    let pairs = words.filter_map(|word| word.split_once('='));
    pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Shows a daemon's log on the console, for who looks for what went wrong.
fn print_log(name: &str) {
    let log = fs::read_to_string(format!("/run/{name}.log")).unwrap_or_default();
    log.lines().for_each(|line| eprintln!("{name}: {line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_log() {
        let log = "INFO other a=1\nINFO Counts: exits=12 runs_mapped=3\nINFO Counts: doorbells=9 odd=x\n";
        let named = [("exits", 12), ("runs_mapped", 3), ("doorbells", 9)];
        assert_eq!(shortcuts(log), named.map(|(name, value)| (name.to_owned(), value)));
    }
}
