//! `gpuvmk status GPU.toml`: what the aggregator says of its tenants.

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::{control, output};
use crate::host::size::show_size;

/// Arguments of `gpuvmk status`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuvmk status /etc/gpuvmk/gpu0.toml\n  gpuvmk status --socket /run/gpuvmk/gpu0.control --json"
)]
pub(super) struct Args {
    /// The GPU's configuration file, for its control socket [default: the only socket /run/gpuvmk/*.control].
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The control socket itself.
    #[arg(long, value_name = "PATH", conflicts_with = "file")]
    socket: Option<PathBuf>,
    /// Print everything as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let socket = control::socket(args.file.as_deref(), args.socket.as_deref())?;
    let mut status = gpuvmk_lab::control::call(&socket, "status", &json!({}))?;
    add_memory(&mut status);
    if args.json {
        say!("{status}")?;
    } else {
        output::print(&summary(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds the private memory of each tenant's device back end, in bytes, where this user may see it.
fn add_memory(status: &mut Value) {
    for tenant in status["tenants"].as_array_mut().into_iter().flatten() {
        if let Some(bytes) = tenant["pid"].as_u64().and_then(private_memory)
            && let Some(tenant) = tenant.as_object_mut()
        {
            tenant.insert("backend_private_memory".to_owned(), bytes.into());
        }
    }
}

/// Memory that nobody shares with a process: what its end gives back.
fn private_memory(pid: u64) -> Option<u64> {
    private_bytes(&std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
}

/// The sum of both kinds of private pages in a `smaps_rollup`.
fn private_bytes(rollup: &str) -> Option<u64> {
    let kib = |name: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    };
    kib("Private_Clean:")?.checked_add(kib("Private_Dirty:")?)?.checked_mul(1024)
}

/// The state for people: a line for the GPU, a line for each tenant, and what is wrong below it.
fn summary(status: &Value) -> String {
    let gpu = &status["gpu"];
    let size = |value: &Value| value.as_u64().map_or_else(|| "?".to_owned(), show_size);
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let mut out = format!(
        "{} ({}): {} of VRAM, {} free, {} of {} channels free, policy {}{}\n",
        text(&gpu["chip"]),
        text(&gpu["backend"]),
        size(&gpu["vram"]),
        size(&gpu["vram_free"]),
        gpu["channels_free"],
        gpu["channels"],
        text(&gpu["policy"]),
        if gpu["lost"] == true { ", LOST" } else { "" },
    );
    out.push_str(&card(&gpu["card"]));
    out.push_str(&scrubbing(&gpu["scrub"]));
    for tenant in status["tenants"].as_array().into_iter().flatten() {
        out.push_str(&format!(
            "{}: {}, {} of VRAM, {} channels, {} submissions, {:.0} % of the engines' time\n",
            text(&tenant["name"]),
            text(&tenant["state"]),
            size(&tenant["vram"]),
            tenant["channels"],
            tenant["submissions"],
            tenant["gpu_share"].as_f64().unwrap_or(0.0) * 100.0,
        ));
        out.push_str(&engines(&tenant["engines"]));
        if let Some(bytes) = tenant["backend_private_memory"].as_u64() {
            out.push_str(&format!("  its device back end has {} KiB of its own\n", bytes / 1024));
        }
        let state = &tenant["fail_safe"];
        if !state.is_null() {
            out.push_str(&format!(
                "  in fail-safe state for {} ms: {}, decided by the {} ({} times so far)\n",
                state["for_ms"],
                text(&state["reason"]),
                text(&state["decided_by"]),
                tenant["fail_safe_count"],
            ));
        }
        if tenant["hangs"].as_u64().is_some_and(|hangs| hangs > 0) {
            out.push_str(&format!(
                "  {} of its channels hung ({} engine resets), for which it waited {} ms\n",
                tenant["hangs"], tenant["engine_resets"], tenant["hang_penalty_ms"]
            ));
        }
        for (name, limit) in tenant["limits"].as_object().into_iter().flatten() {
            if limit["hits"].as_u64().is_some_and(|hits| hits > 0) {
                out.push_str(&format!(
                    "  limit {name} ({}) was met {} times\n",
                    limit["limit"], limit["hits"]
                ));
            }
        }
    }
    out
}

/// What a card's driver did to it.
fn card(used: &Value) -> String {
    let Some(reached) = used["reached"].as_u64() else { return String::new() };
    format!(
        "The card took {} reads and {} writes so far; it reaches {} of the host's memory, which is locked\n",
        used["reads"],
        used["writes"],
        show_size(reached)
    )
}

/// What a VM got of each engine.
fn engines(accounts: &Value) -> String {
    let ms = |value: &Value, per: f64| value.as_f64().unwrap_or(0.0) / per;
    let line = |account: &Value| {
        format!(
            "  {}: {:.0} ms used, {:.0} ms waited, {} turns; doorbells wait {:.2} ms (99 of 100 at most {:.2}){}\n",
            account["engine"].as_str().unwrap_or("?"),
            ms(&account["used_us"], 1e3),
            ms(&account["waiting_us"], 1e3),
            account["switches"],
            ms(&account["wait_ns"]["p50"], 1e6),
            ms(&account["wait_ns"]["p99"], 1e6),
            copied(&account["copied_bytes"]),
        )
    };
    accounts.as_array().into_iter().flatten().map(line).collect()
}

/// What a VM's device back end says that it copied.
fn copied(bytes: &Value) -> String {
    match bytes.as_u64() {
        None | Some(0) => String::new(),
        Some(bytes) if bytes < 1 << 20 => format!("; {bytes} bytes copied"),
        Some(bytes) => format!("; {} MiB copied", bytes >> 20),
    }
}

/// How VRAM is zeroed, once some was.
fn scrubbing(scrub: &Value) -> String {
    let bytes = |key: &str| scrub[key].as_u64().unwrap_or(0);
    if scrub["by"].is_null() {
        return String::new();
    }
    let mut out = format!("VRAM is zeroed by the {}", scrub["by"].as_str().unwrap_or("?"));
    if bytes("engine_bytes") > 0 {
        let rate = bytes("engine_bytes_per_second") / 1_000_000;
        out.push_str(&format!(": {} MiB so far, {rate} MB/s", bytes("engine_bytes") >> 20));
    }
    let departures = &scrub["departures"];
    if departures["count"].as_u64().is_some_and(|count| count > 0) {
        out.push_str(&format!(
            "; the last VM was gone in {} ms, the slowest in {} ms",
            departures["last_ms"], departures["longest_ms"]
        ));
    }
    out.push('\n');
    if let Some(why) = scrub["fallback_reason"].as_str() {
        out.push_str(&format!("  by the processor instead {} times: {why}\n", scrub["fallbacks"]));
    }
    if scrub["foreign_accesses"].as_u64().is_some_and(|count| count > 0) {
        out.push_str(&format!("  IT REACHED A VM'S MEMORY {} times\n", scrub["foreign_accesses"]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_fail_safe_states_and_limits_that_were_met() {
        let status = serde_json::json!({
            "gpu": { "chip": "GF100", "backend": "soft", "vram": 1 << 30, "vram_free": 64 << 20, "channels": 120,
                     "channels_free": 88, "policy": "fifo", "lost": false,
                     "card": { "reads": 12, "writes": 345, "reached": 6 << 20 },
                     "scrub": { "by": "processor", "engine_bytes": 256 << 20, "engine_bytes_per_second": 3_000_000_000_u64,
                                "fallbacks": 2, "fallback_reason": "the copy engine did not finish", "foreign_accesses": 0,
                                "departures": { "count": 1, "last_ms": 90, "longest_ms": 95 } } },
            "tenants": [{
                "name": "vm1", "state": "active", "vram": 256 << 20, "channels": 2, "submissions": 7,
                "gpu_share": 0.5, "fail_safe_count": 3,
                "engines": [{ "engine": "copy0", "used_us": 12_400, "waiting_us": 7000, "switches": 5, "copied_bytes": 5 << 20,
                              "wait_ns": { "count": 7, "p50": 1_500_000, "p99": 2_000_000 } }],
                "fail_safe": { "reason": "quota_exceeded", "decided_by": "backend", "for_ms": 12, "decided_us": 4 },
                "limits": { "flushes": { "limit": 100, "used": 900, "hits": 8 },
                            "channels": { "limit": 32, "used": 2, "hits": 0 } },
            }],
        });

        assert_eq!(
            summary(&status),
            "GF100 (soft): 1G of VRAM, 64M free, 88 of 120 channels free, policy fifo\n\
             The card took 12 reads and 345 writes so far; it reaches 6M of the host's memory, which is locked\n\
             VRAM is zeroed by the processor: 256 MiB so far, 3000 MB/s; the last VM was gone in 90 ms, the slowest in 95 ms\n\
             \x20 by the processor instead 2 times: the copy engine did not finish\n\
             vm1: active, 256M of VRAM, 2 channels, 7 submissions, 50 % of the engines' time\n\
             \x20 copy0: 12 ms used, 7 ms waited, 5 turns; doorbells wait 1.50 ms (99 of 100 at most 2.00); 5 MiB copied\n\
             \x20 in fail-safe state for 12 ms: quota_exceeded, decided by the backend (3 times so far)\n\
             \x20 limit flushes (100) was met 8 times\n"
        );
    }
}
