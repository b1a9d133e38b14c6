//! What it costs to take the modelled GPU for another one.

use std::time::Duration;

use super::report::Report;
use super::run;
use super::scenario::{Arrival, Expect, GpuModel, Length, Load, Scenario, VmKind};
use crate::policy::{PolicyKind, Settings};
use crate::share::Share;
use gpuvmk_chip::Engine;

fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

fn vm(name: &str, weight: u32, length: u64, arrival: Arrival) -> VmKind {
    VmKind {
        name: name.into(),
        count: 1,
        share: Share { weight, ..Share::default() },
        come: Duration::ZERO,
        go: None,
        loads: vec![Load {
            engine: Engine::Graphics,
            length: Length::Constant(us(length)),
            piece: Some(us(100)),
            arrival,
        }],
        expect: None,
    }
}

/// Two busy VMs of different weight, and one with a little work now and then, on a GPU that changes over in
/// `switch` and is taken for one that does so in `taken_for`.
fn report(switch: u64, taken_for: u64) -> Report {
    let busy = || Arrival::Closed { think: Duration::ZERO, depth: 2 };
    run(&Scenario {
        duration: Duration::from_secs(10),
        seed: 1,
        policy: PolicyKind::Weighted,
        settings: Settings::default(),
        gpu: GpuModel {
            switch: us(switch),
            taken_for: us(taken_for),
            timeslice: us(1000),
            late: Duration::ZERO,
            counts: true,
            tells: true,
        },
        window: Duration::from_secs(1),
        vms: vec![
            vm("one", 100, 700, busy()),
            vm("two", 200, 700, busy()),
            vm("light", 100, 50, Arrival::Periodic { every: us(10_000) }),
        ],
        changes: Vec::new(),
        expect: Expect { jain: None, error: 2.0, wait_p99: None, idle: None },
    })
    .unwrap()
}

/// A card that is driven by registers is taken for one that changes over in 150 us; it is not known.
#[test]
fn shares_and_waits_are_nearly_the_same_where_the_time_of_a_change_is_taken_wrongly() {
    for switch in [40, 75, 150, 300, 400] {
        let (right, wrong) = (report(switch, switch), report(switch, 150));
        for (right, wrong) in right.vms.iter().zip(&wrong.vms) {
            let said = format!("{} with {switch} us: {right:?} and {wrong:?}", right.name);
            assert!((right.share - wrong.share).abs() < 2.0, "{said}");
            assert!(wrong.wait_p99_us <= right.wait_p99_us * 3 / 2 + 500, "{said}");
        }
        let ratio = |report: &Report| report.vms[1].share / report.vms[0].share;
        assert!((ratio(&wrong) - 2.0).abs() < 0.1, "with {switch} us: {}", ratio(&wrong));
        assert!((right.idle_with_work - wrong.idle_with_work).abs() < 2.0, "with {switch} us");
        assert!(wrong.accounting_error < 0.02, "with {switch} us");
    }
}
