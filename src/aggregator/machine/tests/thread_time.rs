//! The thread is shared by time, not by requests.

use super::*;
use crate::limit::Limit;

const US: Duration = Duration::from_micros(1);

/// Lets `a` ask without end for `cost` each time and `b` for a microsecond every 100: how much of the thread
/// `a` gets in `time`, and how often `b` was made to wait.
fn storm(
    machine: &mut Machine,
    a: TenantId,
    b: Option<TenantId>,
    cost: Duration,
    time: Duration,
) -> (Duration, u32) {
    let (mut now, mut taken, mut next_b, mut waits) =
        (Duration::from_secs(1), Duration::ZERO, Duration::ZERO, 0);
    let end = now + time;
    while now < end {
        if let Some(b) = b
            && now >= next_b
        {
            next_b = now + US * 100;
            match machine.thread_wait(b, now) {
                None => {
                    machine.charge(b, US);
                    now += US;
                }
                Some(_) => waits += 1,
            }
        }
        match machine.thread_wait(a, now) {
            None => {
                machine.charge(a, cost);
                taken += cost;
                now += cost;
            }
            Some(until) => now = until.min(now + US * 20),
        }
    }
    (taken, waits)
}

#[test]
fn storm_gets_its_share_while_another_tenant_wants_the_thread() {
    let (mut machine, _fake, a, b) = two_tenants();

    let (taken, waits) = storm(&mut machine, a, Some(b), US * 80, SECOND);

    assert!((450..=550).contains(&taken.as_millis()), "{taken:?}");
    assert_eq!(waits, 0);
    let status = machine.status("fake");
    let thread = |tenant: usize| status.tenants[tenant].limits[Limit::ThreadTime.name()];
    assert!(thread(0).hits > 0 && thread(0).used >= 450, "{:?}", thread(0));
    assert_eq!(thread(1).hits, 0);
}

#[test]
fn lone_tenant_may_have_the_whole_thread_unless_its_file_says_less() {
    let (mut machine, _fake) = machine();
    let limits = TenantLimits { thread_time: 25, ..TenantLimits::default() };
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;
    let quarter = machine.admit(&Hello { limits, ..hello("quarter") }, T0).unwrap().tenant;

    let (taken, _) = storm(&mut machine, a, None, US * 80, SECOND);
    assert!(taken >= Duration::from_millis(990), "{taken:?}");
    let (taken, _) = storm(&mut machine, quarter, None, US * 80, SECOND);
    assert!((240..=270).contains(&taken.as_millis()), "{taken:?}");
}

#[test]
fn share_of_a_storm_shrinks_with_the_number_of_those_who_want_the_thread() {
    let (mut machine, _fake) = machine();
    let a = machine.admit(&Hello { channels: 2, ..hello("a") }, T0).unwrap().tenant;
    let others: Vec<_> = (0..3)
        .map(|i| machine.admit(&Hello { channels: 2, ..hello(&format!("vm{i}")) }, T0).unwrap().tenant)
        .collect();
    let now = Duration::from_secs(1);
    for other in others {
        assert_eq!(machine.thread_wait(other, now), None);
    }
    assert_eq!(machine.thread_wait(a, now), None);
    machine.charge(a, Duration::from_millis(15));

    // 5 ms were saved, 10 are overdrawn, and a quarter of the time is its own.
    assert_eq!(machine.thread_wait(a, now), Some(now + Duration::from_millis(40)));
}

#[test]
fn long_update_of_a_storm_waits_for_its_share_and_is_done_in_the_end() {
    let (mut machine, fake, a, b) = two_tenants();
    machine.charge(a, Duration::from_secs(1));
    let now = Duration::from_millis(1);
    assert_eq!(machine.thread_wait(b, now), None);
    let everything = GuestMapping {
        va: GpuVa(0),
        pages: 4096,
        page_shift: 12,
        target: system(0),
        read_only: false,
        kind: 0,
    };
    let runs = vec![everything; 64];
    let request = Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: runs };
    assert_eq!(machine.request(a, request, None, now), Outcome::Later);

    assert!(!machine.step(now), "nothing may be done");
    let due = machine.next_due(now).expect("it goes on later");
    assert!(due > now + Duration::from_millis(500), "{due:?}");
    settle(&mut machine, Duration::from_secs(5));

    assert_eq!(outputs(&mut machine), [Output::Reply(a, Reply::Done)]);
    assert_eq!(fake.pages().len(), 4096);
}

#[test]
fn mappings_beyond_the_limit_are_refused_and_counted() {
    let (mut machine, fake) = machine();
    let limits = TenantLimits { mappings: 10, ..TenantLimits::default() };
    let a = machine.admit(&Hello { limits, ..hello("a") }, T0).unwrap().tenant;
    done(&mut machine, a, Request::CreateSpace(SpaceId(0)));
    for page in 0..10 {
        done(&mut machine, a, map(page << 12, GuestTarget::Vram(GuestVram(0))));
    }

    let kind = refused(&mut machine, a, map(0x10_0000, GuestTarget::Vram(GuestVram(0))));

    assert_eq!((kind, fake.pages().len()), (RefusalKind::Quota, 10));
    let mappings = machine.status("fake").tenants[0].limits["mappings"];
    assert_eq!((mappings.limit, mappings.used, mappings.hits), (Some(10), 10, 1));
}

#[test]
fn page_tables_are_limited_to_what_the_vms_file_says() {
    let (mut machine, _fake) = machine();
    let limits = TenantLimits { page_tables: 8192, ..TenantLimits::default() };
    let a = machine.admit(&Hello { limits, ..hello("a") }, T0).unwrap().tenant;
    done(&mut machine, a, Request::CreateSpace(SpaceId(0)));
    done(&mut machine, a, map(0, GuestTarget::Vram(GuestVram(0))));

    let kind = refused(&mut machine, a, map(1 << 30, GuestTarget::Vram(GuestVram(0))));

    assert_eq!(kind, RefusalKind::Quota);
    assert_eq!(machine.status("fake").tenants[0].limits["page_tables"].hits, 1);
}
