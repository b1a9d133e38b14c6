//! The client of an aggregator's control socket, and the schema of the aggregator's status.
//!
//! The aggregator fills in a [`Status`] and serialises it. `gpuvmk status`, `ls`, `top`, `metrics` and
//! `apply`, and the laboratory, read the same type back through [`status`](fn@status). Fields that an older
//! aggregator does not send have their default values; fields of a newer one that this schema lacks are
//! ignored.

mod client;
mod driver;
mod figures;
mod gpu;
mod tenant;

use gpuvmk_counters::counters;
use serde::{Deserialize, Serialize};

pub use client::{ControlError, call, status};
pub use driver::{DriverCounters, FaceCounters, GspCounters, LookCounters};
pub use figures::{Times, Word};
pub use gpu::{
    CardUse, Departures, GpuStatus, GuestStatus, ScrubReport, ScrubStatus, StepTable, StepTimes, TypeStatus,
};
pub use tenant::{
    DecidedBy, EngineStatus, FailSafeStatus, LimitStatus, LimitTable, ShareStatus, TenantCounters,
    TenantStatus,
};

counters! {
    /// State of an aggregator.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Status {
        /// The physical GPU.
        pub gpu: GpuStatus = (part "gpu"),
        /// Tenants, by age.
        pub tenants: Vec<TenantStatus> = (each "vm" "vm"),
    }
}

impl Status {
    /// The tenant whose name is `name`, if it is connected.
    pub fn tenant(&self, name: &str) -> Option<&TenantStatus> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A status with every optional part.
    fn full() -> Status {
        Status {
            gpu: GpuStatus {
                chip: "GF100".to_owned(),
                policy: "fifo".into(),
                card: Some(CardUse { reads: 1, writes: 2, reached: 3 }),
                launches_not_executed: Some(0),
                scrub: ScrubStatus {
                    figures: Some(ScrubReport { by: "processor".into(), ..ScrubReport::default() }),
                    foreign_accesses: Some(0),
                    departures: Departures { wanted_us: 5, ..Departures::default() },
                },
                steps: [("hello".into(), StepTimes { count: 1, ..StepTimes::default() })].into(),
                vms: Some(vec![GuestStatus { name: "vm1".to_owned(), ..GuestStatus::default() }]),
                types: vec![TypeStatus { name: "GF100-64M".to_owned(), ..TypeStatus::default() }],
                ..GpuStatus::default()
            },
            tenants: vec![TenantStatus {
                name: "vm1".to_owned(),
                state: "active".into(),
                fail_safe: Some(FailSafeStatus {
                    reason: "quota_exceeded".into(),
                    decided_by: DecidedBy::Backend,
                    for_ms: 1,
                    decided_us: 2,
                }),
                limits: [("channels".into(), LimitStatus { limit: Some(8), used: 1, hits: 0 })].into(),
                gpu_share: 0.1,
                share: Some(ShareStatus { weight: 100, ..ShareStatus::default() }),
                engines: vec![EngineStatus { engine: "copy0".to_owned(), ..EngineStatus::default() }],
                foreign_accesses: Some(0),
                ..TenantStatus::default()
            }],
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        for status in [Status::default(), full()] {
            let line = serde_json::to_string(&status).unwrap();
            assert_eq!(serde_json::from_str::<Status>(&line).unwrap(), status, "{line}");
            let value = serde_json::to_value(&status).unwrap();
            assert_eq!(serde_json::from_value::<Status>(value).unwrap(), status);
        }
    }

    /// Clients in other languages read these very keys: whoever changes them changes the version of the
    /// `api`.
    #[test]
    fn keys_of_the_status_are_those_that_clients_know() {
        let golden = include_str!("../../tests/golden/status.json");
        let status: Status = serde_json::from_str(golden).unwrap();
        let again = serde_json::to_string_pretty(&serde_json::to_value(&status).unwrap()).unwrap();
        assert_eq!(again.trim(), golden.trim());
    }

    #[test]
    fn older_and_newer_aggregators_are_understood() {
        let old = json!({ "gpu": { "chip": "GF100", "scrub": { "departures": {} } }, "tenants": [{ "name": "vm1" }] });
        let status: Status = serde_json::from_value(old).unwrap();
        assert_eq!((status.gpu.chip.as_str(), status.gpu.scrub.figures.as_ref()), ("GF100", None));
        assert_eq!(status.tenant("vm1").unwrap().pid, None);
        assert!(status.tenant("vm2").is_none());

        let mut new = serde_json::to_value(full()).unwrap();
        new["gpu"]["more"] = json!({ "of": "this" });
        new["tenants"][0]["more"] = Value::Null;
        assert_eq!(serde_json::from_value::<Status>(new).unwrap(), full());
    }

    #[test]
    fn scrubbing_without_figures_has_no_keys_of_theirs() {
        let value = serde_json::to_value(ScrubStatus::default()).unwrap();
        let keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["departures", "foreign_accesses"]);
    }
}
