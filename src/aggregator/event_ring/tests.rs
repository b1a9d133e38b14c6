//! The ring between two ends, and between two threads.

use std::os::fd::AsFd;

use super::*;
use gpuvmk_chip::addr::GuestChannel;

fn pair() -> (EventProducer, EventConsumer) {
    let (producer, file, wake) = create().unwrap();
    (producer, EventConsumer::open(file.as_fd(), wake).unwrap())
}

fn take(consumer: &mut EventConsumer) -> Vec<Event> {
    let mut all = Vec::new();
    consumer.take(|e| all.push(e));
    all
}

fn fall_asleep(consumer: &EventConsumer) {
    consumer.ring.word(WAITING).store(1, Ordering::SeqCst);
}

fn is_asleep(consumer: &EventConsumer) -> bool {
    consumer.ring.word(WAITING).load(Ordering::SeqCst) != 0
}

fn kept(engines: EngineSet, sent: bool) -> Deferred {
    Deferred { engines, sent }
}

/// A driver's eventfd, by which the producer sends messages from now on.
fn connect_message(producer: &mut EventProducer) -> OwnedFd {
    let flags = rustix::event::EventfdFlags::NONBLOCK;
    let event = rustix::event::eventfd(0, flags).unwrap();
    producer.sends_by(event.try_clone().unwrap());
    event
}

fn messages(event: &OwnedFd) -> u64 {
    let mut raw = [0; 8];
    rustix::io::read(event, &mut raw).map_or(0, |_| u64::from_ne_bytes(raw))
}

/// A thread that tells of finished work each time that it is asked.
fn notifier(mut producer: EventProducer) -> std::sync::mpsc::SyncSender<()> {
    let (ask, asked) = std::sync::mpsc::sync_channel(0);
    std::thread::spawn(move || {
        while asked.recv().is_ok() {
            producer.send(Event::NonStall(Engine::Graphics));
        }
    });
    ask
}

fn never() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap()
}

#[test]
fn notifications_merge_and_records_keep_their_order() {
    let (mut producer, mut consumer) = pair();

    for i in 0..3 {
        producer.send(Event::NonStall(Engine::COPY0));
        producer.send(Event::Preempted(GuestChannel(i)));
    }

    assert_eq!(
        take(&mut consumer),
        [
            Event::Preempted(GuestChannel(0)),
            Event::Preempted(GuestChannel(1)),
            Event::Preempted(GuestChannel(2)),
            Event::NonStall(Engine::COPY0),
        ]
    );
    assert_eq!(take(&mut consumer), []);
}

#[test]
fn notification_of_every_engine_arrives() {
    let (mut producer, mut consumer) = pair();

    for engine in Engine::ALL {
        producer.send(Event::NonStall(engine));
    }

    assert_eq!(take(&mut consumer), Engine::ALL.map(Event::NonStall));
}

#[test]
fn full_ring_loses_records_but_no_notification() {
    let (mut producer, mut consumer) = pair();

    let kept = (0..CAPACITY + 5).filter(|_| producer.send(Event::Lost)).count();
    producer.send(Event::NonStall(Engine::Graphics));

    assert_eq!(kept, CAPACITY as usize);
    assert_eq!(producer.lost(), 5);
    assert_eq!(take(&mut consumer).last(), Some(&Event::NonStall(Engine::Graphics)));
    assert!(producer.send(Event::Lost));
}

#[test]
fn hostile_consumer_index_cannot_do_more_than_lose_its_own_records() {
    let (mut producer, consumer) = pair();

    for head in [1, CAPACITY, u32::MAX, u32::MAX / 2] {
        consumer.ring.word(HEAD).store(head, Ordering::SeqCst);
        producer.send(Event::Lost);
    }

    assert!(producer.tail <= 4);
}

#[test]
fn producer_never_blocks_when_the_pipe_is_full() {
    let (mut producer, consumer) = pair();

    for _ in 0..100_000 {
        consumer.ring.word(WAITING).store(1, Ordering::SeqCst);
        producer.send(Event::Lost);
    }

    assert!(producer.lost() > 0);
}

