//! `cargo xtask bench traps`: the benchmark of the KVM front end (`benches/traps.rs`), which runs micro guests on this host's KVM.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Whether all of its figures are within their limits.
pub(super) fn run(json: bool) -> Result<bool> {
    ensure!(
        std::path::Path::new("/dev/kvm").exists(),
        "This host has no /dev/kvm: traps cannot be measured without KVM (any kind of it will do, PVM too)"
    );
    let mut command = Command::new(env!("CARGO"));
    command.args(["bench", "--quiet", "--package", "gpuvmk", "--bench", "traps", "--", "--json"]);
    let output = command.stderr(Stdio::inherit()).output().context("Cannot run cargo")?;
    let text = String::from_utf8(output.stdout).context("The benchmark prints no text")?;
    let (table, last) = text.trim_end().rsplit_once('\n').context("The benchmark prints nothing")?;
    let figures: Value = serde_json::from_str(last).context("The benchmark's last line is not JSON")?;
    println!("{table}");
    if json {
        println!("{last}");
    }
    let ok = figures.get("ok").and_then(Value::as_bool).context("The benchmark does not judge itself")?;
    ensure!(ok == output.status.success(), "The benchmark ends otherwise than it judges");
    Ok(ok)
}
