//! Hangs on both software GPUs, whose engines let go of work between methods only: a guest's endless copy,
//! its acquire that nobody releases, its channel that it leaves behind. Neighbours copy and compare all the
//! time; what counts is how long they stand still.
//!
//! `loop_of_a_hundred` is for `cargo xtask bench sched`, which runs it by name and reads the line of JSON
//! that it prints.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test that cannot go on panics")]

use std::time::{Duration, Instant};

use crate::hanging::{Field, Harm, Pauses};
use gpuvmk::chip::Chip;
use gpuvmk::scheduler::HangLimits;
use gpuvmk::scheduler::policy::PolicyKind;

const MS: Duration = Duration::from_millis(1);
/// What other VMs may lose by a hang, at the very most.
const ALWAYS: Duration = Duration::from_secs(2);

/// Limits for a test that cannot wait long, and no penalties.
fn quick() -> HangLimits {
    HangLimits {
        progress: Some(MS * 600),
        acquire: Some(MS * 400),
        penalty: Duration::ZERO,
        ..HangLimits::default()
    }
}

fn judge(field: &Field, pauses: &Pauses, hangs: u64) {
    let status = field.service.status().unwrap();
    assert!(pauses.longest() < ALWAYS, "{pauses:?}");
    for tenant in &status.tenants {
        assert_eq!(tenant.foreign_accesses, Some(0), "{}", tenant.name);
        let expected = if tenant.name == "hog" { hangs } else { 0 };
        assert_eq!(tenant.hangs, expected, "{}", tenant.name);
        assert_eq!(tenant.fail_safe, None, "{}", tenant.name);
    }
}

fn endless_copies(chip: Chip, policy: PolicyKind) {
    let mut field = Field::new(chip, policy, quick(), 2);

    let pauses = field.hang(Harm::Endless, 3);

    judge(&field, &pauses, 3);
    let status = field.service.status().unwrap();
    let resets = status.tenants.iter().map(|tenant| tenant.engine_resets).sum::<u64>();
    assert_eq!(resets, 3, "no engine lets go of an endless copy by itself");
}

#[test]
fn endless_copies_cost_neighbours_a_moment_each_under_fifo() {
    for chip in [Chip::GF100, Chip::GH100] {
        endless_copies(chip, PolicyKind::Fifo);
    }
}

#[test]
fn endless_copies_cost_neighbours_a_moment_each_when_vms_take_turns() {
    for chip in [Chip::GF100, Chip::GH100] {
        endless_copies(chip, PolicyKind::BestEffort);
    }
}

#[test]
fn acquire_that_nobody_releases_costs_its_own_channel_and_no_neighbour_anything() {
    for chip in [Chip::GF100, Chip::GH100] {
        let mut field = Field::new(chip, PolicyKind::BestEffort, quick(), 2);

        let pauses = field.hang(Harm::Acquire, 1);

        judge(&field, &pauses, 1);
        let status = field.service.status().unwrap();
        assert_eq!(status.tenants.iter().map(|tenant| tenant.engine_resets).sum::<u64>(), 0);
    }
}

#[test]
fn vm_that_leaves_an_endless_copy_behind_is_gone_in_time() {
    for chip in [Chip::GF100, Chip::GH100] {
        let mut field = Field::new(chip, PolicyKind::Fifo, quick(), 1);
        let start = Instant::now();

        let pauses = field.abandon(Harm::Endless);

        assert!(start.elapsed() < ALWAYS);
        assert!(pauses.longest() < ALWAYS, "{pauses:?}");
    }
}

#[test]
fn penalties_keep_a_vm_from_hanging_as_often_as_it_likes() {
    let config = HangLimits { penalty: MS * 150, penalty_cap: MS * 300, ..quick() };
    let mut field = Field::new(Chip::GF100, PolicyKind::Fifo, config, 1);
    let start = Instant::now();

    let pauses = field.hang(Harm::Endless, 4);

    // The first costs nothing; the fourth one's wait has only just begun.
    assert!(start.elapsed() > MS * (150 + 300), "{:?}", start.elapsed());
    judge(&field, &pauses, 4);
    let status = field.service.status().unwrap();
    let hog = status.tenants.iter().find(|tenant| tenant.name == "hog").unwrap();
    assert_eq!(hog.hang_penalty_ms, 150 + 300 + 300);
}

/// Takes some minutes; prints figures instead of judging more than that nothing breaks.
#[test]
#[ignore = "measures; cargo xtask bench sched runs it"]
fn loop_of_a_hundred() {
    let times = std::env::var("GPUVMK_HANGS").map_or(100, |times| times.parse().unwrap());
    let mut parts = Vec::new();
    for chip in [Chip::GF100, Chip::GH100] {
        for policy in [PolicyKind::Fifo, PolicyKind::BestEffort] {
            for penalties in [false, true] {
                let penalty = if penalties { MS * 10 } else { Duration::ZERO };
                let config = HangLimits { penalty, penalty_cap: MS * 200, ..quick() };
                let mut field = Field::new(chip, policy, config, 3);
                let pauses = field.hang(Harm::Endless, times);
                judge(&field, &pauses, times.into());
                parts.push(serde_json::json!({
                    "chip": chip.name(),
                    "policy": field.service.status().unwrap().gpu.policy,
                    "penalties": penalties,
                    "hangs": times,
                    "hang_p50_ms": pauses.percentile(50).as_millis() as u64,
                    "hang_p99_ms": pauses.percentile(99).as_millis() as u64,
                    "hang_max_ms": pauses.longest().as_millis() as u64,
                }));
            }
        }
    }
    let most = |key: &str| parts.iter().filter_map(|part| part[key].as_u64()).max();
    let (p99, max) = (most("hang_p99_ms"), most("hang_max_ms"));
    let ok = p99 < Some(500) && max < Some(2000);
    println!("{}", serde_json::json!({ "ok": ok, "hang_p99_ms": p99, "hang_max_ms": max, "parts": parts }));
}
