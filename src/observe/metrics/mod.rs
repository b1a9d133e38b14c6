//! What operators' monitoring sees: aggregators' states as Prometheus metrics, as text.
//!
//! Which metrics there are is declared with the fields of [`Status`]; only `up`, `build` and `gpu_info` are
//! declared here. Names begin with `gpuvmk_`, and units are base units. Labels are the GPU, the VM, the
//! engine, the limit, and the kind of step of the GPU's thread. So guests cannot add series.

#[cfg(test)]
mod document;
mod families;
mod format;

use std::sync::atomic::AtomicU64;

use gpuvmk_control_client::Status;
use gpuvmk_counters::Place;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use self::families::{Families, Labels};
pub use families::{PREFIX, name_of};
pub use format::Format;

/// An aggregator's status (`status` of its control socket), or none.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The GPU's name: that of its control socket without its ending.
    pub gpu: String,
    /// Its status; `None` if it did not answer.
    pub status: Option<Status>,
}

/// All metrics of some aggregators, in a form.
///
/// # Errors
/// Never: writing to memory does not fail.
pub fn exposition(answers: &[Answer], format: Format) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix(PREFIX);
    registry.register("build", "The program", Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));
    gpus(&mut registry, answers);
    let mut families = Families::declared::<Status>();
    for Answer { gpu, status } in answers {
        let Some(status) = status else { continue };
        families.add(status, &Place::default().labelled("gpu", gpu));
    }
    families.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(format.of_openmetrics(text))
}

/// Which GPUs there are.
fn gpus(registry: &mut Registry, answers: &[Answer]) {
    let up = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    registry.register("up", "Whether the GPU's aggregator answers", up.clone());
    let info = Family::<Labels, Gauge<f64, AtomicU64>>::default();
    registry.register("gpu_info", "What a GPU is", info.clone());
    for Answer { gpu, status } in answers {
        let mut labels = vec![("gpu", gpu.clone())];
        up.get_or_create(&labels).set(f64::from(u8::from(status.is_some())));
        let Some(Status { gpu: state, .. }) = status else { continue };
        labels.push(("chip", state.chip.clone()));
        labels.push(("backend", state.backend.clone()));
        labels.push(("policy", state.policy.to_string()));
        info.get_or_create(&labels).set(1.0);
    }
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
