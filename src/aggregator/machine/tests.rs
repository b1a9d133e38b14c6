#![expect(clippy::needless_pass_by_value, reason = "requests are written where they are sent")]

use super::*;
use crate::addr::{Gpa, GpuVa, GuestVram, HostVram, Iova};
use crate::aggregator::fake_gpu::{Fake, FakeGpu, MIB};
use crate::aggregator::protocol::{Doorbell, GuestMapping, GuestTarget, Hello, PROTOCOL_VERSION, SpaceId};
use crate::chip::{AccessKind, Engine, EngineSet, FaultReason};
use crate::gpu::HostTarget;
use crate::scheduler::policy::Fifo;
use crate::units::backend::{FaultUnit, HostError, MmuFault};

const SECOND: Duration = Duration::from_secs(1);
const T0: Duration = Duration::ZERO;

fn hello(name: &str) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        name: name.into(),
        chip: "GF100".into(),
        vram: 64 * MIB,
        channels: 4,
        weight: 100,
    }
}

fn machine() -> (Machine, Fake) {
    let (gpu, fake) = FakeGpu::new();
    let ledger: Arc<dyn OwnershipLedger> = Arc::new(fake.clone());
    (Machine::new(Box::new(gpu), Some(ledger), Scheduler::new(Box::new(Fifo))), fake)
}

/// Two tenants, each with 16 MiB of memory at 0, address space 0 and channel 0 (enabled and listed).
fn two_tenants() -> (Machine, Fake, TenantId, TenantId) {
    let (mut machine, fake) = machine();
    let a = machine.admit(&hello("a")).unwrap().tenant;
    let b = machine.admit(&hello("b")).unwrap().tenant;
    for tenant in [a, b] {
        furnish(&mut machine, tenant);
    }
    (machine, fake, a, b)
}

fn furnish(machine: &mut Machine, tenant: TenantId) {
    dma_map(machine, tenant, 0, 16 * MIB);
    done(machine, tenant, Request::CreateSpace(SpaceId(0)));
    done(machine, tenant, create_channel(0));
    done(machine, tenant, Request::EnableChannel { channel: GuestChannel(0), enabled: true });
    done(machine, tenant, Request::SetRunlist(vec![GuestChannel(0)]));
}

fn create_channel(id: u16) -> Request {
    Request::CreateChannel {
        channel: GuestChannel(id),
        space: SpaceId(0),
        gpfifo: GpuVa(0x10_0000),
        gpfifo_entries_log2: 9,
        userd: GuestVram(0x1000 * u64::from(id)),
        engines: EngineSet::GRAPHICS,
    }
}

fn memfd(size: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, size).unwrap();
    fd
}

fn dma_map(machine: &mut Machine, tenant: TenantId, gpa: u64, size: u64) {
    let request = Request::DmaMap { gpa: Gpa(gpa), size, offset: 0, writable: true };
    let outcome = machine.request(tenant, request, Some(memfd(size)), T0);
    assert_eq!(outcome, Outcome::Now(Reply::Done));
}

fn done(machine: &mut Machine, tenant: TenantId, request: Request) {
    let outcome = machine.request(tenant, request.clone(), None, T0);
    assert_eq!(outcome, Outcome::Now(Reply::Done), "{request:?}");
}

fn refused(machine: &mut Machine, tenant: TenantId, request: Request) -> RefusalKind {
    match machine.request(tenant, request.clone(), None, T0) {
        Outcome::Now(Reply::Refused { kind, .. }) => kind,
        other => panic!("{request:?} is answered with {other:?}"),
    }
}

fn map(va: u64, target: GuestTarget) -> Request {
    let map = GuestMapping { va: GpuVa(va), pages: 1, page_shift: 12, target, read_only: false, kind: 0 };
    Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: vec![map] }
}

fn system(gpa: u64) -> GuestTarget {
    GuestTarget::System { address: Gpa(gpa), coherent: true }
}

fn outputs(machine: &mut Machine) -> Vec<Output> {
    let mut all = Vec::new();
    machine.take_outputs(&mut all);
    all
}

