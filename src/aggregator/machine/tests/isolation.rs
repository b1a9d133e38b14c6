//! What one tenant asks for never touches another.

use super::*;
use gpuvmk_chip::addr::GuestChannel;

#[test]
fn partitions_of_tenants_are_disjoint_and_labelled() {
    let (_machine, fake, a, b) = two_tenants();

    let state = fake.state();
    assert_eq!(state.owners[&(64 * MIB)], (64 * MIB, Some(a)));
    assert_eq!(state.owners[&(128 * MIB)], (64 * MIB, Some(b)));
}

#[test]
fn same_guest_numbers_mean_different_things_for_each_tenant() {
    let (mut machine, fake, a, b) = two_tenants();

    done(&mut machine, a, map(0x5000, GuestTarget::Vram(GuestVram(0x2000))));
    done(&mut machine, b, map(0x5000, GuestTarget::Vram(GuestVram(0x2000))));
    done(&mut machine, a, map(0x6000, system(0x3000)));
    done(&mut machine, b, map(0x6000, system(0x3000)));

    let pages = fake.pages();
    assert_eq!(pages.len(), 4);
    assert_eq!(pages[0], (0x5000, HostTarget::Vram(HostVram(64 * MIB + 0x2000))));
    assert_eq!(pages[2], (0x5000, HostTarget::Vram(HostVram(128 * MIB + 0x2000))));
    let (HostTarget::System { iova: in_a, .. }, HostTarget::System { iova: in_b, .. }) =
        (pages[1].1, pages[3].1)
    else {
        panic!("{pages:?}")
    };
    assert!(in_a.0.abs_diff(in_b.0) >= 16 * MIB);
}

#[test]
fn targets_outside_the_tenants_own_are_never_mapped() {
    let (mut machine, fake, a, _) = two_tenants();
    let bad = [
        GuestTarget::Vram(GuestVram(64 * MIB)),
        GuestTarget::Vram(GuestVram(64 * MIB - 0x800)),
        GuestTarget::Vram(GuestVram(u64::MAX - 0xfff)),
        GuestTarget::Vram(GuestVram((1 << 40) - 64 * MIB)),
        system(16 * MIB),
        system(u64::MAX - 0xfff),
        system(17 * MIB),
    ];

    for target in bad {
        let kind = refused(&mut machine, a, map(0x5000, target));
        assert_eq!(kind, RefusalKind::OutsidePartition, "{target:?}");
    }

    assert!(fake.pages().is_empty());
    assert_eq!(machine.status("fake").tenants[0].counters.bad_pages, 7);
}

#[test]
fn bad_target_turns_what_was_mapped_there_into_a_fault() {
    let (mut machine, fake, a, _) = two_tenants();
    done(&mut machine, a, map(0x5000, system(0)));

    refused(&mut machine, a, map(0x5000, system(1 << 30)));

    assert!(fake.pages().is_empty());
}

#[test]
fn forged_channel_and_space_numbers_are_refused() {
    let (mut machine, fake, a, _) = two_tenants();
    for id in [1, 3, 4, 5, 200, u16::MAX] {
        let channel = GuestChannel(id);
        let requests = [
            Request::DestroyChannel(channel),
            Request::SetEngines { channel, engines: EngineSet::GRAPHICS },
            Request::EnableChannel { channel, enabled: true },
            Request::SetRunlist(vec![channel]),
            Request::Preempt(channel),
            Request::DestroySpace(SpaceId(id)),
            Request::UpdateSpace { space: SpaceId(id), unmap: vec![], map: vec![] },
        ];
        for request in requests {
            assert_eq!(refused(&mut machine, a, request), RefusalKind::BadId);
        }
    }
    assert_eq!(refused(&mut machine, a, create_channel(4)), RefusalKind::BadId);
    assert_eq!(refused(&mut machine, a, create_channel(0)), RefusalKind::BadId);
    assert_eq!(refused(&mut machine, a, Request::CreateSpace(SpaceId(8))), RefusalKind::BadId);
    assert_eq!(refused(&mut machine, a, Request::CreateSpace(SpaceId(0))), RefusalKind::BadId);

    assert_eq!(fake.state().runlist.len(), 2);
    assert_eq!(fake.state().channels.len(), 2);
}

