//! Channels: made, run, faulted, preempted.

use super::*;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, Hang, HangKind, HostError, MmuFault};

#[test]
fn channel_with_bad_shape_is_refused() {
    let (mut machine, fake, a, _) = two_tenants();
    let shape = |userd, gpfifo, log2, engines| Request::CreateChannel {
        context_of: None,
        channel: GuestChannel(1),
        space: SpaceId(0),
        gpfifo: GpuVa(gpfifo),
        gpfifo_entries_log2: log2,
        userd: GuestVram(userd),
        engines,
    };
    let none = EngineSet::empty();
    let bad = [
        shape(64 * MIB, 0, 9, none),
        shape(0x800, 0, 9, none),
        shape(64 * MIB - 0x800, 0, 9, none),
        shape(u64::MAX - 0xfff, 0, 9, none),
        shape(0, 1 << 40, 9, none),
        shape(0, 4, 9, none),
        shape(0, 0, 20, none),
        shape(0, 0, 255, none),
        shape(0, 0, 9, EngineSet::from_bits_retain(1 << Engine::COUNT)),
    ];

    for request in bad {
        refused(&mut machine, a, request);
    }
    // No channel, itself, no number of a channel; and a channel without graphics.
    let graphics = EngineSet::GRAPHICS;
    for (other, engines) in [(7, graphics), (1, graphics), (60_000, graphics), (0, EngineSet::COPY1)] {
        let Request::CreateChannel { channel, space, gpfifo, gpfifo_entries_log2, userd, .. } =
            shape(0x2000, 0, 9, none)
        else {
            panic!("a channel is made")
        };
        let context_of = Some(GuestChannel(other));
        let request = Request::CreateChannel {
            context_of,
            channel,
            space,
            gpfifo,
            gpfifo_entries_log2,
            userd,
            engines,
        };
        assert_eq!(refused(&mut machine, a, request), RefusalKind::BadId, "{other}");
    }

    assert_eq!(fake.state().channels.len(), 2);
}

#[test]
fn runlist_with_duplicates_is_refused_and_the_old_one_stays() {
    let (mut machine, fake, a, _) = two_tenants();
    let before = fake.state().runlist.clone();

    let list = vec![GuestChannel(0), GuestChannel(0)];
    assert_eq!(refused(&mut machine, a, Request::SetRunlist(list)), RefusalKind::BadId);

    assert_eq!(fake.state().runlist, before);
}

#[test]
fn fault_goes_to_its_tenant_in_its_own_numbers_and_others_go_on() {
    let (mut machine, fake, a, _b) = two_tenants();
    let (host_a, host_b) = (host_of(&fake, 64 * MIB), host_of(&fake, 128 * MIB));
    let fault = MmuFault {
        unit: FaultUnit::Host,
        address: GpuVa(0x1234_5000),
        access: AccessKind::Read,
        reason: FaultReason::PageNotPresent,
    };

    fake.report(GpuEvent::Stopped(ChannelStop::new(host_a, fault)));
    machine.gpu_events(T0);

    assert_eq!(
        outputs(&mut machine),
        [Output::Event(a, Event::Stopped(ChannelStop::new(GuestChannel(0), fault)))]
    );
    assert_eq!(fake.state().runlist, [host_b]);
    assert!(!fake.state().enabled[&host_a]);
}

#[test]
fn faulted_channel_stays_off_until_it_is_made_anew() {
    let (mut machine, fake, a, _) = two_tenants();
    let host_a = host_of(&fake, 64 * MIB);
    let error = HostError { pbdma: 0, status: 1 << 21, method: 0, data: 0 };
    fake.report(GpuEvent::Stopped(ChannelStop::new(host_a, error)));
    machine.gpu_events(T0);

    done(&mut machine, a, Request::EnableChannel { channel: GuestChannel(0), enabled: true });
    done(&mut machine, a, Request::SetRunlist(vec![GuestChannel(0)]));
    machine.doorbell(a, Doorbell { channel: GuestChannel(0), gp_put: 1 }, 0, T0);
    assert!(!fake.state().enabled[&host_a]);
    assert!(!fake.state().runlist.contains(&host_a));
    assert!(fake.state().rung.is_empty());

    done(&mut machine, a, Request::DestroyChannel(GuestChannel(0)));
    done(&mut machine, a, create_channel(0));
    done(&mut machine, a, Request::SetRunlist(vec![GuestChannel(0)]));
    assert_eq!(fake.state().runlist.len(), 2);
}

#[test]
fn running_channels_engines_cannot_be_changed() {
    let (mut machine, _fake, a, _) = two_tenants();

    let request = Request::SetEngines { channel: GuestChannel(0), engines: EngineSet::COPY0 };

    assert_eq!(refused(&mut machine, a, request), RefusalKind::Protocol);
}

#[test]
fn doorbell_without_work_wants_no_turn() {
    let (mut machine, fake, a, _) = two_tenants();
    let ring = |gp_put| Doorbell { channel: GuestChannel(0), gp_put };
    let wanting = |machine: &Machine| machine.status("soft").tenants[0].wanting_ms;
    let rung = || fake.state().rung.len();

    machine.doorbell(a, ring(0), 0, T0);
    machine.step(T0 + Duration::from_millis(5));
    assert_eq!((rung(), wanting(&machine)), (0, 0));

    let host = host_of(&fake, 64 * MIB);
    fake.state().stored.insert(host, 1);
    machine.doorbell(a, ring(1), 0, T0 + Duration::from_millis(5));
    machine.step(T0 + Duration::from_millis(6));
    machine.step(T0 + Duration::from_millis(8));
    let worked = wanting(&machine);
    assert!(worked > 0);
    for ms in 20..40 {
        machine.doorbell(a, ring(1), 0, T0 + Duration::from_millis(ms));
        machine.step(T0 + Duration::from_millis(ms + 1));
    }
    assert_eq!((rung(), wanting(&machine)), (1, worked));

    let gone = |machine: &Machine| machine.status("soft").gpu.scrub.departures.wanted_us / 1000;
    assert_eq!(gone(&machine), 0);
    machine.leave(a, false, Duration::from_millis(40));
    settle(&mut machine, Duration::from_millis(40));
    assert_eq!(gone(&machine), worked);
}

