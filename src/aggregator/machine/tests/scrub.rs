//! Partitions are zero before another tenant gets them, whenever they are zeroed.

use super::*;
use crate::ScrubPolicy;
use crate::limit::Limit;
use crate::tenant::Refusal;
use gpuvmk_gpu::scrub::{EngineScrub, SCRUB_PIECE};
use gpuvmk_gpu::{Scrub, Scrubber as _};
use gpuvmk_host::clock::{Clock, ManualClock};

fn with(policy: ScrubPolicy) -> (Machine, Fake) {
    let (machine, fake) = machine();
    (machine.with_scrub(policy), fake)
}

/// First bytes and sizes that were zeroed since the last call, joined.
fn scrubbed(fake: &Fake) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, size) in std::mem::take(&mut fake.state().scrubbed) {
        match joined.last_mut() {
            Some((first, length)) if *first + *length == start.0 => *length += size,
            _ => joined.push((start.0, size)),
        }
    }
    joined
}

const WHOLE: [(u64, u64); 1] = [(64 * MIB, 64 * MIB)];

#[test]
fn partition_is_zeroed_when_its_vm_leaves() {
    let (mut machine, fake) = with(ScrubPolicy::Release);
    let admitted = machine.admit(&hello("a"), T0).unwrap();
    assert!(admitted.ready && scrubbed(&fake).is_empty());

    machine.leave(admitted.tenant, false, T0);
    settle(&mut machine, T0);

    assert_eq!(scrubbed(&fake), WHOLE);
}

#[test]
fn partition_is_zeroed_before_its_vm_gets_it_and_not_when_it_leaves() {
    let (mut machine, fake) = with(ScrubPolicy::Attach);
    let admitted = machine.admit(&hello("a"), T0).unwrap();
    assert!(!admitted.ready);
    assert_eq!(
        refused(&mut machine, admitted.tenant, Request::CreateSpace(SpaceId(0))),
        RefusalKind::Protocol
    );
    assert_eq!(machine.status("fake").tenants[0].state, "preparing");
    settle(&mut machine, T0);
    assert_eq!(outputs(&mut machine), [Output::Ready(admitted.tenant)]);
    assert_eq!(scrubbed(&fake), WHOLE);
    done(&mut machine, admitted.tenant, Request::CreateSpace(SpaceId(0)));

    machine.leave(admitted.tenant, false, T0);
    settle(&mut machine, T0);

    assert_eq!(scrubbed(&fake), []);
    let again = machine.admit(&hello("b"), T0).unwrap();
    settle(&mut machine, T0);
    assert_eq!((again.ready, scrubbed(&fake).as_slice()), (false, &WHOLE[..]));
}

#[test]
fn partition_is_zeroed_at_both_ends() {
    let (mut machine, fake) = with(ScrubPolicy::Both);
    let tenant = machine.admit(&hello("a"), T0).unwrap().tenant;
    settle(&mut machine, T0);
    assert_eq!(scrubbed(&fake), WHOLE);
    machine.leave(tenant, false, T0);
    settle(&mut machine, T0);
    assert_eq!(scrubbed(&fake), WHOLE);
}

#[test]
fn memory_that_the_driver_calls_dirty_is_zeroed_first_whatever_the_policy() {
    let (mut machine, fake) = with(ScrubPolicy::Release);
    fake.state().dirty = true;
    assert!(!machine.admit(&hello("a"), T0).unwrap().ready);
    settle(&mut machine, T0);
    assert_eq!(scrubbed(&fake), WHOLE);
}

#[test]
fn other_tenants_are_served_between_the_pieces() {
    let (mut machine, fake) = with(ScrubPolicy::Attach);
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;
    settle(&mut machine, T0);
    scrubbed(&fake);
    let _b = machine.admit(&hello("b"), T0).unwrap();

    let mut pieces = 0;
    while machine.step(T0) {
        pieces += 1;
        done(&mut machine, a, Request::CreateSpace(SpaceId(0)));
        done(&mut machine, a, Request::DestroySpace(SpaceId(0)));
    }

    assert!(pieces >= 8, "{pieces} pieces");
}

#[test]
fn memory_that_cannot_be_zeroed_is_nobodys() {
    let (mut machine, fake) = with(ScrubPolicy::Attach);
    fake.state().unscrubbable = true;
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;
    settle(&mut machine, T0);
    let told = outputs(&mut machine);
    assert!(matches!(told.as_slice(), [Output::Reply(id, Reply::Refused { .. })] if *id == a), "{told:?}");

    machine.leave(a, false, T0);
    settle(&mut machine, T0);
    fake.state().unscrubbable = false;
    let b = machine.admit(&hello("b"), T0).unwrap().tenant;

    assert_eq!(fake.state().owners[&(128 * MIB)].1, Some(b));
}