#[test]
fn doorbells_reach_only_the_senders_own_channels() {
    let (mut machine, fake, a, b) = two_tenants();
    let (host_a, host_b) = (host_of(&fake, 64 * MIB), host_of(&fake, 128 * MIB));
    fake.state().stored.extend([(host_a, 7), (host_b, 9)]);

    for channel in 0..300 {
        machine.doorbell(a, Doorbell { channel: GuestChannel(channel), gp_put: 7 }, 0, T0);
    }
    machine.doorbell(b, Doorbell { channel: GuestChannel(0), gp_put: 9 }, 0, T0);
    machine.doorbell(TenantId(99), Doorbell { channel: GuestChannel(0), gp_put: 1 }, 0, T0);

    assert_eq!(fake.state().rung, [(host_a, 7), (host_b, 9)]);
}

#[test]
fn notification_reaches_only_tenants_with_a_channel_on_the_engine() {
    let (mut machine, fake, a, b) = two_tenants();
    let engines = EngineSet::COPY0;
    done(&mut machine, b, Request::EnableChannel { channel: GuestChannel(0), enabled: false });
    done(&mut machine, b, Request::SetEngines { channel: GuestChannel(0), engines });
    for tenant in [a, b] {
        machine.doorbell(tenant, Doorbell { channel: GuestChannel(0), gp_put: 1 }, 0, T0);
    }

    fake.report(GpuEvent::NonStall(Engine::Graphics));
    fake.report(GpuEvent::NonStall(Engine::COPY0));
    machine.gpu_events(T0);

    assert_eq!(
        outputs(&mut machine),
        [
            Output::Event(a, Event::NonStall(Engine::Graphics)),
            Output::Event(b, Event::NonStall(Engine::COPY0)),
        ]
    );
    machine.step(SECOND);
    assert_eq!(outputs(&mut machine), []);
}

#[test]
fn work_on_an_engine_that_hardware_knew_of_first_is_told() {
    for before in [EngineSet::empty(), EngineSet::GRAPHICS] {
        let (mut machine, fake, a, _b) = two_tenants();
        let engines = |engines| Request::SetEngines { channel: GuestChannel(0), engines };
        let stop = |enabled| Request::EnableChannel { channel: GuestChannel(0), enabled };
        done(&mut machine, a, stop(false));
        done(&mut machine, a, engines(before));
        done(&mut machine, a, stop(true));

        // Its driver has stored a context for an engine and GP_PUT, hardware saw both in passing, and the
        // doorbell comes after that.
        fake.report(GpuEvent::NonStall(Engine::COPY0));
        machine.gpu_events(T0);
        assert_eq!(outputs(&mut machine), []);
        done(&mut machine, a, stop(false));
        done(&mut machine, a, engines(before | EngineSet::COPY0));
        done(&mut machine, a, stop(true));

        assert_eq!(outputs(&mut machine), [Output::Event(a, Event::NonStall(Engine::COPY0))]);
        machine.step(SECOND);
        assert_eq!(outputs(&mut machine), [], "once, and nobody else");
    }
}

#[test]
fn channel_that_names_no_engine_may_work_on_any() {
    let (mut machine, fake, a, _b) = two_tenants();
    let channel = GuestChannel(0);
    done(&mut machine, a, Request::EnableChannel { channel, enabled: false });
    done(&mut machine, a, Request::SetEngines { channel, engines: EngineSet::empty() });

    fake.report(GpuEvent::NonStall(Engine::COPY1));
    machine.gpu_events(T0);
    machine.step(SECOND);

    assert_eq!(outputs(&mut machine), [Output::Event(a, Event::NonStall(Engine::COPY1))]);
}