#[test]
fn what_is_not_heeded_wakes_nobody_up_and_is_kept() {
    let (mut producer, mut consumer) = pair();
    let notifications = consumer.notifications();

    assert_eq!(notifications.interest(InterruptInterest::Masked), kept(EngineSet::empty(), false));
    fall_asleep(&consumer);
    for engine in [Engine::Graphics, Engine::COPY1, Engine::COPY1] {
        producer.send(Event::NonStall(engine));
    }
    assert!(is_asleep(&consumer));

    // A record is heeded in any case, and takes them along.
    producer.send(Event::Lost);
    assert!(!is_asleep(&consumer));
    let all = [Event::Lost, Event::NonStall(Engine::Graphics), Event::NonStall(Engine::COPY1)];
    assert_eq!(take(&mut consumer), all);

    producer.send(Event::NonStall(Engine::Graphics));
    assert_eq!(notifications.take(), kept(Engine::Graphics.into(), false));
    producer.send(Event::NonStall(Engine::COPY0));
    assert_eq!(notifications.interest(InterruptInterest::Wake), kept(Engine::COPY0.into(), false));
    fall_asleep(&consumer);
    producer.send(Event::NonStall(Engine::COPY0));
    assert!(!is_asleep(&consumer));
    assert_eq!(take(&mut consumer), [Event::NonStall(Engine::COPY0)]);
}

#[test]
fn notification_that_is_a_message_is_sent_once_and_wakes_nobody_up() {
    let (mut producer, mut consumer) = pair();
    let notifications = consumer.notifications();
    let event = connect_message(&mut producer);
    let copies = EngineSet::COPY0 | EngineSet::COPY1;

    for _ in 0..3 {
        assert_eq!(
            notifications.interest(InterruptInterest::Message(copies)),
            kept(EngineSet::empty(), false)
        );
        fall_asleep(&consumer);
        producer.send(Event::NonStall(Engine::Graphics));
        assert_eq!((messages(&event), is_asleep(&consumer)), (0, true), "which is nothing to the driver");
        for _ in 0..2 {
            producer.send(Event::NonStall(Engine::COPY0));
            producer.send(Event::NonStall(Engine::COPY1));
        }
        assert_eq!((messages(&event), is_asleep(&consumer)), (1, true));
        // The handler's, not the thread's, even if that is awake for something else.
        producer.send(Event::Preempted(GuestChannel(0)));
        assert_eq!(take(&mut consumer), [Event::Preempted(GuestChannel(0))]);
        assert_eq!(notifications.take(), kept(copies | EngineSet::GRAPHICS, true));
        // Until the driver allows the next one.
        fall_asleep(&consumer);
        producer.send(Event::NonStall(Engine::COPY0));
        assert_eq!((messages(&event), is_asleep(&consumer)), (0, false));
        assert_eq!(take(&mut consumer), [Event::NonStall(Engine::COPY0)]);
    }
}

#[test]
fn what_changes_before_the_handler_came_tells_that_a_message_was_sent() {
    let (mut producer, consumer) = pair();
    let notifications = consumer.notifications();
    let event = connect_message(&mut producer);
    let graphics = EngineSet::GRAPHICS;

    for interest in [InterruptInterest::Wake, InterruptInterest::Masked, InterruptInterest::Message(graphics)]
    {
        notifications.interest(InterruptInterest::Message(graphics));
        producer.send(Event::NonStall(Engine::Graphics));
        assert_eq!(messages(&event), 1);
        let engines = if interest == InterruptInterest::Masked { EngineSet::empty() } else { graphics };
        assert_eq!(notifications.interest(interest), kept(engines, true));
        notifications.take();
    }
}

#[test]
fn message_that_nobody_can_send_wakes_the_consumer_up() {
    let (mut producer, mut consumer) = pair();
    consumer.notifications().interest(InterruptInterest::Message(EngineSet::all()));
    fall_asleep(&consumer);
    producer.send(Event::NonStall(Engine::Graphics));
    assert!(!is_asleep(&consumer));
    assert_eq!(take(&mut consumer), [Event::NonStall(Engine::Graphics)]);
}

#[test]
fn message_by_what_is_no_eventfd_is_told_and_given_up() {
    let (mut producer, mut consumer) = pair();
    let notifications = consumer.notifications();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    producer.sends_by(reader);
    notifications.interest(InterruptInterest::Message(EngineSet::all()));
    fall_asleep(&consumer);

    producer.send(Event::NonStall(Engine::Graphics));

    assert!(!is_asleep(&consumer));
    assert_eq!(take(&mut consumer), [Event::Unsent]);
    assert_eq!(notifications.take(), kept(EngineSet::GRAPHICS, true), "for the driver's handler");
    notifications.interest(InterruptInterest::Message(EngineSet::all()));
    producer.send(Event::NonStall(Engine::Graphics));
    assert_eq!(take(&mut consumer), [Event::NonStall(Engine::Graphics)]);
}

