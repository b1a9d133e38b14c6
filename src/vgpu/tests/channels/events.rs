//! Events of channels on their way to the register face.

use super::*;

#[test]
fn notifications_come_when_the_driver_is_interested_or_when_they_are_asked_for() {
    let f = fixture();
    let notify =
        |sent| *f.link.notified.lock().unwrap() = Deferred { engines: Engine::Graphics.into(), sent };
    let told = [Told::NonStall(Engine::Graphics)];

    assert!(!f.mediator.set_completion_interest(InterruptInterest::Masked));
    notify(false);
    assert_eq!((f.face.take().len(), *f.link.interest.lock().unwrap()), (0, Some(InterruptInterest::Masked)));
    assert!(!f.mediator.take_completions());
    assert_eq!(f.face.take(), told);
    notify(false);
    assert!(!f.mediator.set_completion_interest(InterruptInterest::Wake));
    assert_eq!(
        (f.face.take(), *f.link.interest.lock().unwrap()),
        (told.to_vec(), Some(InterruptInterest::Wake))
    );
}

#[test]
fn face_is_told_once_that_the_aggregator_sent_the_message() {
    let f = fixture();
    let posted = [Told::Posted(Engine::Graphics.into())];
    let notify =
        || *f.link.notified.lock().unwrap() = Deferred { engines: Engine::Graphics.into(), sent: true };

    f.mediator.set_completion_interest(InterruptInterest::Message(EngineSet::all()));
    notify();
    assert!(f.mediator.take_completions());
    assert_eq!(f.face.take(), posted);
    assert!(!f.mediator.take_completions());
    notify();
    assert!(f.mediator.set_completion_interest(InterruptInterest::Wake));
    assert_eq!(f.face.take(), posted);
    f.link.handler().event(Event::Unsent);
    assert_eq!(f.face.take(), [Told::Unsent]);
    let counts = f.mediator.status().counts;
    assert_eq!((counts.messages_posted, counts.events_non_stall), (2, 2));
}

#[test]
fn aggregator_knows_which_eventfd_sends_the_message_and_that_there_is_none() {
    let f = fixture();
    let event = || Some(rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap());

    f.mediator.connect_message(None);
    assert_eq!(f.link.take(), []);
    f.mediator.connect_message(event());
    f.mediator.connect_message(None);
    f.mediator.connect_message(None);
    let told = [true, false].map(|given| Request::MessageEvent { given });
    assert_eq!(f.link.take(), told);
    // One that does not want to know costs nothing else.
    let refused = LinkError::Refused { kind: RefusalKind::Exhausted, message: "no".to_owned() };
    *f.link.refuse.lock().unwrap() = Some(Box::new(move |_| Some(refused.clone())));
    f.mediator.connect_message(event());
    assert_eq!(f.mediator.status().state, State::Running);
}

#[test]
fn events_on_the_callers_thread_inside_a_request_reach_the_face() {
    let f = fixture();
    f.start(0);
    *f.link.in_request.lock().unwrap() = vec![Event::NonStall(Engine::Graphics), Event::Stopped(fault(0))];

    f.mediator.preempt_channel(GuestChannel(0));

    assert_eq!(f.face.take(), [Told::NonStall(Engine::Graphics), Told::Stopped(fault(0))]);
    assert!(f.mediator.preempt_pending());
}

#[test]
fn events_for_a_channel_that_is_gone_are_dropped() {
    let f = fixture();
    f.start(0);
    f.mediator.bind_channel(GuestChannel(0), None);
    let error = ChannelStop::new(GuestChannel(0), HostError { pbdma: 0, status: 1, method: 0, data: 0 });

    f.link.handler().event(Event::Stopped(fault(0)));
    f.link.handler().event(Event::Stopped(error));

    assert_eq!(f.face.take(), []);
    assert_eq!(f.mediator.status().counts.events_stale, 2);
}

#[test]
fn errors_reach_the_face_with_all_they_say() {
    let f = fixture();
    f.start(0);
    let host = ChannelStop::new(GuestChannel(0), HostError { pbdma: 1, status: 2, method: 3, data: 4 });
    let graphics = ChannelStop::new(
        GuestChannel(0),
        GraphicsError { status: 1, subchannel: 2, class: 0x9039, method: 0x300, data: 5 },
    );

    f.link.handler().event(Event::Stopped(host));
    f.link.handler().event(Event::Stopped(graphics));

    assert_eq!(f.face.take(), [Told::Stopped(host), Told::Stopped(graphics)]);
}

/// What a driver learns of a channel that it gave work to, and that does not run.
fn end_of(channel: u16) -> Told {
    Told::Stopped(ChannelStop::new(GuestChannel(channel), refused_access(GpuVa(0), FaultReason::NoChannel)))
}

#[test]
fn channel_beyond_the_granted_ends_in_a_fault_when_it_gets_work() {
    let f = fixture();
    for n in [CHANNELS, 127] {
        f.write_instance(n % CHANNELS);
        f.mediator.bind_channel(GuestChannel(n), Some(vram(INSTANCE)));
        f.mediator.enable_channel(GuestChannel(n), true);
        assert_eq!(f.face.take(), [], "nothing was asked of it yet");

        f.mediator.doorbell(GuestChannel(n), 1);
        f.mediator.doorbell(GuestChannel(n), 2);

        assert_eq!(f.face.take(), [end_of(n)], "told once");
        // A driver that starts it again gets the error again.
        f.mediator.enable_channel(GuestChannel(n), true);
        f.mediator.doorbell(GuestChannel(n), 1);
        assert_eq!(f.face.take(), [end_of(n)]);
        f.mediator.enable_channel(GuestChannel(n), true);
        f.mediator.enable_channel(GuestChannel(n), false);
        f.mediator.doorbell(GuestChannel(n), 1);
        assert_eq!(f.face.take(), [], "a stopped channel does not run anyway");
    }
    let counts = f.mediator.status().counts;
    assert_eq!((counts.channels_refused, counts.doorbells), (4, 0));
}

#[test]
fn channel_that_the_aggregator_refused_ends_in_a_fault_and_works_when_it_is_had() {
    let f = fixture();
    f.start(0);
    let exhausted = |request: &Request| {
        matches!(request, Request::CreateChannel { .. }).then(|| refused(RefusalKind::Exhausted))
    };
    f.link.refuse_with(exhausted);
    f.write_instance(1);
    f.bind(1);
    f.mediator.enable_channel(GuestChannel(1), true);
    f.mediator.doorbell(GuestChannel(1), 1);
    assert_eq!(f.face.take(), [end_of(1)]);
    f.mediator.doorbell(GuestChannel(0), 1);
    assert_eq!(f.face.take(), [], "others go on");

    f.link.refuse_nothing();
    f.bind(1);
    f.mediator.enable_channel(GuestChannel(1), true);
    f.mediator.doorbell(GuestChannel(1), 1);

    assert_eq!(f.face.take(), []);
    assert_eq!(f.mediator.status().counts.doorbells, 2);
}

#[test]
fn channel_with_a_bad_instance_block_ends_in_a_fault() {
    let f = fixture();
    f.bind(2);
    f.mediator.enable_channel(GuestChannel(2), true);
    f.mediator.doorbell(GuestChannel(2), 1);
    assert_eq!(f.face.take(), [end_of(2)]);
}
