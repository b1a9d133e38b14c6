//! `gpuvmk ls`: the VMs that share a GPU, a line each.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::control::Target;
use super::output;
use super::table::Table;
use crate::host::size::show_size;

/// Arguments of `gpuvmk ls`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuvmk ls\n  gpuvmk ls --gpu /etc/gpuvmk/gpu0.toml --json")]
pub(super) struct Args {
    #[command(flatten)]
    target: Target,
    /// Print the list as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let status = args.target.call("status", &json!({}))?;
    if args.json {
        say!("{}", status["tenants"])?;
    } else {
        output::print(&list(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(status: &Value) -> String {
    let mut table = Table::new(&["VM", "STATE", "PID", "VRAM", "CHANNELS", "GPU", "BUSY", "FAULTS", "HANGS"]);
    for vm in status["tenants"].as_array().into_iter().flatten() {
        table.row([
            vm["name"].as_str().unwrap_or("?").to_owned(),
            state(vm),
            vm["pid"].as_i64().map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            vm["vram"].as_u64().map_or_else(|| "?".to_owned(), show_size),
            format!("{}/{}", vm["channels"], vm["channel_limit"]),
            format!("{:.1} %", vm["gpu_share"].as_f64().unwrap_or(0.0) * 100.0),
            format!("{:.3} s", vm["busy_ms"].as_f64().unwrap_or(0.0) / 1e3),
            vm["faults"].to_string(),
            vm["hangs"].to_string(),
        ]);
    }
    table.to_string()
}

/// What a VM does, in a word.
pub(super) fn state(vm: &Value) -> String {
    match (vm["fail_safe"]["reason"].as_str(), vm["paused"] == true) {
        (Some(reason), _) => format!("fail-safe ({reason})"),
        (None, true) => "paused".to_owned(),
        (None, false) => vm["state"].as_str().unwrap_or("?").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_has_a_line_for_each_vm() {
        let vm = |name: &str, paused: bool, fail_safe: Value| {
            json!({
                "name": name, "state": "active", "paused": paused, "fail_safe": fail_safe, "pid": 12, "vram": 64 << 20,
                "channels": 3, "channel_limit": 32, "gpu_share": 0.25, "busy_ms": 1500, "faults": 0, "hangs": 1,
            })
        };
        let status = json!({ "tenants": [
            vm("vm1", false, Value::Null), vm("a-longer-name", true, Value::Null), vm("vm3", true, json!({ "reason": "quota" })),
        ] });

        let text = list(&status);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[0].starts_with("VM             STATE"), "{text}");
        assert!(
            lines[1].contains("active") && lines[1].contains("64M") && lines[1].contains("25.0 %"),
            "{text}"
        );
        assert!(lines[2].contains("paused") && lines[3].contains("fail-safe (quota)"), "{text}");
    }
}