#[test]
fn no_notification_is_lost_while_messages_come_and_go() {
    const ROUNDS: u32 = 20_000;
    let (mut producer, mut consumer) = pair();
    let notifications = consumer.notifications();
    let event = connect_message(&mut producer);
    let ask = notifier(producer);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let stop = never();
        let mut sent = 0;
        for _ in 0..ROUNDS {
            assert!(notifications.interest(InterruptInterest::Message(EngineSet::all())).engines.is_empty());
            ask.send(()).unwrap();
            // The producer is at it meanwhile.
            let kept = notifications.interest(InterruptInterest::Wake);
            sent += u64::from(kept.sent);
            assert!(!kept.sent || !kept.engines.is_empty(), "a message says what for");
            if kept.engines.is_empty() {
                while take(&mut consumer).is_empty() {
                    consumer.wait(stop.as_fd()).unwrap();
                }
            }
        }
        drop(ask);
        tell.send(sent).unwrap();
    });

    let sent = told.recv_timeout(std::time::Duration::from_secs(60)).expect("every notification to arrive");
    // The last may be on its way.
    let mut arrived = 0;
    while arrived < sent {
        arrived += messages(&event);
        std::thread::yield_now();
    }
    assert_eq!((arrived, messages(&event)), (sent, 0));
}

#[test]
fn consumer_sleeps_while_there_is_only_what_is_not_heeded() {
    let (mut producer, mut consumer) = pair();
    consumer.notifications().interest(InterruptInterest::Masked);
    producer.send(Event::NonStall(Engine::Graphics));
    let stop = never();
    rustix::io::write(&stop, &1_u64.to_ne_bytes()).unwrap();

    consumer.wait(stop.as_fd()).unwrap();

    let waiting = consumer.ring.word(WAITING).load(Ordering::SeqCst);
    assert_eq!(waiting, 1, "it did not come to sleeping");
}

#[test]
fn no_notification_is_lost_while_they_come_to_be_heeded() {
    const ROUNDS: u32 = 20_000;
    let (producer, mut consumer) = pair();
    let notifications = consumer.notifications();
    let ask = notifier(producer);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let stop = never();
        for _ in 0..ROUNDS {
            notifications.interest(InterruptInterest::Masked);
            ask.send(()).unwrap();
            // The producer is at it meanwhile.
            if notifications.interest(InterruptInterest::Wake).engines.is_empty() {
                while take(&mut consumer).is_empty() {
                    consumer.wait(stop.as_fd()).unwrap();
                }
            }
        }
        tell.send(()).unwrap();
    });

    told.recv_timeout(std::time::Duration::from_secs(60)).expect("every notification to arrive");
}

#[test]
fn end_of_the_producer_is_noticed() {
    let (producer, mut consumer) = pair();
    drop(producer);

    assert_eq!(consumer.wait(never().as_fd()).unwrap(), Woken::Ended);
}

#[test]
fn every_record_arrives_between_two_threads() {
    const COUNT: u16 = 20_000;
    let (mut producer, mut consumer) = pair();
    let sender = std::thread::spawn(move || {
        for i in 0..COUNT {
            while !producer.send(Event::Preempted(GuestChannel(i))) {
                std::thread::yield_now();
            }
        }
    });

    let stop = never();
    let mut next = 0;
    while next < COUNT {
        consumer.take(|event| {
            assert_eq!(event, Event::Preempted(GuestChannel(next)));
            next += 1;
        });
        if next < COUNT {
            consumer.wait(stop.as_fd()).unwrap();
        }
    }
    sender.join().unwrap();
}

#[test]
fn engine_time_is_there_without_an_event() {
    let (producer, mut consumer) = pair();
    let notifications = consumer.notifications();
    assert_eq!(notifications.engine_time(), EngineTime::default());

    let time = EngineTime { graphics: 7 << 32 | 1, copies: 5 };
    fall_asleep(&consumer);
    producer.set_engine_time(time);

    assert_eq!(notifications.engine_time(), time);
    assert!(is_asleep(&consumer) && take(&mut consumer).is_empty());
}
