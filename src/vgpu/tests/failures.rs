//! Fail-safe state, resets, and an aggregator that goes.

use super::*;
use crate::{FailSafe, Quotas, State};
use gpuvmk_chip::addr::{Gpa, GuestChannel};
use gpuvmk_pci::{DmaBacking, DmaMapping};
use gpuvmk_shadow_pagetable::Limits;

fn refuse(f: &Fixture, kind: RefusalKind, what: fn(&Request) -> bool) {
    f.link.refuse_with(move |request| what(request).then(|| refused(kind)));
}

#[test]
fn refused_channel_does_not_run_and_the_rest_does() {
    let f = fixture();
    f.start(0);
    refuse(&f, RefusalKind::Exhausted, |request| matches!(request, Request::CreateChannel { .. }));
    f.write_instance(1);
    f.bind(1);
    f.mediator.enable_channel(GuestChannel(1), true);
    f.link.refuse_nothing();

    let status = f.mediator.status();
    assert_eq!(status.state, State::Running);
    assert_eq!((status.channels_bound, status.channels_placed, status.spaces), (2, 1, 1));
    f.mediator.enable_channel(GuestChannel(1), true);
    assert_eq!(f.mediator.status().channels_placed, 2);
}

#[test]
fn refused_space_costs_the_channel_only() {
    let f = fixture();
    refuse(&f, RefusalKind::Exhausted, |request| matches!(request, Request::CreateSpace(_)));
    f.start(0);
    let status = f.mediator.status();
    assert_eq!((status.state, status.channels_placed, status.spaces), (State::Running, 0, 0));
}

#[test]
fn more_spaces_than_granted_are_not_asked_for() {
    let f = fixture();
    for n in 0..=SPACES {
        f.write_instance(n);
        let block = INSTANCE + u64::from(n) * 0x1000;
        f.write_u64(block + ramin::PAGE_DIRECTORY_LO, 0x20_0000 + u64::from(n) * 0x2_0000);
        f.bind(n);
        f.mediator.enable_channel(GuestChannel(n), true);
    }
    let status = f.mediator.status();
    assert_eq!((status.spaces, status.channels_placed), (usize::from(SPACES), usize::from(SPACES)));
}

#[test]
fn refused_engines_take_the_host_channel_away() {
    let f = fixture();
    f.start(0);
    f.mediator.enable_channel(GuestChannel(0), false);
    f.write_u64(INSTANCE + ramin::GRAPHICS_CONTEXT_LO, 4);
    refuse(&f, RefusalKind::Exhausted, |request| matches!(request, Request::SetEngines { .. }));
    f.mediator.enable_channel(GuestChannel(0), true);
    let status = f.mediator.status();
    assert_eq!((status.channels_bound, status.channels_placed, status.spaces), (1, 0, 0));
}

#[test]
fn tables_beyond_the_limits_put_the_vgpu_into_fail_safe_until_a_reset() {
    let limits = Limits { tables: 1, ..Limits::DEFAULT };
    let f = fixture_with(MediatorConfig { limits: Some(limits), ..MediatorConfig::default() });
    f.start(0);
    f.write_pte(0, vram(0));

    f.flush();

    let state = f.mediator.status().state;
    let State::FailSafe(FailSafe::QuotaExceeded(why)) = &state else { panic!("{state:?}") };
    assert_eq!(why, "The guest's GPU page tables name more than 1 tables");
    assert_eq!(f.link.take(), [Request::Reset { scrub: false }]);
    assert!(matches!(f.face.take().as_slice(), [Told::Lost(_)]));
    let told = f.link.report.lock().unwrap().clone();
    let now = told.fail_safe.expect("told to the aggregator");
    assert_eq!((now.reason, told.fail_safe_count), (FailSafeReason::QuotaExceeded, 1));
    assert!(now.decided_us < 100_000, "decided after {} us", now.decided_us);

    // Inert: nothing reaches the aggregator, and nothing hangs.
    f.flush();
    f.bind(1);
    f.mediator.enable_channel(GuestChannel(1), true);
    f.mediator.preempt_channel(GuestChannel(0));
    f.mediator.doorbell(GuestChannel(0), 1);
    assert_eq!(f.link.take(), []);
    assert!(!f.mediator.preempt_pending() && f.link.doorbells.lock().unwrap().is_empty());
    assert_eq!(f.mediator.status().counts.dropped_in_fail_safe, 4);

    f.mediator.reset();
    assert_eq!(f.mediator.status().state, State::Running);
    assert_eq!(f.link.take(), [Request::Reset { scrub: false }]);
    let told = f.link.report.lock().unwrap().clone();
    assert_eq!((told.fail_safe, told.fail_safe_count), (None, 1));
}

