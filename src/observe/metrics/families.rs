//! Metrics that are declared as counters of a struct, each a family of samples that differ in their labels.

use std::sync::atomic::AtomicU64;

use gpuvmk_counters::{Counted, Counter as Declared, Kind, Place};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

/// What all names begin with, before an underscore.
pub const PREFIX: &str = "gpuvmk";

/// Labels with their values.
pub(super) type Labels = Vec<(&'static str, String)>;

/// The name that samples of a counter have, if it is a metric.
pub fn name_of(at: &Place, counter: &Declared) -> Option<String> {
    let mut name = format!("{PREFIX}_{}", at.metric(counter)?);
    for ending in [counter.unit.base(), (counter.kind == Kind::Counter).then_some("total")] {
        name.extend(ending.into_iter().flat_map(|ending| ["_", ending]));
    }
    Some(name)
}

/// Counters of one name and one unit.
#[derive(Debug)]
struct OneFamily {
    name: String,
    help: String,
    kind: Kind,
    base: Option<&'static str>,
    samples: Vec<(Labels, f64)>,
}

impl OneFamily {
    fn is_of(&self, at: &Place, counter: &Declared) -> bool {
        self.base == counter.unit.base() && at.metric(counter).is_some_and(|name| name == self.name)
    }
}

/// All that were declared, in the order of their declaration.
#[derive(Debug)]
pub(super) struct Families(Vec<OneFamily>);

impl Families {
    /// Those of `T`, without samples.
    pub(super) fn declared<T: Counted>() -> Self {
        let mut families = Self(Vec::new());
        T::walk(None, &Place::default(), &mut |at, counter, _| {
            let Some(name) = at.metric(counter) else { return };
            if !families.0.iter().any(|family| family.is_of(at, counter)) {
                families.0.push(OneFamily {
                    name,
                    help: at.help_of(counter),
                    kind: counter.kind,
                    base: counter.unit.base(),
                    samples: Vec::new(),
                });
            }
        });
        families
    }

    /// Adds the samples of one state.
    pub(super) fn add<T: Counted>(&mut self, state: &T, at: &Place) {
        T::walk(Some(state), at, &mut |at, counter, value| {
            let Some(value) = value else { return };
            if let Some(family) = self.0.iter_mut().find(|family| family.is_of(at, counter)) {
                family.samples.push((at.labels_of(counter), counter.in_base(value)));
            }
        });
    }

    /// Hands them to whoever writes them.
    pub(super) fn register(self, registry: &mut Registry) {
        for OneFamily { name, help, kind, base, samples } in self.0 {
            match kind {
                Kind::Counter => {
                    let family = Family::<Labels, Counter<f64, AtomicU64>>::default();
                    for (labels, value) in samples {
                        family.get_or_create(&labels).inc_by(value);
                    }
                    register(registry, name, help, base, family);
                }
                Kind::Gauge => {
                    let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
                    for (labels, value) in samples {
                        family.get_or_create(&labels).set(value);
                    }
                    register(registry, name, help, base, family);
                }
            }
        }
    }
}

fn register(
    registry: &mut Registry,
    name: String,
    help: String,
    base: Option<&'static str>,
    metric: impl Metric,
) {
    match base {
        Some(base) => registry.register_with_unit(name, help, Unit::Other(base.to_owned()), metric),
        None => registry.register(name, help, metric),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use gpuvmk_control_client::Status;
    use gpuvmk_counters::Export;

    use super::*;

    /// What is declared of each counter of the status.
    fn declared(mut see: impl FnMut(&Place, &Declared)) {
        Status::walk(None, &Place::default(), &mut |at, counter, _| see(at, counter));
    }

    #[test]
    fn every_counter_of_the_status_is_a_metric_or_says_why_not() {
        declared(|at, counter| {
            let path = at.path_of(counter);
            assert!(!at.help_of(counter).is_empty() && !counter.help().is_empty(), "{path} has no help");
            match counter.export {
                Export::Metric { .. } => assert!(name_of(at, counter).is_some(), "{path} has no name"),
                Export::Nobody(why) => assert!(!why.is_empty(), "{path} has no reason"),
            }
        });
    }

    #[test]
    fn counters_that_are_one_metric_are_told_apart_and_are_of_one_kind() {
        let mut seen: BTreeMap<String, (Kind, Vec<&str>, BTreeSet<Labels>)> = BTreeMap::new();
        declared(|at, counter| {
            let Some(name) = name_of(at, counter) else { return };
            let labels = at.labels_of(counter);
            let keys: Vec<_> = labels.iter().map(|(key, _)| *key).collect();
            let family =
                seen.entry(name.clone()).or_insert_with(|| (counter.kind, keys.clone(), BTreeSet::new()));
            assert_eq!((family.0, &family.1), (counter.kind, &keys), "{name}");
            assert!(family.2.insert(labels), "{name} is declared twice");
        });
        assert!(seen.len() > 60, "{}", seen.len());
    }

    #[test]
    fn samples_have_the_names_that_are_declared() {
        let status: Status = serde_json::from_str(include_str!("../../../tests/golden/status.json")).unwrap();
        let answer = super::super::Answer { gpu: "gpu0".into(), status: Some(status) };
        let text = super::super::exposition(&[answer], super::super::Format::Openmetrics).unwrap();
        let names = text.lines().filter(|line| !line.starts_with('#'));
        let found: BTreeSet<_> = names.map(|line| line.split('{').next().unwrap().to_owned()).collect();
        let mut wanted: BTreeSet<_> =
            ["build_info", "gpu_info", "up"].into_iter().map(|name| format!("{PREFIX}_{name}")).collect();
        declared(|at, counter| wanted.extend(name_of(at, counter)));
        assert_eq!(found, wanted, "the golden status has every part");
    }
}
