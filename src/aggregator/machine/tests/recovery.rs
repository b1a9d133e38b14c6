//! Resets, and tenants that go.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_host::clock::Clock;

/// A clock that a machine finds 30 us later whenever it looks.
#[derive(Debug, Default)]
struct Ticking(AtomicU64);

impl Clock for Ticking {
    fn now(&self) -> u64 {
        self.0.fetch_add(30_000, Ordering::SeqCst)
    }
}

#[test]
fn tenant_that_leaves_during_a_long_request_is_gone() {
    let (machine, fake, a, _) = two_tenants();
    let mut machine = machine.with_clock(Arc::new(Ticking::default()));
    for i in 1..100_u64 {
        dma_map(&mut machine, a, (i << 20) + 16 * MIB, 0x1000);
    }
    let unmap = Request::DmaUnmap { gpa: Gpa(0), size: u64::MAX };
    assert_eq!(machine.request(a, unmap, None, T0), Outcome::Later);
    machine.step(T0);

    machine.leave(a, false, T0);
    for _ in 0..300 {
        machine.step(T0);
    }

    assert_eq!(outputs(&mut machine), [Output::Gone(a)]);
    assert_eq!(fake.state().dma.len(), 1);
}

#[test]
fn reset_takes_channels_and_spaces_and_answers_when_they_are_gone() {
    let (mut machine, fake, a, b) = two_tenants();
    fake.state().yields = false;
    done(&mut machine, a, map(0x5000, system(0)));

    assert_eq!(machine.request(a, Request::Reset { scrub: true }, None, T0), Outcome::Later);
    assert!(fake.pages().is_empty(), "engines reach nothing from now on");
    settle(&mut machine, T0);
    assert_eq!(outputs(&mut machine), []);
    assert_eq!(refused(&mut machine, a, Request::CreateSpace(SpaceId(1))), RefusalKind::Protocol);
    let host_a = fake.state().preempting[0];
    fake.report(GpuEvent::Preempted(host_a));
    machine.gpu_events(T0);
    settle(&mut machine, T0);

    assert_eq!(outputs(&mut machine), [Output::Reply(a, Reply::Done)]);
    let resets: Vec<u64> =
        machine.status("fake").tenants.iter().map(|tenant| tenant.counters.resets).collect();
    assert_eq!(resets, [1, 0]);
    let scrubbed: u64 = fake.state().scrubbed.iter().map(|(_, size)| size).sum();
    assert_eq!(scrubbed, 64 * MIB);
    assert_eq!(fake.state().dma.len(), 2, "memory stays mapped");
    done(&mut machine, a, Request::CreateSpace(SpaceId(0)));
    assert_eq!(fake.state().runlist.len(), 1);
    done(&mut machine, b, Request::Preempt(GuestChannel(0)));
}

#[test]
fn leaving_tenant_leaves_nothing_behind() {
    let (mut machine, fake, a, _) = two_tenants();
    done(&mut machine, a, map(0x5000, system(0)));

    machine.leave(a, false, T0);
    settle(&mut machine, T0);

    assert_eq!(outputs(&mut machine), [Output::Gone(a)]);
    let state = fake.state();
    assert_eq!((state.channels.len(), state.spaces.len(), state.dma.len()), (1, 1, 1));
    assert_eq!(state.owners[&(64 * MIB)].1, None);
    assert_eq!(state.scrubbed.iter().map(|(_, size)| size).sum::<u64>(), 64 * MIB);
    drop(state);
    assert_eq!(machine.admit(&hello("a"), T0).unwrap().welcome.vram, 64 * MIB);
}

#[test]
fn partition_of_a_living_process_is_not_given_away() {
    let (mut machine, fake, a, _) = two_tenants();

    machine.leave(a, true, T0);
    settle(&mut machine, T0);
    assert_eq!(outputs(&mut machine), []);
    assert!(fake.state().scrubbed.is_empty());
    assert!(fake.state().dma.len() == 1, "its memory is let go at once");
    let wish = Hello { vram: 192 * MIB, ..hello("c") };
    let refusal = machine.admit(&wish, T0).unwrap_err();
    assert!(matches!(machine.worth_waiting(&wish, &refusal, T0), Wait::Until(until) if until > T0));
    machine.peer_exited(a);
    settle(&mut machine, T0);

    assert_eq!(outputs(&mut machine), [Output::Gone(a)]);
}

#[test]
fn tenant_whose_channel_hangs_is_gone_in_time() {
    let (mut machine, fake, a, _) = two_tenants();
    fake.state().yields = false;

    machine.leave(a, false, T0);
    settle(&mut machine, T0);
    assert_eq!(outputs(&mut machine), []);
    settle(&mut machine, SECOND);

    assert_eq!(outputs(&mut machine), [Output::Gone(a)]);
    assert_eq!(fake.state().forced.len(), 1);
}

#[test]
fn what_hardware_does_not_let_go_is_never_given_away() {
    let (mut machine, fake, a, _) = two_tenants();
    fake.state().stuck = true;

    machine.leave(a, false, T0);
    settle(&mut machine, SECOND);
    fake.state().stuck = false;

    assert_eq!(outputs(&mut machine), [Output::Gone(a)]);
    assert_eq!(fake.state().owners[&(64 * MIB)].1, Some(a));
    let next = machine.admit(&hello("c"), T0).unwrap();
    assert_eq!(fake.state().owners[&(192 * MIB)].1, Some(next.tenant));
}