#[test]
fn driver_without_memory_to_lend_goes_on_with_the_processor() {
    let (gpu, fake) = FakeGpu::hopper();
    let mut gpu = EngineScrub::new(Box::new(gpu));
    let report = gpu.scrub_report().unwrap();
    assert_eq!((&*report.by, report.fallbacks), ("processor", 1));
    assert!(report.fallback_reason.unwrap().contains("lends no memory"));
    assert_eq!(gpu.info().channels, 16);

    while gpu.advance_scrub(HostVram(64 << 20), SCRUB_PIECE).unwrap() != Scrub::Done {}

    assert_eq!(scrubbed(&fake), [(64 << 20, SCRUB_PIECE)]);
}

/// A processor that zeroes a byte in a nanosecond, and so a piece in 4 ms.
#[test]
fn processor_zeroes_a_piece_in_turns_that_end_by_the_clock() {
    let (gpu, fake) = FakeGpu::hopper();
    let clock = Arc::new(ManualClock::default());
    fake.state().zeroing = Some(Arc::clone(&clock));
    let mut gpu = EngineScrub::new(Box::new(gpu)).with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let (first, second) = (HostVram(64 << 20), HostVram(72 << 20));

    let mut longest = 0;
    let mut turn = |start| {
        let began = clock.now();
        let done = gpu.advance_scrub(start, SCRUB_PIECE).unwrap();
        longest = longest.max(clock.now() - began);
        done
    };
    // Of two that are asked for in turns, each goes on where it was.
    while turn(first) == Scrub::More {
        assert_eq!(turn(second), Scrub::More);
    }
    assert_eq!(turn(second), Scrub::Done);

    let mut zeroed = std::mem::take(&mut fake.state().scrubbed);
    zeroed.sort_unstable_by_key(|(start, _)| *start);
    fake.state().scrubbed = zeroed;
    assert_eq!(scrubbed(&fake), [first, second].map(|start| (start.0, SCRUB_PIECE)));
    assert!(longest <= 200_000, "{longest} ns in one turn");
}

#[test]
fn memory_that_is_given_out_is_begun_anew_by_the_processor() {
    let (gpu, fake) = FakeGpu::hopper();
    let clock = Arc::new(ManualClock::default());
    fake.state().zeroing = Some(Arc::clone(&clock));
    let mut gpu = EngineScrub::new(Box::new(gpu)).with_clock(clock);
    let start = HostVram(64 << 20);
    assert_eq!(gpu.advance_scrub(start, SCRUB_PIECE).unwrap(), Scrub::More);

    gpu.share_vram(start, 64 << 20).unwrap();
    scrubbed(&fake);
    while gpu.advance_scrub(start, SCRUB_PIECE).unwrap() != Scrub::Done {}

    assert_eq!(scrubbed(&fake), [(start.0, SCRUB_PIECE)]);
}

/// A GPU that needs to be asked several times for each piece.
#[test]
fn partition_changes_hands_only_when_the_last_piece_is_done() {
    let (mut machine, fake) = with(ScrubPolicy::Release);
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;
    fake.state().scrub_rounds = 2;

    machine.leave(a, false, T0);
    let mut now = T0;
    while outputs(&mut machine).is_empty() {
        machine.step(now);
        now = machine.next_due(now).unwrap_or(now).max(now);
    }

    assert_eq!(scrubbed(&fake), WHOLE);
    assert!(now > T0, "it waits between two looks");
    assert_eq!(machine.status("fake").gpu.scrub.departures.count, 1);
}

#[test]
fn piece_of_a_reset_is_finished_before_its_vm_is_gone() {
    let (mut machine, fake) = with(ScrubPolicy::Attach);
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;
    settle(&mut machine, T0);
    scrubbed(&fake);
    fake.state().scrub_rounds = 1;
    assert_eq!(machine.request(a, Request::Reset { scrub: true }, None, T0), Outcome::Later);
    machine.step(T0);
    assert_eq!(fake.state().scrubbing.len(), 1, "a piece is under way");

    // Nothing is zeroed when a VM leaves; what was begun is.
    machine.leave(a, false, T0);
    outputs(&mut machine);
    for _ in 0..50 {
        machine.step(T0);
    }

    assert_eq!(outputs(&mut machine), [Output::Gone(a)]);
    assert_eq!(scrubbed(&fake), [(64 * MIB, SCRUB_PIECE)]);
}