fn host_of(fake: &Fake, vram: u64) -> HostChannel {
    let state = fake.state();
    let found = state.channels.iter().find(|(_, spec)| spec.userd == HostVram(vram));
    *found.expect("a channel with this USERD").0
}

fn settle(machine: &mut Machine, now: Duration) {
    for _ in 0..1000 {
        if !machine.step(now) {
            return;
        }
    }
    panic!("the machine does not settle");
}

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
    assert_eq!(machine.status("fake").tenants[0].bad_pages, 7);
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
fn channel_with_bad_shape_is_refused() {
    let (mut machine, fake, a, _) = two_tenants();
    let shape = |userd, gpfifo, log2, engines| Request::CreateChannel {
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
        shape(0, 0, 9, EngineSet::from_bits_retain(1 << 9)),
    ];

    for request in bad {
        refused(&mut machine, a, request);
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
fn doorbells_reach_only_the_senders_own_channels() {
    let (mut machine, fake, a, b) = two_tenants();
    let (host_a, host_b) = (host_of(&fake, 64 * MIB), host_of(&fake, 128 * MIB));

    for channel in 0..300 {
        machine.doorbell(a, Doorbell { channel: GuestChannel(channel), gp_put: 7 }, 0, T0);
    }
    machine.doorbell(b, Doorbell { channel: GuestChannel(0), gp_put: 9 }, 0, T0);
    machine.doorbell(TenantId(99), Doorbell { channel: GuestChannel(0), gp_put: 1 }, 0, T0);

    assert_eq!(fake.state().rung, [(host_a, 7), (host_b, 9)]);
}

#[test]
fn fault_goes_to_its_tenant_in_its_own_numbers_and_others_go_on() {
    let (mut machine, fake, a, _b) = two_tenants();
    let (host_a, host_b) = (host_of(&fake, 64 * MIB), host_of(&fake, 128 * MIB));
    let fault = MmuFault {
        channel: Some(host_a.0),
        unit: FaultUnit::Host,
        address: GpuVa(0x1234_5000),
        access: AccessKind::Read,
        reason: FaultReason::PageNotPresent,
    };

    fake.report(GpuEvent::Fault(fault));
    machine.gpu_events();

    assert_eq!(
        outputs(&mut machine),
        [Output::Event(a, Event::Fault(MmuFault { channel: Some(0), ..fault }))]
    );
    assert_eq!(fake.state().runlist, [host_b]);
    assert!(!fake.state().enabled[&host_a]);
}

#[test]
fn faulted_channel_stays_off_until_it_is_made_anew() {
    let (mut machine, fake, a, _) = two_tenants();
    let host_a = host_of(&fake, 64 * MIB);
    let error = HostError { channel: host_a.0, pbdma: 0, status: 1 << 21, method: 0, data: 0 };
    fake.report(GpuEvent::HostError(error));
    machine.gpu_events();

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
fn notification_reaches_only_tenants_with_a_channel_on_the_engine() {
    let (mut machine, fake, a, b) = two_tenants();
    let engines = EngineSet::COPY0;
    done(&mut machine, b, Request::EnableChannel { channel: GuestChannel(0), enabled: false });
    done(&mut machine, b, Request::SetEngines { channel: GuestChannel(0), engines });

    fake.report(GpuEvent::NonStall(Engine::Graphics));
    fake.report(GpuEvent::NonStall(Engine::Copy(0)));
    machine.gpu_events();

    assert_eq!(
        outputs(&mut machine),
        [
            Output::Event(a, Event::NonStall(Engine::Graphics)),
            Output::Event(b, Event::NonStall(Engine::Copy(0))),
        ]
    );
}

#[test]
fn running_channels_engines_cannot_be_changed() {
    let (mut machine, _fake, a, _) = two_tenants();

    let request = Request::SetEngines { channel: GuestChannel(0), engines: EngineSet::COPY0 };

    assert_eq!(refused(&mut machine, a, request), RefusalKind::Protocol);
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
    assert_eq!(outputs(&mut machine), [Output::Event(a, Event::Preempted(GuestChannel(0)))]);
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
fn space_in_use_is_not_destroyed() {
    let (mut machine, _fake, a, _) = two_tenants();

    assert_eq!(refused(&mut machine, a, Request::DestroySpace(SpaceId(0))), RefusalKind::BadId);
}

#[test]
fn unmapped_memory_leaves_page_tables_first() {
    let (mut machine, fake, a, _) = two_tenants();
    done(&mut machine, a, map(0x5000, system(0x3000)));
    done(&mut machine, a, map(0x6000, GuestTarget::Vram(GuestVram(0))));

    done(&mut machine, a, Request::DmaUnmap { gpa: Gpa(0), size: 16 * MIB });

    assert_eq!(fake.pages().len(), 1);
    assert_eq!(fake.state().dma.len(), 1);
    assert_eq!(refused(&mut machine, a, map(0x5000, system(0x3000))), RefusalKind::OutsidePartition);
    dma_map(&mut machine, a, 0, MIB);
}

#[test]
fn long_update_is_carried_out_in_pieces_between_others_requests() {
    let (mut machine, fake, a, b) = two_tenants();
    done(&mut machine, a, Request::DmaUnmap { gpa: Gpa(0), size: 16 * MIB });
    dma_map(&mut machine, a, 0, 1 << 30);
    let everything = GuestMapping {
        va: GpuVa(0),
        pages: 1 << 18,
        page_shift: 12,
        target: system(0),
        read_only: false,
        kind: 0,
    };
    let request = Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map: vec![everything] };

    assert_eq!(machine.request(a, request, None, T0), Outcome::Later);
    assert_eq!(refused(&mut machine, a, Request::CreateSpace(SpaceId(1))), RefusalKind::Protocol);
    assert!(machine.step(T0));
    done(&mut machine, b, map(0x5000, GuestTarget::Vram(GuestVram(0))));
    assert_eq!(outputs(&mut machine), []);
    settle(&mut machine, T0);

    assert_eq!(outputs(&mut machine), [Output::Reply(a, Reply::Done)]);
    assert_eq!(fake.pages().len(), (1 << 18) + 1);
}

#[test]
fn tenant_that_leaves_during_a_long_request_is_gone() {
    let (mut machine, fake, a, _) = two_tenants();
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
fn memory_requests_are_checked() {
    let (mut machine, fake, a, _) = two_tenants();
    let with_file = |machine: &mut Machine, gpa, size| {
        let request = Request::DmaMap { gpa: Gpa(gpa), size, offset: 0, writable: true };
        machine.request(a, request, Some(memfd(0x1000)), T0)
    };

    for (gpa, size) in [(0, 0x1000), (15 * MIB, 2 * MIB), (0x800, 0x1000), (32 * MIB, 0), (1 << 50, 1 << 38)]
    {
        let outcome = with_file(&mut machine, gpa, size);
        assert!(matches!(outcome, Outcome::Now(Reply::Refused { .. })), "{gpa:#x}+{size:#x}: {outcome:?}");
    }
    let request = Request::DmaMap { gpa: Gpa(32 * MIB), size: 0x1000, offset: 0, writable: true };
    assert_eq!(refused(&mut machine, a, request), RefusalKind::Protocol);
    let outcome = machine.request(a, Request::Preempt(GuestChannel(0)), Some(memfd(1)), T0);
    assert!(matches!(outcome, Outcome::Now(Reply::Refused { kind: RefusalKind::Protocol, .. })));
    let half = Request::DmaUnmap { gpa: Gpa(0), size: 8 * MIB };
    assert_eq!(refused(&mut machine, a, half), RefusalKind::OutsidePartition);

    assert_eq!(fake.state().dma.len(), 2);
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
    machine.gpu_events();
    settle(&mut machine, T0);

    assert_eq!(outputs(&mut machine), [Output::Reply(a, Reply::Done)]);
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
    assert_eq!(machine.admit(&hello("a")).unwrap().welcome.vram, 64 * MIB);
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
    let refusal = machine.admit(&wish).unwrap_err();
    assert_eq!(machine.worth_waiting(&wish, &refusal), Wait::UntilSomebodyIsGone);
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
    let next = machine.admit(&hello("c")).unwrap();
    assert_eq!(fake.state().owners[&(192 * MIB)].1, Some(next.tenant));
}

#[test]
fn late_event_of_a_departed_channel_reaches_nobody() {
    let (mut machine, fake, a, _) = two_tenants();
    let host = host_of(&fake, 64 * MIB);
    fake.state().yields = false;
    done(&mut machine, a, Request::DestroyChannel(GuestChannel(0)));

    let error = HostError { channel: host.0, pbdma: 0, status: 1, method: 0, data: 0 };
    fake.report(GpuEvent::HostError(error));
    machine.gpu_events();

    assert_eq!(outputs(&mut machine), []);
    assert!(!fake.state().channels.contains_key(&host));
}

#[test]
fn admission_is_refused_with_the_reason() {
    let (mut machine, _fake) = machine();
    let cases = [
        (Hello { version: 99, ..hello("x") }, RefusalKind::Version),
        (hello(""), RefusalKind::Name),
        (hello("../etc"), RefusalKind::Name),
        (hello("two\nlines"), RefusalKind::Name),
        (Hello { chip: "GH100".into(), ..hello("x") }, RefusalKind::Chip),
        (Hello { vram: 0, ..hello("x") }, RefusalKind::Protocol),
        (Hello { vram: 257 * MIB, ..hello("x") }, RefusalKind::Exhausted),
        (Hello { vram: u64::MAX, ..hello("x") }, RefusalKind::Exhausted),
        (Hello { channels: 0, ..hello("x") }, RefusalKind::Exhausted),
        (Hello { channels: 17, ..hello("x") }, RefusalKind::Exhausted),
        (Hello { weight: 0, ..hello("x") }, RefusalKind::Protocol),
    ];

    for (wish, kind) in cases {
        assert_eq!(machine.admit(&wish).unwrap_err().kind, kind, "{wish:?}");
    }
    machine.admit(&hello("x")).unwrap();
    assert_eq!(machine.admit(&hello("x")).unwrap_err().kind, RefusalKind::Name);
}

#[test]
fn only_wishes_that_can_come_true_are_worth_waiting() {
    let (mut machine, _fake) = machine();
    machine.admit(&hello("a")).unwrap();
    let cases = [
        (hello("a"), Wait::Briefly),
        (Hello { vram: 256 * MIB, ..hello("b") }, Wait::Briefly),
        (Hello { vram: 257 * MIB, ..hello("b") }, Wait::No),
        (Hello { channels: 17, ..hello("b") }, Wait::No),
        (hello("no/name"), Wait::No),
        (Hello { version: 9, ..hello("b") }, Wait::No),
    ];

    for (wish, wait) in cases {
        let refusal = machine.admit(&wish).unwrap_err();
        assert_eq!(machine.worth_waiting(&wish, &refusal), wait, "{wish:?}");
    }
}

#[test]
fn channels_granted_never_exceed_those_of_the_gpu() {
    let (mut machine, _fake) = machine();
    let wish = |name| Hello { channels: 10, vram: 16 * MIB, ..hello(name) };

    machine.admit(&wish("a")).unwrap();

    assert_eq!(machine.admit(&wish("b")).unwrap_err().kind, RefusalKind::Exhausted);
}

#[test]
fn lost_gpu_is_told_to_everybody_once() {
    let (mut machine, fake, a, b) = two_tenants();

    fake.report(GpuEvent::Lost);
    fake.report(GpuEvent::Lost);
    machine.gpu_events();

    assert_eq!(outputs(&mut machine), [Output::Event(a, Event::Lost), Output::Event(b, Event::Lost)]);
    assert_eq!(refused(&mut machine, a, Request::CreateSpace(SpaceId(1))), RefusalKind::Hardware);
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
    assert_eq!((tenant.submissions, tenant.updates, tenant.mapped_pages), (1, 1, 1));
    assert_eq!(tenant.gpu_share, 1.0);
    assert_eq!(tenant.foreign_accesses, Some(0));
    assert_eq!(status.gpu.backend, "fake");
}

#[test]
fn iovas_of_tenants_never_overlap() {
    let (_machine, fake, _, _) = two_tenants();

    let state = fake.state();
    let ranges: Vec<_> = state.dma.iter().map(|(iova, size)| (Iova(*iova), *size)).collect();
    assert!(ranges[0].0.0 + ranges[0].1 <= ranges[1].0.0);
}