#[test]
fn work_that_was_done_before_its_doorbell_was_taken_is_told_with_it() {
    let (mut machine, fake, a, b) = two_tenants();
    fake.report(GpuEvent::NonStall(Engine::Graphics));
    machine.gpu_events(T0);
    assert_eq!(outputs(&mut machine), []);

    let ring = Doorbell { channel: GuestChannel(0), gp_put: 3 };
    machine.doorbell(a, ring, 0, T0);
    assert_eq!(outputs(&mut machine), [], "its work is still to be done");
    fake.state().fetched = Some(3);
    machine.doorbell(b, ring, 0, T0);
    assert_eq!(outputs(&mut machine), [Output::Event(b, Event::NonStall(Engine::Graphics))]);
}

#[test]
fn end_of_work_that_is_heard_of_late_is_told_at_once() {
    let (mut machine, fake, a, b) = two_tenants();
    machine.doorbell(a, Doorbell { channel: GuestChannel(0), gp_put: 3 }, 0, T0);
    fake.state().fetched = Some(3);
    // Looks show that it is done; the thread does not come to what hardware told before that for long.
    for ms in 1..20 {
        machine.step(Duration::from_millis(ms));
    }
    fake.report(GpuEvent::NonStall(Engine::Graphics));
    machine.gpu_events(Duration::from_millis(60));
    assert_eq!(outputs(&mut machine), [Output::Event(a, Event::NonStall(Engine::Graphics))]);
    fake.report(GpuEvent::NonStall(Engine::Graphics));
    machine.gpu_events(Duration::from_millis(61));
    assert_eq!(outputs(&mut machine), [], "that is somebody else's, or older");
    machine.step(SECOND);
    let late = [a, b].map(|tenant| Output::Event(tenant, Event::NonStall(Engine::Graphics)));
    assert_eq!(outputs(&mut machine), late);
}

#[test]
fn page_tables_of_one_tenant_cannot_take_the_others_share() {
    let (mut machine, fake, a, b) = two_tenants();
    let mut kinds = Vec::new();
    for i in 0..40_u64 {
        let request = map(i << 27, GuestTarget::Vram(GuestVram(0)));
        if let Outcome::Now(Reply::Refused { kind, .. }) = machine.request(a, request, None, T0) {
            kinds.push(kind);
        }
    }

    assert!(!kinds.is_empty() && kinds.iter().all(|kind| *kind == RefusalKind::Quota));
    assert!(fake.pages().len() < 20);
    done(&mut machine, b, map(0x5000, GuestTarget::Vram(GuestVram(0))));
}

#[test]
fn iovas_of_tenants_never_overlap() {
    let (_machine, fake, _, _) = two_tenants();

    let state = fake.state();
    let ranges: Vec<_> = state.dma.iter().map(|(iova, size)| (Iova(*iova), *size)).collect();
    assert!(ranges[0].0.0 + ranges[0].1 <= ranges[1].0.0);
}

#[test]
fn status_counts_what_happened() {
    let (mut machine, fake, a, _) = two_tenants();
    done(&mut machine, a, map(0x5000, system(0)));
    machine.doorbell(a, Doorbell { channel: GuestChannel(0), gp_put: 1 }, 0, T0);
    let host = host_of(&fake, 64 * MIB);
    fake.state().running = Some(host);
    machine.step(Duration::from_millis(1));

    let status = machine.status("fake");

    let tenant = &status.tenants[0];
    assert_eq!((tenant.submissions, tenant.counters.updates, tenant.mapped_pages), (1, 1, 1));
    assert_eq!(tenant.gpu_share, 1.0);
    assert_eq!(tenant.foreign_accesses, Some(0));
    assert_eq!(status.gpu.backend, "fake");
}
