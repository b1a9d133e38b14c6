//! What operators' monitoring sees: aggregators' states as Prometheus metrics, as text.
//!
//! Names begin with `gpuvmk_`, and units are base units. Labels are the GPU, the VM, the engine, the limit,
//! and the kind of step of the GPU's thread. So guests cannot add series.

mod format;

use std::sync::atomic::AtomicU64;

use gpuvmk_control_client::{Status, TenantStatus};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

pub use format::Format;

/// An aggregator's status (`status` of its control socket), or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The GPU's name: that of its control socket without its ending.
    pub gpu: String,
    /// Its status; `None` if it did not answer.
    pub status: Option<Status>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGpu {
    gpu: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGpuState {
    gpu: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Chip {
    gpu: String,
    chip: String,
    backend: String,
    policy: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfVm {
    gpu: String,
    vm: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfEngine {
    gpu: String,
    vm: String,
    engine: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLimit {
    gpu: String,
    vm: String,
    limit: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStep {
    gpu: String,
    step: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLongStep {
    gpu: String,
    step: String,
    over: &'static str,
}

type Counters<L> = Family<L, Counter<f64, AtomicU64>>;
type Gauges<L> = Family<L, Gauge<f64, AtomicU64>>;

/// All metrics of some aggregators, in a form.
///
/// # Errors
/// Never: writing to memory does not fail.
pub fn exposition(answers: &[Answer], format: Format) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("gpuvmk");
    registry.register("build", "The program", Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));
    gpus(&mut registry, answers);
    steps(&mut registry, answers);
    vms(&mut registry, answers);
    engines(&mut registry, answers);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(format.of_openmetrics(text))
}

/// 1 for what is so.
fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// Seconds of so many nanoseconds.
fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

fn gpus(registry: &mut Registry, answers: &[Answer]) {
    let up = gauges(registry, "up", "Whether the GPU's aggregator answers", None);
    let info = gauges(registry, "gpu_info", "What a GPU is", None);
    let vram = gauges(registry, "gpu_vram", "VRAM for VMs", Some(Unit::Bytes));
    let channels = gauges(registry, "gpu_channels", "Channels for VMs", None);
    let lost = gauges(registry, "gpu_lost", "Whether the device is gone", None);
    let draining = gauges(registry, "gpu_draining", "Whether no more VMs are admitted", None);
    let refused =
        counters(registry, "gpu_refused", "Processes turned away at a socket, and hellos refused", None);
    let late = gauges(registry, "gpu_scheduler_lateness_p99", "How late decisions came", Some(Unit::Seconds));
    let strangers =
        counters(registry, "gpu_strangers_refused", "Refusals of connections that are no VMs", None);
    let reads = counters(registry, "gpu_card_reads", "Loads from a card by its aggregator", None);
    let writes = counters(registry, "gpu_card_writes", "Stores to a card by its aggregator", None);
    let reached = gauges(registry, "gpu_card_reach", "Host memory that a card reaches", Some(Unit::Bytes));
    for Answer { gpu, status } in answers {
        let of_gpu = OfGpu { gpu: gpu.clone() };
        up.get_or_create(&of_gpu).set(flag(status.is_some()));
        let Some(status) = status else { continue };
        let state = &status.gpu;
        let chip = Chip {
            gpu: gpu.clone(),
            chip: state.chip.clone(),
            backend: state.backend.clone(),
            policy: state.policy.to_string(),
        };
        info.get_or_create(&chip).set(1.0);
        for (label, bytes) in [("total", state.vram), ("largest_free", state.vram_free)] {
            vram.get_or_create(&OfGpuState { gpu: gpu.clone(), state: label }).set(bytes as f64);
        }
        for (label, count) in [("total", state.channels), ("free", state.channels_free)] {
            channels.get_or_create(&OfGpuState { gpu: gpu.clone(), state: label }).set(count.into());
        }
        lost.get_or_create(&of_gpu).set(flag(state.lost));
        strangers.get_or_create(&of_gpu).inc_by(state.strangers_refused as f64);
        draining.get_or_create(&of_gpu).set(flag(state.draining));
        for (label, count) in [("socket", state.refused_peers), ("hello", state.refused_hellos)] {
            let of_gpu = OfGpuState { gpu: gpu.clone(), state: label };
            refused.get_or_create(&of_gpu).inc_by(count as f64);
        }
        late.get_or_create(&of_gpu).set(seconds(state.late_ns.p99));
        if let Some(card) = state.card {
            reads.get_or_create(&of_gpu).inc_by(card.reads as f64);
            writes.get_or_create(&of_gpu).inc_by(card.writes as f64);
            reached.get_or_create(&of_gpu).set(card.reached as f64);
        }
    }
}

/// How long the thread that owns a GPU was at each kind of thing without looking at anything else.
fn steps(registry: &mut Registry, answers: &[Answer]) {
    let long =
        counters(registry, "gpu_long_steps", "Steps of the GPU's thread that took longer than that", None);
    let longest =
        gauges(registry, "gpu_step_longest", "The longest step of the GPU's thread", Some(Unit::Seconds));
    for Answer { gpu, status } in answers {
        for (step, times) in status.iter().flat_map(|status| &status.gpu.steps) {
            let of_step = OfStep { gpu: gpu.clone(), step: step.to_string() };
            longest.get_or_create(&of_step).set(seconds(times.longest_ns));
            for (over, count) in
                [("0.00002", times.over_20us), ("0.0002", times.over_200us), ("0.002", times.over_2ms)]
            {
                let labels = OfLongStep { gpu: gpu.clone(), step: step.to_string(), over };
                long.get_or_create(&labels).inc_by(count as f64);
            }
        }
    }
}

/// Where a number is in a VM's state.
type Count = fn(&TenantStatus) -> u64;

/// Counters and gauges of VMs that are one number of the state each: name, what it is, where it is.
const VM_COUNTERS: [(&str, &str, Count); 13] = [
    ("vm_submissions", "Doorbells", |vm| vm.submissions),
    ("vm_faults", "Faults and errors of its channels", |vm| vm.faults),
    ("vm_hangs", "Channels that were taken off because they made no progress", |vm| vm.hangs),
    ("vm_engine_resets", "Engines that were reset for them", |vm| vm.engine_resets),
    ("vm_fail_safes", "Times that it was not served any more", |vm| vm.fail_safe_count),
    ("vm_resets", "Function resets", |vm| vm.resets),
    ("vm_refusals", "Requests refused", |vm| vm.refusals),
    ("vm_throttles", "Times that doorbells had to wait because there were too many", |vm| vm.throttled),
    ("vm_dear_wakeups", "Wake-ups that took so long that it was slowed down", |vm| vm.dear_wakeups),
    ("vm_bad_pages", "Pages that pointed outside of its own memory", |vm| vm.bad_pages),
    ("vm_unmappable", "Times that memory of its own could not be mapped for the GPU", |vm| vm.unmappable),
    ("vm_lost_pages", "Pages of its memory that could not be had when an engine met them", |vm| {
        vm.lost_pages
    }),
    ("vm_foreign_accesses", "Engine accesses that left its own memory (must be 0)", |vm| {
        vm.foreign_accesses.unwrap_or(0)
    }),
];

fn each_vm(answers: &[Answer], mut visit: impl FnMut(OfVm, &TenantStatus)) {
    for Answer { gpu, status } in answers {
        for vm in status.iter().flat_map(|status| &status.tenants) {
            visit(OfVm { gpu: gpu.clone(), vm: vm.name.clone() }, vm);
        }
    }
}

fn vms(registry: &mut Registry, answers: &[Answer]) {
    for (name, help, count) in VM_COUNTERS {
        let family = counters(registry, name, help, None);
        each_vm(answers, |labels, vm| {
            family.get_or_create(&labels).inc_by(count(vm) as f64);
        });
    }
    let copied = counters(registry, "vm_copied", "Written by copies, as its backend says", Some(Unit::Bytes));
    let trapped =
        counters(registry, "vm_trapped_accesses", "Accesses to its function that its backend answered", None);
    let vram = gauges(registry, "vm_vram", "VRAM of the VM", Some(Unit::Bytes));
    let tables = gauges(registry, "vm_page_tables", "Shadow page tables of the VM", Some(Unit::Bytes));
    let channels = gauges(registry, "vm_channels", "Channels that exist", None);
    let paused = gauges(registry, "vm_paused", "Whether an operator paused it", None);
    let fail_safe = gauges(registry, "vm_fail_safe", "Whether it is not served", None);
    let penalty =
        counters(registry, "vm_hang_penalty", "Time that it had to wait for its hangs", Some(Unit::Seconds));
    let hits = counters(registry, "vm_limit_hits", "Times that a limit was met", None);
    each_vm(answers, |labels, vm| {
        copied.get_or_create(&labels).inc_by(vm.copied_bytes as f64);
        trapped.get_or_create(&labels).inc_by(vm.trapped as f64);
        vram.get_or_create(&labels).set(vm.vram as f64);
        tables.get_or_create(&labels).set(vm.table_bytes as f64);
        channels.get_or_create(&labels).set(vm.channels as f64);
        paused.get_or_create(&labels).set(flag(vm.paused));
        fail_safe.get_or_create(&labels).set(flag(vm.fail_safe.is_some()));
        penalty.get_or_create(&labels).inc_by(vm.hang_penalty_ms as f64 / 1e3);
        for (limit, state) in &vm.limits {
            let OfVm { gpu, vm } = labels.clone();
            hits.get_or_create(&OfLimit { gpu, vm, limit: limit.to_string() }).inc_by(state.hits as f64);
        }
    });
}

fn engines(registry: &mut Registry, answers: &[Answer]) {
    let used = counters(registry, "vm_gpu", "Time that an engine ran it", Some(Unit::Seconds));
    let waiting = counters(registry, "vm_waiting", "Time that it waited for its turn", Some(Unit::Seconds));
    let switches = counters(registry, "vm_switches", "Times that an engine was given to it alone", None);
    let depth = gauges(registry, "vm_queue_depth", "Ring entries not fetched at the last look", None);
    let wait =
        gauges(registry, "vm_wait_p99", "How long doorbells waited for their turn", Some(Unit::Seconds));
    each_vm(answers, |OfVm { gpu, vm }, state| {
        for engine in &state.engines {
            let labels = OfEngine { gpu: gpu.clone(), vm: vm.clone(), engine: engine.engine.clone() };
            used.get_or_create(&labels).inc_by(engine.used_us as f64 / 1e6);
            waiting.get_or_create(&labels).inc_by(engine.waiting_us as f64 / 1e6);
            switches.get_or_create(&labels).inc_by(engine.switches as f64);
            depth.get_or_create(&labels).set(engine.queue_depth as f64);
            wait.get_or_create(&labels).set(seconds(engine.wait_ns.p99));
        }
    });
}

fn counters<L>(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>) -> Counters<L>
where
    L: Clone + std::fmt::Debug + Eq + std::hash::Hash + EncodeLabelSet + Send + Sync + 'static,
{
    let family = Counters::<L>::default();
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, family.clone()),
        None => registry.register(name, help, family.clone()),
    }
    family
}

fn gauges<L>(registry: &mut Registry, name: &str, help: &str, unit: Option<Unit>) -> Gauges<L>
where
    L: Clone + std::fmt::Debug + Eq + std::hash::Hash + EncodeLabelSet + Send + Sync + 'static,
{
    let family = Gauges::<L>::default();
    match unit {
        Some(unit) => registry.register_with_unit(name, help, unit, family.clone()),
        None => registry.register(name, help, family.clone()),
    }
    family
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answers() -> Vec<Answer> {
        let vm = json!({
            "name": "vm1", "vram": 1 << 20, "submissions": 7, "paused": true, "hang_penalty_ms": 1500, "fail_safe": null,
            "limits": { "doorbells": { "hits": 3 } },
            "engines": [{ "engine": "copy0", "used_us": 2_500_000, "queue_depth": 4, "wait_ns": { "p99": 1_000_000 } }],
        });
        let card = json!({ "reads": 5, "writes": 6, "reached": 4096 });
        let gpu = json!({ "chip": "GF100", "backend": "soft", "policy": "fifo", "vram": 2 << 20, "lost": false, "card": card });
        let status = serde_json::from_value(json!({ "gpu": gpu, "tenants": [vm] })).unwrap();
        vec![Answer { gpu: "gpu0".into(), status: Some(status) }, Answer { gpu: "gpu1".into(), status: None }]
    }

    /// The families of a text, each with its samples, in the alphabet's order: no other order means anything.
    fn sorted(text: &str) -> String {
        let mut families: Vec<Vec<&str>> = Vec::new();
        for line in text.lines() {
            match families.last_mut() {
                Some(family) if !line.starts_with("# HELP ") => family.push(line),
                _ => families.push(vec![line]),
            }
        }
        // Within a family, the lines that describe it stay first.
        families.iter_mut().for_each(|family| family.sort_by_key(|line| (!line.starts_with("# "), *line)));
        families.sort();
        families.concat().join("\n")
    }

    /// Whoever has alerts and dashboards knows these very names. `UPDATE_DOCS=1` writes them anew.
    #[test]
    fn metrics_of_a_status_are_those_that_monitoring_knows() {
        let status = serde_json::from_str(include_str!("../../../tests/golden/status.json")).unwrap();
        let answers = [
            Answer { gpu: "gpu0".into(), status: Some(status) },
            Answer { gpu: "gpu1".into(), status: None },
        ];
        let text = exposition(&answers, Format::Openmetrics).unwrap();
        let found = format!("{}\n", sorted(text.strip_suffix("# EOF\n").unwrap()));
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/metrics.txt");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &found).unwrap();
        }
        let golden = std::fs::read_to_string(path).unwrap();
        assert!(
            found == golden,
            "tests/golden/metrics.txt is stale: set UPDATE_DOCS=1 and run this test:\n{found}"
        );
    }

    #[test]
    fn states_are_series_in_base_units() {
        let text = exposition(&answers(), Format::Openmetrics).unwrap();
        let classic = exposition(&answers(), Format::Classic).unwrap();
        for line in [
            "gpuvmk_up{gpu=\"gpu0\"} 1.0",
            "gpuvmk_up{gpu=\"gpu1\"} 0.0",
            "gpuvmk_gpu_info{gpu=\"gpu0\",chip=\"GF100\",backend=\"soft\",policy=\"fifo\"} 1.0",
            "gpuvmk_gpu_card_reads_total{gpu=\"gpu0\"} 5.0",
            "gpuvmk_gpu_card_writes_total{gpu=\"gpu0\"} 6.0",
            "gpuvmk_gpu_card_reach_bytes{gpu=\"gpu0\"} 4096.0",
            "gpuvmk_vm_gpu_seconds_total{gpu=\"gpu0\",vm=\"vm1\",engine=\"copy0\"} 2.5",
            "gpuvmk_vm_submissions_total{gpu=\"gpu0\",vm=\"vm1\"} 7.0",
            "gpuvmk_vm_hang_penalty_seconds_total{gpu=\"gpu0\",vm=\"vm1\"} 1.5",
            "gpuvmk_vm_limit_hits_total{gpu=\"gpu0\",vm=\"vm1\",limit=\"doorbells\"} 3.0",
            "gpuvmk_vm_wait_p99_seconds{gpu=\"gpu0\",vm=\"vm1\",engine=\"copy0\"} 0.001",
            "gpuvmk_vm_paused{gpu=\"gpu0\",vm=\"vm1\"} 1.0",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is missing in\n{text}");
            assert!(classic.lines().any(|one| one == line), "{line} is missing in\n{classic}");
        }
        assert!(text.contains("gpuvmk_build_info{version=") && text.ends_with("# EOF\n"));
        assert!(
            classic.contains("\n# TYPE gpuvmk_build_info gauge\n") && !classic.contains("# EOF"),
            "{classic}"
        );
    }
}
