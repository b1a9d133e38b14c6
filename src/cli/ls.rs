//! `gpuvmk ls`: the VMs that share a GPU, a line each.

use std::process::ExitCode;

use gpuvmk_control_client::{Status, TenantStatus};

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
    let status = args.target.status()?;
    if args.json {
        say!("{}", serde_json::to_value(&status.tenants)?)?;
    } else {
        output::print(&list(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(status: &Status) -> String {
    let mut table = Table::new(&["VM", "STATE", "PID", "VRAM", "CHANNELS", "GPU", "BUSY", "FAULTS", "HANGS"]);
    for vm in &status.tenants {
        table.row([
            vm.name.clone(),
            state(vm),
            vm.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            show_size(vm.vram),
            format!("{}/{}", vm.channels, vm.channel_limit),
            format!("{:.1} %", vm.gpu_share * 100.0),
            format!("{:.3} s", vm.busy_ms as f64 / 1e3),
            vm.counters.faults.to_string(),
            vm.hangs.to_string(),
        ]);
    }
    table.to_string()
}

/// State of a VM, in a word.
pub(super) fn state(vm: &TenantStatus) -> String {
    match (&vm.fail_safe, vm.paused) {
        (Some(state), _) => format!("fail-safe ({})", state.reason),
        (None, true) => "paused".to_owned(),
        (None, false) => vm.state.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn list_has_a_line_for_each_vm() {
        let vm = |name: &str, paused: bool, fail_safe: Value| {
            json!({
                "name": name, "state": "active", "paused": paused, "fail_safe": fail_safe, "pid": 12, "vram": 64 << 20,
                "channels": 3, "channel_limit": 32, "gpu_share": 0.25, "busy_ms": 1500, "faults": 0, "hangs": 1,
            })
        };
        let quota = json!({ "reason": "quota", "decided_by": "backend", "for_ms": 1, "decided_us": 1 });
        let status = json!({ "tenants": [
            vm("vm1", false, Value::Null), vm("a-longer-name", true, Value::Null), vm("vm3", true, quota),
        ] });

        let text = list(&serde_json::from_value(status).unwrap());
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
