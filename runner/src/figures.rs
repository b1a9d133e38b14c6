//! The figures that a run is about: what guests measured beside what the same machine does without them.
//!
//! All ratios are of mediated to native; for speeds 1 is as fast as native, for costs 1 is as cheap.

use std::collections::{BTreeMap, BTreeSet};

use gpuvmk_lab::traffic;
use serde_json::{Map, Value, json};

use crate::policies::PolicyFigures;
use crate::record::round;
use crate::step::{GuestResult, StepResult};
use crate::suite;

/// Directions of copies, and the sizes that count: 16 MiB and more; as guests and as `gpuvmk gpu bench` call
/// them.
const DIRECTIONS: [(&str, &str); 3] =
    [("to_vram", "system to video"), ("within_vram", "video to video"), ("from_vram", "video to system")];
const SIZES: [(&str, &str); 2] = [("16m", "16 MiB"), ("64m", "64 MiB")];
/// Native figures beside figures of ours, which are sums of theirs. Guests' buffers are mapped by pages of 2
/// MiB. The calls right after each other are the strict measure: after pauses they take two to three times as
/// long.
const NATIVE: [(&str, &[&str]); 2] = [
    (COMPUTE, &["compute kernel spin, time of the GPU"]),
    (
        MAP,
        &[
            "map 4 MiB of video memory, 2M pages, after a pause",
            "unmap 4 MiB of video memory, 2M pages, after a pause",
        ],
    ),
];
/// The same calls one right after the other, as no guest's are.
const WITHOUT_PAUSE: [&str; 2] =
    ["map 4 MiB of video memory, 2M pages", "unmap 4 MiB of video memory, 2M pages"];
/// The GPU's own time for a kernel that runs a millisecond or longer.
const COMPUTE: &str = "spin_gpu_us";
/// One map and one unmap of 4 MiB.
const MAP: &str = "map_unmap_4m_us";

/// What to reach, by the name of the ratio: at least, or at most.
const TARGETS: [(&str, Limit); 8] = [
    ("copy_over_native", Limit::AtLeast(0.95)),
    ("doorbell_us", Limit::AtMost(2.0)),
    ("compute_over_native", Limit::AtLeast(0.98)),
    ("share_error", Limit::AtMost(0.05)),
    ("map_over_native", Limit::AtMost(1.3)),
    ("reads_per_submission", Limit::AtMost(7.0)),
    ("policies_jain", Limit::AtLeast(0.99)),
    // One turn of each other guest of eight.
    ("light_p99_slices", Limit::AtMost(7.0)),
];

#[derive(Debug, Clone, Copy)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

/// Figures as they come in.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    /// Every native sample, by name.
    native: BTreeMap<String, Vec<f64>>,
    /// Figures of the guest that was alone.
    guest: BTreeMap<String, f64>,
    doorbell_us: Option<f64>,
    doorbell_us_p99: Option<f64>,
    reads_per_submission: Option<f64>,
    share_error: Option<f64>,
    policies: Vec<PolicyFigures>,
}

impl Figures {
    /// Takes the answer of `gpuvmk gpu bench` in: a list of figures with names and medians.
    pub fn native(&mut self, report: &Value) {
        for figure in report.get("figures").and_then(Value::as_array).into_iter().flatten() {
            let name = figure.get("name").and_then(Value::as_str);
            if let (Some(name), Some(median)) = (name, figure.get("p50").and_then(Value::as_f64)) {
                self.native.entry(name.to_owned()).or_default().push(median);
            }
        }
    }

    /// The median of what the native client measured, or the sum of several such.
    fn native_of(&self, names: &[impl AsRef<str>]) -> Option<f64> {
        names.iter().map(|name| median(self.native.get(name.as_ref())?)).sum()
    }

    /// Takes a step's results in.
    pub fn step(&mut self, result: &StepResult) {
        match result.name.as_str() {
            suite::SPEED => self.alone(result),
            suite::COUNTS => self.differences(result),
            suite::SHARE => self.share(result),
            _ => {}
        }
        self.policies.extend(result.policies.iter().cloned());
        if let [only] = result.guests.as_slice() {
            self.doorbell(only);
        }
    }

    fn alone(&mut self, result: &StepResult) {
        let results = result.guests.iter().flat_map(|guest| &guest.verdict.results);
        for (name, value) in results.flat_map(|result| &result.figures) {
            let measured =
                ["_us", "_us_p50", "_us_p90", "_gb_s", "_mb_s"].iter().any(|end| name.ends_with(end));
            if let Some(value) = value.as_f64().filter(|_| measured) {
                self.guest.insert(name.clone(), value);
            }
        }
    }