#[test]
fn refusal_of_a_checked_request_is_a_protocol_violation() {
    let f = fixture();
    f.start(0);
    refuse(&f, RefusalKind::Protocol, |request| matches!(request, Request::SetRunlist(_)));
    f.commit(&[0]);
    assert!(matches!(f.mediator.status().state, State::FailSafe(FailSafe::ProtocolViolation(_))));
}

#[test]
fn reset_drops_everything_and_leaves_memory_announced() {
    let f = fixture_with(MediatorConfig { scrub_on_reset: true, ..MediatorConfig::default() });
    let fd = create_memory_file(c"ram", 0x1000).unwrap();
    let backing = Some(DmaBacking { fd, offset: 0 });
    f.mediator.dma_map(DmaMapping { iova: 0, size: 0x1000, writable: true, backing, owner: None }).unwrap();
    f.start(0);
    f.mediator.preempt_channel(GuestChannel(0));
    f.link.take();

    f.mediator.reset();

    assert_eq!(f.link.take(), [Request::Reset { scrub: true }]);
    let status = f.mediator.status();
    assert_eq!((status.channels_bound, status.spaces, status.tables), (0, 0, 0));
    assert!(!f.mediator.preempt_pending());
    f.mediator.doorbell(GuestChannel(0), 1);
    assert!(f.link.doorbells.lock().unwrap().is_empty());
    f.mediator.set_fifo_state(FIFO_ON);
    f.start(0);
    assert_eq!(f.mediator.status().channels_placed, 1);
    f.mediator.dma_unmap(0, 0x1000).unwrap();
}

#[test]
fn lost_aggregator_is_told_once_and_polls_end() {
    let f = fixture();
    f.start(0);
    f.mediator.preempt_channel(GuestChannel(0));

    f.link.handler().lost("socket closed");
    f.link.refuse_with(|_| Some(LinkError::Lost("socket closed".into())));
    f.mediator.enable_channel(GuestChannel(0), false);

    assert_eq!(f.face.take(), [Told::Lost("socket closed".into())]);
    assert!(!f.mediator.preempt_pending());
    let lost = State::FailSafe(FailSafe::AggregatorLost("socket closed".into()));
    assert_eq!(f.mediator.status().state, lost);
}

#[test]
fn loss_noticed_by_a_request_is_told_too() {
    let f = fixture();
    f.link.refuse_with(|_| Some(LinkError::Lost("gone".into())));
    f.start(0);
    assert_eq!(f.face.take(), [Told::Lost("The aggregator is gone: gone".into())]);
}

#[test]
fn reset_without_a_way_to_reconnect_stays_lost() {
    let f = fixture();
    f.link.handler().lost("gone");
    f.mediator.reset();
    assert!(matches!(f.mediator.status().state, State::FailSafe(FailSafe::AggregatorLost(_))));
    assert_eq!(f.face.take(), [Told::Lost("gone".into())]);

    // The register face has forgotten the loss; its first request shows it again.
    f.mediator.set_fifo_state(FifoState::default());
    f.bind(0);
    let again = "The aggregator is gone: nothing is known to connect to again";
    assert_eq!(f.face.take(), [Told::Lost(again.into())]);
}

#[test]
fn reset_connects_to_a_new_aggregator_and_announces_memory_again() {
    let second = Arc::new(FakeLink::default());
    let made = second.clone();
    let reconnect: crate::LinkFactory = Box::new(move || Ok((made.clone(), grant())));
    let f = fixture_with(MediatorConfig { reconnect: Some(reconnect), ..MediatorConfig::default() });
    let fd = create_memory_file(c"ram", 0x2000).unwrap();
    let backing = Some(DmaBacking { fd, offset: 0x1000 });
    f.mediator
        .dma_map(DmaMapping { iova: 0x5000, size: 0x1000, writable: true, backing, owner: None })
        .unwrap();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
    f.mediator.connect_message(Some(event));
    f.start(0);
    let old = f.link.handler();
    old.lost("gone");

    f.mediator.reset();

    assert_eq!(f.mediator.status().state, State::Running);
    let announced = Request::DmaMap { gpa: Gpa(0x5000), size: 0x1000, offset: 0x1000, writable: true };
    assert_eq!(second.take(), [announced, Request::MessageEvent { given: true }]);
    // The new VRAM is empty, the new link carries events, the old one nothing any more.
    let mut word = [1; 4];
    f.mediator.read_memory(vram(INSTANCE + ramin::RAMFC_SIGNATURE), &mut word).unwrap();
    assert_eq!(word, [0; 4]);
    f.face.take();
    old.event(Event::NonStall(Engine::Graphics));
    second.handler().event(Event::NonStall(Engine::COPY0));
    assert_eq!(f.face.take(), [Told::NonStall(Engine::COPY0)]);
    f.mediator.set_fifo_state(FIFO_ON);
    f.start(0);
    assert_eq!(second.take().len(), 3);
}

