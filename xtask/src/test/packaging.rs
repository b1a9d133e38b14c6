//! What is in packaging/, checked by the programs that it is for: Prometheus' own tool accepts the alert
//! rules, which fire when they say, QEMU has the devices and properties of the examples, gpuvmk itself
//! accepts the configuration files, and what is in the Debian package runs and has its manuals.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::apt;
use gpuvmk_lab::cache::{Cache, source_tree};
use gpuvmk_lab::daemons::Daemon;
use gpuvmk_lab::promtool::Promtool;
use gpuvmk_lab::qemu::Qemu;
use serde_json::Value;

use crate::deb;

/// Files with QEMU devices in JSON.
const EXAMPLES: [&str; 2] = ["packaging/libvirt/vm1.xml", "README.md"];

/// Makes all checks, and says what is wrong.
pub fn check() -> Result<bool> {
    let cache = Cache::open()?;
    let alerts = alerts(&cache)?;
    let qemu = Qemu::obtain(&cache)?;
    let mut ok = alerts;
    for example in EXAMPLES {
        match devices(&qemu, example) {
            Ok(count) => eprintln!("{example}: QEMU {} knows its {count} devices", qemu.version),
            Err(error) => {
                eprintln!("{example}: {error:#}");
                ok = false;
            }
        }
    }
    if let Err(error) = package(&cache) {
        eprintln!("the Debian package: {error:#}");
        ok = false;
    }
    Ok(ok)
}

/// Makes the Debian package, unpacks it as dpkg would, and looks at what is in it.
fn package(cache: &Cache) -> Result<()> {
    let promtool = Promtool::obtain(cache)?;
    let folder = cache.path(format!("package.{}", std::process::id()));
    let unpacked = deb::build(&folder).and_then(|package| {
        let root = folder.join("unpacked");
        apt::unpack(&[package], &root, "gpuvmk")?;
        inspect(&root)?;
        metrics(&root.join("usr/bin/gpuvmk"), &folder, &promtool)
    });
    fs::remove_dir_all(&folder).with_context(|| format!("Cannot remove {}", folder.display()))?;
    unpacked
}

