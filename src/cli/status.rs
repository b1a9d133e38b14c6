//! `gpuvmk status GPU.toml`: what the aggregator says of its tenants.

use std::path::PathBuf;
use std::process::ExitCode;

use gpuvmk_control_client::{CardUse, DriverCounters, EngineStatus, ScrubStatus, Status, TenantStatus};

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
    let mut status = gpuvmk_control_client::status(&socket)?;
    for tenant in &mut status.tenants {
        tenant.backend_private_memory = tenant.pid.and_then(private_memory);
    }
    if args.json {
        // As a value, keys are in the order of the alphabet, as they are on the socket.
        say!("{}", serde_json::to_value(&status)?)?;
    } else {
        output::print(&summary(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Private memory of a process, which its end frees, in bytes.
fn private_memory(pid: i32) -> Option<u64> {
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
fn summary(status: &Status) -> String {
    let gpu = &status.gpu;
    let mut out = format!(
        "{} ({}): {} of VRAM, {} free, {} of {} channels free, policy {}{}\n",
        gpu.chip,
        gpu.backend,
        show_size(gpu.vram),
        show_size(gpu.vram_free),
        gpu.channels_free,
        gpu.channels,
        gpu.policy,
        if gpu.lost { ", LOST" } else { "" },
    );
    out.extend(gpu.card.map(card));
    out.push_str(&scrubbing(&gpu.scrub));
    for tenant in &status.tenants {
        out.push_str(&vm(tenant));
    }
    out
}

/// The status of one VM.
fn vm(tenant: &TenantStatus) -> String {
    let mut out = format!(
        "{}: {}, {} of VRAM, {} channels, {} submissions, {:.0} % of the engines' time\n",
        tenant.name,
        tenant.state,
        show_size(tenant.vram),
        tenant.channels,
        tenant.submissions,
        tenant.gpu_share * 100.0,
    );
    out.extend(tenant.engines.iter().map(engine));
    if let Some(bytes) = tenant.backend_private_memory {
        out.push_str(&format!("  its device back end has {} KiB of its own\n", bytes / 1024));
    }
    if let Some(state) = &tenant.fail_safe {
        out.push_str(&format!(
            "  in fail-safe state for {} ms: {}, decided by the {} ({} times so far)\n",
            state.for_ms,
            state.reason,
            state.decided_by.name(),
            tenant.counters.fail_safe_count,
        ));
    }
    if tenant.hangs > 0 {
        out.push_str(&format!(
            "  {} of its channels hung ({} engine resets), for which it waited {} ms\n",
            tenant.hangs, tenant.engine_resets, tenant.hang_penalty_ms
        ));
    }
    out.push_str(&refused(&tenant.driver));
    out.push_str(&monitor(&tenant.driver));
    for (name, limit) in tenant.limits.iter().filter(|(_, limit)| limit.hits > 0) {
        let most = limit.limit.map_or_else(|| "null".to_owned(), |most| most.to_string());
        out.push_str(&format!("  limit {name} ({most}) was met {} times\n", limit.hits));
    }
    out
}

/// What a VM's driver was refused, by its device back end's report.
fn refused(driver: &DriverCounters) -> String {
    let DriverCounters { face, gsp, looks: _ } = driver;
    let unknown = face.unlisted_reads.saturating_add(face.unlisted_writes);
    let calls = gsp.rpcs_unknown.saturating_add(gsp.controls_unknown);
    let told = [
        (face.refused, "writes refused"),
        (unknown, "accesses to unknown registers"),
        (face.window_faults, "accesses through BARs without a translation"),
        (face.bad_doorbells, "doorbells of no channel"),
        (face.display_stops, "channels of its display stopped"),
        (face.display_refused, "names of memory refused by its display"),
        (gsp.refused(), "calls refused by GSP"),
        (calls, "calls that GSP does not know"),
    ];
    let told: Vec<_> =
        told.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    if told.is_empty() { String::new() } else { format!("  its driver: {}\n", told.join(", ")) }
}

/// A VM's monitor, by the same report; nothing where it has no head.
fn monitor(driver: &DriverCounters) -> String {
    let (face, looks) = (driver.face, driver.looks);
    if face.heads == 0 {
        return String::new();
    }
    let monitor = match (face.monitor_width, face.monitor_height) {
        (0, _) | (_, 0) => "it has no monitor".to_owned(),
        (width, height) => format!("its monitor prefers {width}x{height}"),
    };
    format!("  {monitor}; {} look at it ({} pictures so far)\n", looks.viewers, looks.composed)
}

/// The costs of a card's use.
fn card(used: CardUse) -> String {
    format!(
        "The card took {} reads and {} writes so far; it reaches {} of the host's memory, which is locked\n",
        used.reads,
        used.writes,
        show_size(used.reached)
    )
}

/// A VM's use of an engine.
fn engine(account: &EngineStatus) -> String {
    format!(
        "  {}: {:.0} ms used, {:.0} ms waited, {} turns; doorbells wait {:.2} ms (99 of 100 at most {:.2}){}\n",
        account.engine,
        account.used_us as f64 / 1e3,
        account.waiting_us as f64 / 1e3,
        account.switches,
        account.wait_ns.p50 as f64 / 1e6,
        account.wait_ns.p99 as f64 / 1e6,
        copied(account.copied_bytes),
    )
}

/// Bytes that a VM copied, by its device back end's report.
fn copied(bytes: u64) -> String {
    match bytes {
        0 => String::new(),
        bytes if bytes < 1 << 20 => format!("; {bytes} bytes copied"),
        bytes => format!("; {} MiB copied", bytes >> 20),
    }
}

/// How VRAM is zeroed, once some was.
fn scrubbing(scrub: &ScrubStatus) -> String {
    let Some(figures) = &scrub.figures else { return String::new() };
    let mut out = format!("VRAM is zeroed by the {}", figures.by);
    if figures.engine_bytes > 0 {
        let rate = figures.engine_bytes_per_second / 1_000_000;
        out.push_str(&format!(": {} MiB so far, {rate} MB/s", figures.engine_bytes >> 20));
    }
    let gone = scrub.departures;
    if gone.count > 0 {
        out.push_str(&format!(
            "; the last VM was gone in {} ms, the slowest in {} ms",
            gone.last_ms, gone.longest_ms
        ));
    }
    out.push('\n');
    if let Some(why) = &figures.fallback_reason {
        out.push_str(&format!("  by the processor instead {} times: {why}\n", figures.fallbacks));
    }
    if let Some(count @ 1..) = scrub.foreign_accesses {
        out.push_str(&format!("  IT REACHED A VM'S MEMORY {count} times\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_names_fail_safe_states_and_limits_that_were_met() {
        let status = serde_json::from_value(serde_json::json!({
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
                "driver": { "face": { "unlisted_reads": 1, "unlisted_writes": 2 },
                            "gsp": { "refused_object": 4, "refused_unsupported": 1, "controls_unknown": 1 } },
            }],
        }))
        .unwrap();

        assert_eq!(
            summary(&status),
            "GF100 (soft): 1G of VRAM, 64M free, 88 of 120 channels free, policy fifo\n\
             The card took 12 reads and 345 writes so far; it reaches 6M of the host's memory, which is locked\n\
             VRAM is zeroed by the processor: 256 MiB so far, 3000 MB/s; the last VM was gone in 90 ms, the slowest in 95 ms\n\
             \x20 by the processor instead 2 times: the copy engine did not finish\n\
             vm1: active, 256M of VRAM, 2 channels, 7 submissions, 50 % of the engines' time\n\
             \x20 copy0: 12 ms used, 7 ms waited, 5 turns; doorbells wait 1.50 ms (99 of 100 at most 2.00); 5 MiB copied\n\
             \x20 in fail-safe state for 12 ms: quota_exceeded, decided by the backend (3 times so far)\n\
             \x20 its driver: 3 accesses to unknown registers, 5 calls refused by GSP, 1 calls that GSP does not know\n\
             \x20 limit flushes (100) was met 8 times\n"
        );
    }
}