#[test]
fn memory_is_the_hosts_while_it_is_zeroed() {
    let (mut machine, fake) = with(ScrubPolicy::Attach);
    fake.state().scrub_rounds = 1;
    let a = machine.admit(&hello("a"), T0).unwrap().tenant;
    machine.step(T0);
    assert_eq!(fake.state().owners[&(64 * MIB)], (SCRUB_PIECE, None));

    settle_slowly(&mut machine);

    assert_eq!(fake.state().owners[&(64 * MIB)], (64 * MIB, Some(a)));
}

/// An engine with room for fewer pieces than all tenants begin: whose first piece has none must still have
/// its later ones finished, which have.
#[test]
fn tenants_that_share_too_little_room_for_pieces_are_all_served() {
    for tenants in 1..=4 {
        for places in 1..=16 {
            let (mut machine, fake) = with(ScrubPolicy::Attach);
            (fake.state().scrub_rounds, fake.state().scrub_places) = (3, places);
            let mut admitted: Vec<TenantId> = Vec::new();
            for index in 0..tenants {
                let hello = Hello { vram: 64 * MIB, ..hello(&format!("vm{index}")) };
                admitted.push(machine.admit(&hello, T0).unwrap().tenant);
                machine.step(T0);
            }

            settle_slowly(&mut machine);

            let mut ready: Vec<TenantId> = outputs(&mut machine)
                .into_iter()
                .map(|told| match told {
                    Output::Ready(tenant) => tenant,
                    other => panic!("{other:?}"),
                })
                .collect();
            ready.sort_unstable();
            assert_eq!(ready, admitted, "{tenants} tenants, {places} places");
        }
    }
}

fn settle_slowly(machine: &mut Machine) {
    let mut now = T0;
    for _ in 0..1000 {
        machine.step(now);
        now += gpuvmk_gpu::LOOK_AGAIN;
    }
}

#[test]
fn vm_that_comes_and_goes_without_end_waits_and_nobody_else_does() {
    let (mut machine, _fake) = with(ScrubPolicy::Release);
    let mut now = T0;
    let come = |machine: &mut Machine, name: &str, now: Duration| {
        let admitted = machine.admit(&hello(name), now)?;
        machine.leave(admitted.tenant, false, now);
        settle(machine, now);
        Ok::<_, Refusal>(())
    };
    let refusal = (0..100).find_map(|_| come(&mut machine, "a", now).err()).unwrap();
    assert_eq!((refusal.kind, refusal.limit), (RefusalKind::Quota, Some(Limit::Cleanups)));
    assert!(refusal.message.contains("it comes and goes too often"), "{refusal:?}");
    come(&mut machine, "b", now).unwrap();

    let Wait::Until(until) = machine.worth_waiting(&hello("a"), &refusal, now) else { panic!("no wait") };
    assert!(until > now && until < now + Duration::from_secs(5), "{until:?}");
    assert!(come(&mut machine, "a", until - Duration::from_millis(1)).is_err());
    now = until;
    come(&mut machine, "a", now).unwrap();
}

#[test]
fn vm_that_resets_itself_without_end_waits_and_nobody_else_does() {
    let (mut machine, fake) = with(ScrubPolicy::Release);
    let [a, b] = ["a", "b"].map(|name| machine.admit(&hello(name), T0).unwrap().tenant);
    let reset = |machine: &mut Machine, tenant, now| {
        assert_eq!(machine.request(tenant, Request::Reset { scrub: true }, None, now), Outcome::Later);
        settle(machine, now);
        let answered = outputs(machine).contains(&Output::Reply(tenant, Reply::Done));
        answered && scrubbed(&fake).iter().map(|(_, size)| size).sum::<u64>() == 64 * MIB
    };
    let resets = (0..100).take_while(|_| reset(&mut machine, a, T0)).count();
    assert_eq!(resets, 5, "four at once, and the one that overdraws");
    assert!(reset(&mut machine, b, T0));

    let due = machine.next_due(T0).unwrap();
    assert!(due > T0 && due <= T0 + Duration::from_secs(2), "{due:?}");
    settle(&mut machine, due);
    assert_eq!(outputs(&mut machine), [Output::Reply(a, Reply::Done)]);
    let status = machine.status("fake");
    let limit = &status.tenants[0].limits["cleanups"];
    assert_eq!((limit.hits, limit.used), (1, 6 * 64 * MIB));
}
