//! Tenants that the aggregator itself stops serving.

use super::*;
use crate::limit::Limit;
use crate::machine::status::add_report;
use crate::report::{FailSafeReason, FailSafeState, Report, Usage};
use gpuvmk_control_client::DecidedBy;

/// A hostile backend's request.
fn nonsense(machine: &mut Machine, tenant: TenantId) {
    let twice = Request::Hello(hello("again"));
    assert_eq!(refused(machine, tenant, twice), RefusalKind::Protocol);
}

#[test]
fn backend_that_breaks_the_protocol_again_and_again_loses_its_channels_until_a_reset() {
    let (mut machine, fake, a, b) = two_tenants();
    (0..100).for_each(|_| nonsense(&mut machine, a));
    settle(&mut machine, T0);

    let status = machine.status("fake");
    let told = status.tenants[0].fail_safe.clone().expect("in fail-safe state");
    assert_eq!((told.reason.as_ref(), told.decided_by), ("protocol_violation", DecidedBy::Aggregator));
    assert!(told.decided_us < 100_000, "decided after {} us", told.decided_us);
    assert_eq!(status.tenants[0].counters.fail_safe_count, 1);
    assert_eq!((status.tenants[0].channels, status.tenants[1].channels), (0, 1));
    assert_eq!(refused(&mut machine, a, Request::CreateSpace(SpaceId(1))), RefusalKind::Protocol);
    done(&mut machine, b, map(0x5000, system(0)));

    assert_eq!(machine.request(a, Request::Reset { scrub: true }, None, T0), Outcome::Later);
    settle(&mut machine, T0);
    let status = machine.status("fake");
    assert_eq!((&status.tenants[0].fail_safe, status.tenants[0].counters.fail_safe_count), (&None, 1));
    done(&mut machine, a, Request::CreateSpace(SpaceId(0)));
    assert_eq!(fake.state().channels.len(), 1);
}

#[test]
fn update_under_way_ends_with_the_fail_safe_state_and_withholds_nothing() {
    let (mut machine, fake, a, _) = two_tenants();
    done(&mut machine, a, Request::DmaUnmap { gpa: Gpa(0), size: 16 * MIB });
    dma_map(&mut machine, a, 0, 1 << 30);
    assert_eq!(machine.request(a, map_of_a_gib(), None, T0), Outcome::Later);

    (0..100).for_each(|_| nonsense(&mut machine, a));
    settle(&mut machine, T0);

    let answers = outputs(&mut machine);
    assert!(
        matches!(answers[..], [Output::Reply(to, Reply::Refused { .. })] if to == a),
        "one answer to the update, not {answers:?}"
    );
    let told = machine.status("fake").tenants[0].fail_safe.clone().expect("in fail-safe state");
    assert_eq!(told.reason, "protocol_violation");
    machine.leave(a, false, T0);
    settle(&mut machine, T0);
    assert_eq!(outputs(&mut machine), [Output::Gone(a)]);
    let whole = fake.state().owners.values().filter(|(_, owner)| *owner == Some(a)).count();
    assert_eq!(whole, 0, "its VRAM is free again");
}

#[test]
fn a_few_mistakes_cost_nothing() {
    let (mut machine, _fake, a, _) = two_tenants();
    (0..5).for_each(|_| nonsense(&mut machine, a));
    assert_eq!(machine.status("fake").tenants[0].fail_safe, None);
    done(&mut machine, a, Request::CreateSpace(SpaceId(1)));
}

#[test]
fn hardware_that_does_not_let_go_is_told_and_outlives_a_reset() {
    let (mut machine, fake, a, _) = two_tenants();
    fake.state().stuck = true;
    assert_eq!(machine.request(a, Request::Reset { scrub: true }, None, T0), Outcome::Later);
    settle(&mut machine, T0);

    let told = machine.status("fake").tenants[0].fail_safe.clone().expect("in fail-safe state");
    assert_eq!(told.reason, "hardware_failed");
}

#[test]
fn limits_that_were_met_are_counted() {
    let (mut machine, _fake, a, _) = two_tenants();
    let too_high = Request::CreateSpace(SpaceId(99));
    assert_eq!(refused(&mut machine, a, too_high), RefusalKind::BadId);
    refused(&mut machine, a, create_channel(99));

    let status = machine.status("fake");
    let of = |tenant: usize, limit: Limit| status.tenants[tenant].limits[limit.name()];
    assert_eq!((of(0, Limit::Spaces).hits, of(0, Limit::Channels).hits), (1, 1));
    assert_eq!((of(1, Limit::Spaces).hits, of(1, Limit::Channels).hits), (0, 0));
    assert_eq!((of(0, Limit::Channels).limit, of(0, Limit::Channels).used), (Some(4), 1));
}

#[test]
fn report_of_a_backend_adds_to_the_status_and_overrides_nothing() {
    let (machine, _fake, ..) = two_tenants();
    let mut status = machine.status("fake");
    let now = FailSafeState { reason: FailSafeReason::QuotaExceeded, since: 0, decided_us: 3 };
    let lie = Usage { limit: 1, used: 0, hits: 0 };
    let report = Report {
        fail_safe: Some(now),
        fail_safe_count: 2,
        limits: vec![(Limit::Channels, lie), (Limit::Flushes, Usage { limit: 10, used: 20, hits: 5 })],
    };

    add_report(&mut status.tenants[0], &report);

    let told = status.tenants[0].fail_safe.clone().expect("in fail-safe state");
    assert_eq!((told.reason.as_ref(), told.decided_by), ("quota_exceeded", DecidedBy::Backend));
    assert_eq!(status.tenants[0].limits["channels"].limit, Some(4));
    assert_eq!(status.tenants[0].limits["flushes"].hits, 5);
    assert_eq!(status.tenants[0].counters.fail_safe_count, 2);
}