    /// Doorbells of a guest that was alone; the first such guest counts, later ones did other things too.
    fn doorbell(&mut self, guest: &GuestResult) {
        if self.doorbell_us.is_none()
            && let Some(tenant) = &guest.tenant
        {
            let times = tenant.doorbell_ns;
            self.doorbell_us = Some(times.p50 as f64 / 1000.0);
            self.doorbell_us_p99 = Some(times.p99 as f64 / 1000.0);
        }
    }

    fn differences(&mut self, result: &StepResult) {
        let difference = |few: &str, many: &str, value: &dyn Fn(&GuestResult) -> Option<f64>| {
            Some(value(result.guest(many)?)? - value(result.guest(few)?)?)
        };
        let reads = |guest: &GuestResult| traffic::counted(&guest.device_log, "Session ends:", &["reads"]);
        // Each submission is made twice: waited for asleep, and awake.
        let submissions = 2.0 * f64::from(suite::MANY_SUBMISSIONS - suite::FEW_SUBMISSIONS);
        self.reads_per_submission =
            difference("few-submissions", "many-submissions", &reads).map(|reads| reads / submissions);
        // Of all of the guest's mappings nearly all are those of the program, and the median is one of those.
        let nanos = |names: &[&str]| {
            traffic::counted(&result.guest("mappings")?.device_log, "Walks of page tables:", names)
        };
        if let Some(nanos) = nanos(&["map_p50_ns", "unmap_p50_ns"]) {
            self.guest.insert(MAP.to_owned(), nanos / 1000.0);
        }
        if let Some(nanos) = nanos(&["map_p99_ns", "unmap_p99_ns"]) {
            self.guest.insert("map_unmap_4m_us_p99".to_owned(), nanos / 1000.0);
        }
    }

    fn share(&mut self, result: &StepResult) {
        if let [one, other] = result.guests.as_slice()
            && let (Some(one), Some(other)) = (slots(one), slots(other))
        {
            self.share_error = share_error(&one, &other);
        }
    }

    /// What the result has beside the guests, by key.
    pub fn ratios(&self) -> Vec<(&'static str, Value)> {
        let number = |value: Option<f64>| value.map_or(Value::Null, |value| round(value).into());
        let copies: Map<String, Value> = DIRECTIONS
            .into_iter()
            .filter_map(|direction| Some((direction.0.to_owned(), round(self.copy(direction)?).into())))
            .collect();
        let copies = if copies.is_empty() { Value::Null } else { copies.into() };
        vec![
            ("copy_over_native", copies),
            ("doorbell_us", number(self.doorbell_us)),
            // Times: native over mediated is the speed.
            ("compute_over_native", number(self.over_native(COMPUTE).map(|ratio| 1.0 / ratio))),
            ("share_error", number(self.share_error)),
            ("map_over_native", number(self.over_native(MAP))),
            ("map_over_native_without_pause", number(self.over(MAP, &WITHOUT_PAUSE))),
            ("reads_per_submission", number(self.reads_per_submission)),
            ("policies_jain", self.of_fair_policies(|policy| policy.jain)),
            ("light_p99_slices", self.of_fair_policies(|policy| policy.light_p99_slices)),
        ]
    }

    /// A figure of each policy that promises equals the same.
    fn of_fair_policies(&self, figure: impl Fn(&PolicyFigures) -> f64) -> Value {
        let fair = self.policies.iter().filter(|policy| policy.is_fair());
        let found: Map<String, Value> =
            fair.map(|policy| (policy.name.to_owned(), round(figure(policy)).into())).collect();
        if found.is_empty() { Value::Null } else { found.into() }
    }

    /// The slowest of the sizes.
    fn copy(&self, (direction, route): (&str, &str)) -> Option<f64> {
        let ratios = SIZES.into_iter().filter_map(|(label, size)| {
            // The engine that nouveau's ordinary copies use.
            let native = self.native_of(&[format!("Copy(1) {route} {size}, 2M pages")])?;
            Some(self.guest.get(&format!("{direction}_{label}_gb_s"))? / native)
        });
        ratios.min_by(f64::total_cmp)
    }