#[test]
fn new_aggregator_with_other_vram_is_not_accepted() {
    let reconnect: crate::LinkFactory = Box::new(|| {
        let fd = create_memory_file(c"small", 0x10_0000).unwrap();
        let window = vec![SharedMemory { fd, offset: 0, size: 0x10_0000 }];
        let grant = Grant { vram: 0x10_0000, channels: 1, spaces: 1, window, ..grant() };
        Ok((Arc::new(FakeLink::default()), grant))
    });
    let f = fixture_with(MediatorConfig { reconnect: Some(reconnect), ..MediatorConfig::default() });
    f.link.handler().lost("gone");
    f.mediator.reset();
    assert!(matches!(f.mediator.status().state, State::FailSafe(FailSafe::AggregatorLost(_))));
}

/// What a guest does.
type Cause<'a> = &'a dyn Fn(&Fixture);

/// Every reason: what leads there, in which request it is decided, what operators see, and that a reset ends
/// it.
#[test]
fn every_reason_is_told_with_its_time_and_ends_with_a_reset() {
    let refuse_updates = |f: &Fixture, kind: RefusalKind| {
        refuse_kind(f, kind);
        f.write_pte(0, vram(0));
        f.flush();
    };
    let causes: [(FailSafeReason, Cause<'_>); 6] = [
        (FailSafeReason::QuotaExceeded, &|f| refuse_updates(f, RefusalKind::Quota)),
        (FailSafeReason::HardwareFailed, &|f| refuse_updates(f, RefusalKind::Hardware)),
        (FailSafeReason::MemoryLost, &|f| refuse_updates(f, RefusalKind::MemoryLost)),
        (FailSafeReason::ProtocolViolation, &|f| refuse_updates(f, RefusalKind::Protocol)),
        (FailSafeReason::ForeignMemory, &|f| {
            f.write_pte(0, vram(VRAM));
            f.flush();
        }),
        (FailSafeReason::AggregatorLost, &|f| {
            f.link.refuse_with(|_| Some(LinkError::Lost("gone".into())));
            f.commit(&[0]);
        }),
    ];
    for (reason, cause) in causes {
        let again = Arc::new(FakeLink::default());
        let made = again.clone();
        let reconnect: crate::LinkFactory = Box::new(move || Ok((made.clone(), grant())));
        let quotas = Quotas { bad_pages: 0, ..Quotas::default() };
        let config = MediatorConfig { quotas, reconnect: Some(reconnect), ..MediatorConfig::default() };
        let f = fixture_with(config);
        f.start(0);

        cause(&f);

        let told = f.link.report.lock().unwrap().clone();
        let now = told.fail_safe.expect("told to the aggregator");
        assert_eq!((now.reason, told.fail_safe_count), (reason, 1));
        assert!(now.decided_us < 100_000, "{reason:?} was decided after {} us", now.decided_us);
        assert!(matches!(f.face.take().as_slice(), [Told::Lost(_)]), "{reason:?}");

        f.link.refuse_nothing();
        f.mediator.reset();
        assert_eq!(f.mediator.status().state, State::Running, "{reason:?}");
        let lost = reason == FailSafeReason::AggregatorLost;
        let told = if lost { &again } else { &f.link }.report.lock().unwrap().clone();
        assert_eq!((told.fail_safe, told.fail_safe_count), (None, 1), "{reason:?}");
    }
}

fn refuse_kind(f: &Fixture, kind: RefusalKind) {
    refuse(f, kind, |request| matches!(request, Request::UpdateSpace { .. }));
}