fn inspect(root: &Path) -> Result<()> {
    let program = root.join("usr/bin/gpuvmk");
    let run = |arguments: &[&str]| -> Result<String> {
        let output =
            Command::new(&program).args(arguments).current_dir(root).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "gpuvmk {} failed: {}", arguments.join(" "), said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    run(&["version"])?;
    let examples = "usr/share/doc/gpuvmk/examples";
    let said = run(&["check", "--json", &format!("{examples}/gpu0.toml"), &format!("{examples}/vm1.toml")])?;
    let found: Value = serde_json::from_str(&said).context("gpuvmk check --json prints no JSON")?;
    let warnings = found["warnings"].as_array().context("gpuvmk check --json names no warnings")?;
    ensure!(warnings.is_empty(), "gpuvmk check warns of the examples: {said}");
    for wanted in [
        "usr/lib/systemd/system/gpuvmk-aggregator@.service",
        "usr/lib/systemd/system/gpuvmk-device@.socket",
        "usr/lib/sysusers.d/gpuvmk.conf",
        "usr/share/doc/gpuvmk/examples/sysusers-vm1.conf",
        "usr/share/man/man1/gpuvmk.1.gz",
        "usr/share/man/man1/gpuvmk-trace-record.1.gz",
        "usr/share/bash-completion/completions/gpuvmk",
        "usr/share/doc/gpuvmk/operators.md",
        "usr/libexec/gpuvmk/gpuvmk-gpu-bench",
        "usr/libexec/gpuvmk/gpuvmk-shader",
        "etc/gpuvmk",
    ] {
        ensure!(root.join(wanted).exists(), "{wanted} is missing");
    }
    eprintln!("the Debian package has what it should, and runs");
    Ok(())
}

/// Has Prometheus' linter judge what `gpuvmk metrics` prints of a GPU with a VM.
fn metrics(program: &Path, folder: &Path, promtool: &Promtool) -> Result<()> {
    let gpu = "name = \"gpu0\"\nbackend = \"soft\"\nchip = \"GF100\"\nvram = \"256M\"\n\
               [socket]\npath = \"gpu0.sock\"\n[control]\npath = \"gpu0.control\"\n";
    let vm = "name = \"vm1\"\ngpu = \"gpu0.sock\"\nchip = \"GF100\"\nvram = \"64M\"\n[socket]\npath = \"vm1.sock\"\n";
    fs::write(folder.join("gpu0.toml"), gpu)?;
    fs::write(folder.join("vm1.toml"), vm)?;
    let file = |name: &str| folder.join(name).display().to_string();
    let mut aggregator = Daemon::start(program, &["aggregator", &file("gpu0.toml")], folder, "aggregator")?;
    aggregator.wait_listening(&folder.join("gpu0.sock"))?;
    let mut device = Daemon::start(program, &["device", &file("vm1.toml")], folder, "device")?;
    device.wait_listening(&folder.join("vm1.sock"))?;
    let mut printer = Command::new(program)
        .args(["metrics", "--socket", &file("gpu0.control")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("Cannot start gpuvmk metrics")?;
    let text = printer.stdout.take().context("gpuvmk metrics has no output")?;
    let judged = promtool.command(&["check", "metrics"], folder)?.stdin(Stdio::from(text)).output()?;
    ensure!(printer.wait()?.success(), "gpuvmk metrics failed");
    let said = [judged.stdout, judged.stderr].concat();
    ensure!(judged.status.success(), "promtool check metrics: {}", String::from_utf8_lossy(&said).trim());
    eprintln!("promtool accepts what gpuvmk metrics prints");
    Ok(())
}

fn alerts(cache: &Cache) -> Result<bool> {
    let promtool = Promtool::obtain(cache)?;
    let folder = source_tree().join("packaging/prometheus");
    let mut ok = true;
    for arguments in [["check", "rules", "gpuvmk.rules.yml"], ["test", "rules", "gpuvmk.rules.test.yml"]] {
        let status = promtool
            .command(&arguments, &folder)?
            .stdout(Stdio::from(std::io::stderr()))
            .status()
            .context("Cannot start promtool")?;
        ok &= status.success();
    }
    Ok(ok)
}

/// Checks a file's devices against what QEMU says of them; returns how many there are.
fn devices(qemu: &Qemu, file: &str) -> Result<usize> {
    let text = fs::read_to_string(source_tree().join(file)).with_context(|| format!("Cannot read {file}"))?;
    let devices: Vec<Value> = quoted(&text).filter_map(|json| serde_json::from_str(json).ok()).collect();
    ensure!(
        devices.iter().any(|device| device["driver"] == "vfio-user-pci"),
        "there is no device vfio-user-pci in JSON"
    );
    for device in &devices {
        let driver = device["driver"].as_str().context("a device has no driver")?;
        let known = properties(qemu, driver)?;
        for key in device.as_object().into_iter().flatten().map(|(key, _)| key.as_str()) {
            // Of -device itself, not of the driver.
            let general = ["driver", "id", "bus"].contains(&key);
            ensure!(general || known.contains(key), "{driver} has no property `{key}`; it has {known:?}");
        }
    }
    Ok(devices.len())
}

/// What stands between single quotes and looks like a device.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('\'').filter(|part| part.starts_with("{\"driver\""))
}

/// The properties of a device, by QEMU's own help.
fn properties(qemu: &Qemu, driver: &str) -> Result<BTreeSet<String>> {
    let mut command = qemu.command()?;
    command.args(["-device", &format!("{driver},help")]).stdin(Stdio::null());
    let output = command.output().context("Cannot start QEMU")?;
    ensure!(output.status.success(), "QEMU has no device {driver}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = text.lines().filter_map(|line| line.trim().split_once('=').map(|(name, _)| name.to_owned()));
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_between_quotes() {
        let text = "-device '{\"driver\":\"a\"}' \\\n <x value='{\"driver\":\"b\"}'/> 'other'";
        assert_eq!(quoted(text).collect::<Vec<_>>(), ["{\"driver\":\"a\"}", "{\"driver\":\"b\"}"]);
    }
}