    fn over_native(&self, name: &str) -> Option<f64> {
        let (_, native) = NATIVE.iter().find(|(ours, _)| *ours == name)?;
        self.over(name, native)
    }

    /// A guest's figure over the sum of native ones.
    fn over(&self, name: &str, native: &[&str]) -> Option<f64> {
        let native = self.native_of(native).filter(|native| *native > 0.0)?;
        Some(self.guest.get(name)? / native)
    }

    /// Every figure, for whoever wants to know what a ratio was made of.
    pub fn to_json(&self) -> Value {
        let guest: Map<String, Value> =
            self.guest.iter().map(|(name, value)| (name.clone(), round(*value).into())).collect();
        let policies: Vec<Value> = self.policies.iter().map(PolicyFigures::to_json).collect();
        json!({ "policies": policies, "guest": guest, "native": self.native, "doorbell_us_p99": self.doorbell_us_p99.map(round) })
    }
}

/// Each target with what was found; one that was not measured was not reached, and says so by its value.
pub fn targets(ratios: &[(&'static str, Value)]) -> Value {
    let target = |(name, limit): &(&str, Limit)| {
        let value = ratios.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let worst = value.and_then(|value| worst(value, *limit));
        let (bound, met) = match *limit {
            Limit::AtLeast(least) => {
                (json!({ "at_least": least }), worst.is_some_and(|value| value >= least))
            }
            Limit::AtMost(most) => (json!({ "at_most": most }), worst.is_some_and(|value| value <= most)),
        };
        json!({ "name": name, "value": worst, "target": bound, "met": met })
    };
    TARGETS.iter().map(target).collect::<Vec<_>>().into()
}

/// A value, or the worst of an object's.
fn worst(value: &Value, limit: Limit) -> Option<f64> {
    let values: Vec<f64> = match value {
        Value::Object(fields) => fields.values().filter_map(Value::as_f64).collect(),
        other => other.as_f64().into_iter().collect(),
    };
    let least = values.iter().copied().min_by(f64::total_cmp);
    let most = values.iter().copied().max_by(f64::total_cmp);
    match limit {
        Limit::AtLeast(_) => least,
        Limit::AtMost(_) => most,
    }
}

fn median(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len().is_multiple_of(2) { Some((sorted.get(middle - 1)? + upper) / 2.0) } else { Some(upper) }
}

/// Work done in each slot of the GPU's time, as `busy` reports it: pairs of slot and count.
fn slots(guest: &GuestResult) -> Option<BTreeMap<u64, f64>> {
    let found = guest.verdict.result("busy", 0)?.figures.get("slots")?.as_array()?.clone();
    found.iter().map(|pair| Some((pair.get(0)?.as_u64()?, pair.get(1)?.as_f64()?))).collect()
}

/// How far two guests are from equal shares while both were busy: 0 is equal, 1 is all for one. The GPU's
/// clock is one for both, so slots with the same number are the same time.
fn share_error(one: &BTreeMap<u64, f64>, other: &BTreeMap<u64, f64>) -> Option<f64> {
    let keys = |map: &BTreeMap<u64, f64>| map.keys().copied().collect::<BTreeSet<u64>>();
    // The first and the last slot are busy for a part only.
    let first = keys(one).first()?.max(keys(other).first()?).saturating_add(1);
    let last = keys(one).last()?.min(keys(other).last()?).saturating_sub(1);
    if first >= last {
        return None;
    }
    let sum = |map: &BTreeMap<u64, f64>| map.range(first..=last).map(|(_, count)| count).sum::<f64>();
    let (one, other) = (sum(one), sum(other));
    (one + other > 0.0).then(|| (one - other).abs() / (one + other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_lab::report::Report;
    use gpuvmk_lab::verdict::Verdict;
    use std::time::Duration;

    fn guest(name: &str, reports: &[&str], device_log: &str) -> GuestResult {
        let results = reports.iter().map(|line| match Report::parse(&format!("GPUVMK-JSON {line}")) {
            Some(Report::Result(result)) => result,
            other => panic!("{other:?}"),
        });
        let tenant = r#"{"name":"a","doorbell_ns":{"count":9,"p50":1500,"p99":2500}}"#;
        GuestResult {
            guest: suite::Guest {
                name: name.into(),
                programs: Vec::new(),
                cpus: 1,
                memory_mib: 512,
                vram_mib: 256,
                kernel_words: &[],
            },
            verdict: Verdict { problems: Vec::new(), results: results.collect() },
            kernel: None,
            probe_ms: None,
            wall: Duration::ZERO,
            tenant: serde_json::from_str(tenant).ok(),
            device_log: device_log.into(),
        }
    }

    fn step(name: &str, guests: Vec<GuestResult>) -> StepResult {
        StepResult { name: name.into(), guests, ..StepResult::default() }
    }

    fn ratio(figures: &Figures, name: &str) -> Value {
        figures.ratios().into_iter().find(|(key, _)| *key == name).unwrap().1
    }

    #[test]
    fn copies_and_compute_stand_beside_the_native_median() {
        let mut figures = Figures::default();
        for speed in [40.0, 44.0] {
            figures.native(&json!({ "name": "H200", "figures": [
                { "name": "Copy(1) system to video 16 MiB, 2M pages", "p50": speed },
                { "name": "Copy(1) system to video 64 MiB, 2M pages", "p50": 40.0 },
                { "name": "compute kernel spin, time of the GPU", "p50": 1000.0 },
            ] }));
        }
        let bandwidth = r#"{"prog":"bandwidth","ok":true,"to_vram_16m_gb_s":39.9,"to_vram_64m_gb_s":40.0}"#;
        let compute = r#"{"prog":"compute","ok":true,"spin_gpu_us":1250.0}"#;
        figures.step(&step(suite::SPEED, vec![guest("speed", &[bandwidth, compute], "")]));

        assert_eq!(ratio(&figures, "copy_over_native"), json!({ "to_vram": 0.95 }));
        assert_eq!(ratio(&figures, "compute_over_native"), json!(0.8));
        assert_eq!(ratio(&figures, "doorbell_us"), json!(1.5));
        let targets = targets(&figures.ratios());
        assert_eq!(targets[0]["met"], true);
        assert_eq!(targets[1]["met"], true);
        assert_eq!(targets[2]["met"], false);
        assert_eq!(targets[3]["value"], Value::Null, "what was not measured was not reached");
        assert_eq!(targets[3]["met"], false);
    }

    #[test]
    fn reads_are_the_difference_of_two_guests_and_mappings_the_medians_of_one() {
        let session = |reads: u32| format!("Session ends: messages=1 reads={reads} writes=3\n");
        let walks =
            "Walks of page tables: map_p50_ns=70000 map_p99_ns=90000 unmap_p50_ns=50000 unmap_p99_ns=60000\n";
        let mut figures = Figures::default();
        figures.native(&json!({ "figures": [
            { "name": "map 4 MiB of video memory, 2M pages", "p50": 35.0 },
            { "name": "unmap 4 MiB of video memory, 2M pages", "p50": 25.0 },
            { "name": "map 4 MiB of video memory, 2M pages, after a pause", "p50": 60.0 },
            { "name": "unmap 4 MiB of video memory, 2M pages, after a pause", "p50": 40.0 },
        ] }));
        figures.step(&step(
            suite::COUNTS,
            vec![
                guest("few-submissions", &[], &session(1000)),
                guest("many-submissions", &[], &session(5000)),
                guest("mappings", &[], walks),
            ],
        ));
        assert_eq!(ratio(&figures, "reads_per_submission"), json!(4.0));
        assert_eq!(ratio(&figures, "map_over_native"), json!(1.2));
        assert_eq!(ratio(&figures, "map_over_native_without_pause"), json!(2.0));
    }

    #[test]
    fn shares_count_where_both_were_busy() {
        let busy = |pairs: &str| format!(r#"{{"prog":"busy","ok":true,"slots":[{pairs}]}}"#);
        let one = busy("[9,50],[10,10],[11,11],[12,10],[13,2]");
        let other = busy("[10,1],[11,9],[12,10],[13,10],[14,99]");
        let mut figures = Figures::default();
        figures.step(&step(suite::SHARE, vec![guest("busy1", &[&one], ""), guest("busy2", &[&other], "")]));
        assert_eq!(ratio(&figures, "share_error"), json!(0.05));
    }

    #[test]
    fn guests_that_were_never_busy_together_have_no_share() {
        let map = |pairs: &[(u64, f64)]| pairs.iter().copied().collect::<BTreeMap<u64, f64>>();
        assert_eq!(share_error(&map(&[(1, 5.0), (2, 5.0)]), &map(&[(7, 5.0), (8, 5.0)])), None);
        assert_eq!(share_error(&map(&[]), &map(&[])), None);
    }
}