#[test]
fn preemption_is_reported_to_who_asked() {
    let (mut machine, _fake, a, _) = two_tenants();

    done(&mut machine, a, Request::Preempt(GuestChannel(0)));

    assert_eq!(outputs(&mut machine), [Output::Event(a, Event::Preempted(GuestChannel(0)))]);
}

#[test]
fn preemption_that_does_not_end_costs_only_its_channel() {
    let (mut machine, fake, a, _) = two_tenants();
    let (host_a, host_b) = (host_of(&fake, 64 * MIB), host_of(&fake, 128 * MIB));
    fake.state().yields = false;
    done(&mut machine, a, Request::Preempt(GuestChannel(0)));
    let due = machine.next_due(T0).unwrap();

    settle(&mut machine, due);

    assert!(due <= SECOND);
    assert_eq!(fake.state().forced, [host_a]);
    assert_eq!(fake.state().runlist, [host_b]);
    let hang = Hang { engine: Engine::Graphics, kind: HangKind::Engine };
    let events = [Event::Stopped(ChannelStop::new(GuestChannel(0), hang)), Event::Preempted(GuestChannel(0))];
    assert_eq!(outputs(&mut machine), events.map(|event| Output::Event(a, event)));
    done(&mut machine, a, Request::EnableChannel { channel: GuestChannel(0), enabled: true });
    done(&mut machine, a, Request::DestroyChannel(GuestChannel(0)));
    done(&mut machine, a, create_channel(0));
}

#[test]
fn channel_on_its_way_off_counts_and_its_space_stays_until_it_is_gone() {
    let (mut machine, fake, a, _) = two_tenants();
    fake.state().yields = false;
    for id in 1..4 {
        done(&mut machine, a, create_channel(id));
    }
    done(&mut machine, a, Request::DestroyChannel(GuestChannel(0)));
    assert_eq!(refused(&mut machine, a, create_channel(0)), RefusalKind::Exhausted);
    for id in 1..4 {
        done(&mut machine, a, Request::DestroyChannel(GuestChannel(id)));
    }
    done(&mut machine, a, Request::DestroySpace(SpaceId(0)));
    assert_eq!(fake.state().spaces.len(), 2);

    settle(&mut machine, SECOND);

    assert_eq!(fake.state().spaces.len(), 1);
    assert_eq!(fake.state().channels.len(), 1);
}

#[test]
fn late_event_of_a_departed_channel_reaches_nobody() {
    let (mut machine, fake, a, _) = two_tenants();
    let host = host_of(&fake, 64 * MIB);
    fake.state().yields = false;
    done(&mut machine, a, Request::DestroyChannel(GuestChannel(0)));

    let error = HostError { pbdma: 0, status: 1, method: 0, data: 0 };
    fake.report(GpuEvent::Stopped(ChannelStop::new(host, error)));
    machine.gpu_events(T0);
    machine.step(T0);

    assert_eq!(outputs(&mut machine), []);
    assert!(!fake.state().channels.contains_key(&host));
}

#[test]
fn lost_gpu_is_told_to_everybody_once() {
    let (mut machine, fake, a, b) = two_tenants();

    fake.report(GpuEvent::Lost);
    fake.report(GpuEvent::Lost);
    machine.gpu_events(T0);

    assert_eq!(outputs(&mut machine), [Output::Event(a, Event::Lost), Output::Event(b, Event::Lost)]);
    assert_eq!(refused(&mut machine, a, Request::CreateSpace(SpaceId(1))), RefusalKind::Hardware);
}

#[test]
fn channel_whose_memory_is_not_reachable_yet_is_waited_for_between_other_work() {
    let (mut machine, fake, a, b) = two_tenants();
    fake.state().channel_rounds = 3;

    assert_eq!(machine.request(a, create_channel(1), None, T0), Outcome::Later);
    done(&mut machine, b, map(0x5000, system(0)));
    assert_eq!(fake.state().channels.len(), 2, "it is not there yet");
    for _ in 0..3 {
        assert_eq!(outputs(&mut machine), []);
        settle(&mut machine, T0);
    }

    assert_eq!(outputs(&mut machine), [Output::Reply(a, Reply::Done)]);
    assert_eq!(fake.state().channels.len(), 3);
    done(&mut machine, a, Request::EnableChannel { channel: GuestChannel(1), enabled: true });
}

#[test]
fn channel_that_is_waited_for_is_not_made_for_who_has_left_or_failed() {
    for leaves in [true, false] {
        let (mut machine, fake, a, _) = two_tenants();
        fake.state().channel_rounds = 3;
        assert_eq!(machine.request(a, create_channel(1), None, T0), Outcome::Later);

        if leaves {
            machine.leave(a, false, T0);
        } else {
            (0..100).for_each(|_| drop(machine.request(a, Request::Hello(hello("again")), None, T0)));
        }
        settle(&mut machine, T0);

        let told = outputs(&mut machine);
        let gone = matches!(told[..], [Output::Gone(to)] if to == a);
        let refused = matches!(told[..], [Output::Reply(to, Reply::Refused { .. })] if to == a);
        assert!(if leaves { gone } else { refused }, "{told:?}");
        assert_eq!(fake.state().channels.len(), 1, "the neighbour's");
    }
}
