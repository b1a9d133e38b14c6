//! The event ring: how the aggregator tells a tenant what happened, without waiting for it.
//!
//! One producer (the aggregator), one consumer (the tenant's link). Notifications of finished work are bits of
//! one word, as they are in hardware: they merge and cannot overflow. Everything else is a record. A consumer
//! that does not read for so long that [`CAPACITY`] records pile up loses records: its own loss, counted.
//!
//! A driver that looks at fences itself has masked the interrupt that such a notification becomes. Its vGPU says so
//! ([`Notifications`]), and is not woken up for what nobody would see: the bits stay until somebody looks. Where the
//! notification would become a message, and nothing else, the vGPU says that too: then the producer sends the message
//! itself ([`super::message`]), once, and the bits stay until the driver's handler comes for them.
//!
//! The wake-up is a pipe, not an eventfd: each end of a pipe has its own open file description, so a hostile
//! consumer cannot turn the producer's writes into blocking ones. The consumer sees the aggregator's death as
//! the end of the pipe. The producer never trusts the consumer's index: all it can do is to make the ring look
//! full or to lose its own records.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use rustix::pipe::PipeFlags;

use super::event_record::{RECORD_WORDS, decode, encode};
use super::link::Kept;
use super::message::Message;
use super::protocol::Event;
use super::shared::SharedWords;
use crate::chip::{Engine, EngineSet};
use crate::units::backend::Heed;

/// Records that fit.
pub const CAPACITY: u32 = 512;

const HEAD: usize = 0;
const TAIL: usize = 16;
const WAITING: usize = 32;
/// What a notification is to the consumer: 0, a reason to wake it up; else of the bits below.
const HEED: usize = 33;
const NOTIFIED: usize = 48;
const RECORDS: usize = 64;
const PAGES: usize = (RECORDS + CAPACITY as usize * RECORD_WORDS).div_ceil(1024);

/// Nothing: nobody would see it.
const UNHEEDED: u32 = 1 << 31;
/// The message was sent.
const SENT: u32 = 1 << 30;
/// Those of these engines are a message, those of others nothing.
const ENGINES: u32 = EngineSet::all().bits();
const _: () = assert!(ENGINES & (UNHEEDED | SENT) == 0);

/// The aggregator's end.
#[derive(Debug)]
pub struct EventProducer {
    ring: SharedWords,
    wake: OwnedFd,
    message: Option<Message>,
    unsent: u64,
    tail: u32,
    lost: u64,
}

/// The tenant's end.
#[derive(Debug)]
pub struct EventConsumer {
    ring: Arc<SharedWords>,
    wake: OwnedFd,
    head: u32,
}

/// The tenant's notifications of finished work, for whoever knows whether its driver has them masked. Besides the
/// consumer's thread.
#[derive(Clone, Debug)]
pub struct Notifications {
    ring: Arc<SharedWords>,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There may be events.
    News,
    /// The aggregator is gone.
    Ended,
}

/// Makes a ring: the producer, the ring's file and the pipe end for the consumer.
///
/// # Errors
/// Out of memory or descriptors.
pub fn create() -> io::Result<(EventProducer, OwnedFd, OwnedFd)> {
    let (ring, file) = SharedWords::create("gpuvmk-events", PAGES)?;
    let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((EventProducer { ring, wake: ours, message: None, unsent: 0, tail: 0, lost: 0 }, file, theirs))
}

impl EventProducer {
    /// Hands over an event. Never blocks. False when the consumer is so far behind that the event is lost.
    pub fn send(&mut self, event: Event) -> bool {
        let kept = match event {
            Event::NonStall(engine) if self.notify(engine) => true,
            Event::NonStall(_) => return true,
            _ => self.push(event),
        };
        self.wake();
        kept
    }

    /// How the consumer's message is sent from now on; the old way is let go.
    pub fn set_message(&mut self, message: Option<Message>) {
        self.message = message;
    }

    /// Notes the end of work. True when the consumer is to be woken up.
    fn notify(&mut self, engine: Engine) -> bool {
        let bits = EngineSet::from(engine).bits();
        // A bit that is still set has not been taken: nothing new to tell.
        if self.ring.word(NOTIFIED).fetch_or(bits, Ordering::SeqCst) & bits == bits {
            return false;
        }
        // One that is not heeded, or for which the driver comes anyway, is taken by whoever changes that: he says so first, and
        // looks then; here it is the other way round.
        let word = self.ring.word(HEED);
        let heed = word.load(Ordering::SeqCst);
        if heed == 0 {
            return true;
        }
        if heed & (UNHEEDED | SENT) != 0 || heed & bits == 0 {
            return false;
        }
        let Some(message) = &self.message else { return true };
        // Said before it is done: a driver that handles the message must find that it was sent.
        if word.compare_exchange(heed, heed | SENT, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            return true;
        }
        let Err(error) = message.send() else { return false };
        self.unsent = self.unsent.saturating_add(1);
        // A tenant decides how often.
        if self.unsent.is_power_of_two() {
            let unsent = self.unsent;
            log::warn!(
                "a backend's message cannot be sent ({unsent} so far), it may do that itself: {error}"
            );
        }
        self.message = None;
        self.push(Event::Unsent)
    }

    /// Events lost because the consumer did not take them.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    fn push(&mut self, event: Event) -> bool {
        let head = self.ring.word(HEAD).load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) >= CAPACITY {
            self.lost = self.lost.saturating_add(1);
            return false;
        }
        let at = record_at(self.tail);
        for (i, word) in encode(event).into_iter().enumerate() {
            self.ring.word(at.wrapping_add(i)).store(word, Ordering::Relaxed);
        }
        self.tail = self.tail.wrapping_add(1);
        self.ring.word(TAIL).store(self.tail, Ordering::Release);
        true
    }

    fn wake(&self) {
        fence(Ordering::SeqCst);
        let waiting = self.ring.word(WAITING);
        if waiting.load(Ordering::SeqCst) != 0 && waiting.swap(0, Ordering::SeqCst) != 0 {
            // A full pipe means that the consumer was told often enough; a broken one, that it is gone, which
            // its socket tells too.
            let _ = rustix::io::write(&self.wake, &[1]);
        }
    }
}

impl EventConsumer {
    /// The tenant's end, from the files that the aggregator sent.
    ///
    /// # Errors
    /// The memory is not a ring.
    pub fn open(file: BorrowedFd<'_>, wake: OwnedFd) -> io::Result<Self> {
        Ok(Self { ring: Arc::new(SharedWords::open(file, PAGES)?), wake, head: 0 })
    }

    /// The notifications among what comes.
    pub fn notifications(&self) -> Notifications {
        Notifications { ring: Arc::clone(&self.ring) }
    }

    /// Takes everything that is there.
    pub fn take(&mut self, mut each: impl FnMut(Event)) -> usize {
        let mut taken: usize = 0;
        let tail = self.ring.word(TAIL).load(Ordering::Acquire);
        let count = tail.wrapping_sub(self.head).min(CAPACITY);
        for _ in 0..count {
            let at = record_at(self.head);
            let record = std::array::from_fn(|i| self.ring.word(at.wrapping_add(i)).load(Ordering::Relaxed));
            self.head = self.head.wrapping_add(1);
            self.ring.word(HEAD).store(self.head, Ordering::Release);
            if let Some(event) = decode(record) {
                each(event);
                taken = taken.saturating_add(1);
            }
        }
        // What a message was sent for is left to whoever handles it.
        if self.ring.word(HEED).load(Ordering::SeqCst) & SENT == 0 {
            for engine in take_notified(&self.ring).engines() {
                each(Event::NonStall(engine));
                taken = taken.saturating_add(1);
            }
        }
        taken
    }

    /// Sleeps until there is something to take, the aggregator is gone, or `stop` is readable.
    ///
    /// # Errors
    /// Polling failed.
    pub fn wait(&mut self, stop: BorrowedFd<'_>) -> io::Result<Woken> {
        use rustix::event::{PollFd, PollFlags, poll};

        self.ring.word(WAITING).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let tail = self.ring.word(TAIL).load(Ordering::SeqCst);
        let heeded = self.ring.word(HEED).load(Ordering::SeqCst) & (UNHEEDED | SENT) == 0;
        if tail != self.head || (heeded && self.ring.word(NOTIFIED).load(Ordering::SeqCst) != 0) {
            self.ring.word(WAITING).store(0, Ordering::SeqCst);
            return Ok(Woken::News);
        }
        let mut fds = [PollFd::new(&self.wake, PollFlags::IN), PollFd::from_borrowed_fd(stop, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Woken::News),
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 64];
        match rustix::io::read(&self.wake, &mut bytes) {
            Ok(0) => Ok(Woken::Ended),
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(Woken::News),
            Err(error) => Err(error.into()),
        }
    }
}

impl Notifications {
    /// What they are from now on. What came while they were nothing is the answer, once they are something.
    pub fn heed(&self, heed: Heed) -> Kept {
        let word = match heed {
            Heed::No => UNHEEDED,
            Heed::Wake => 0,
            Heed::Message(engines) => engines.bits(),
        };
        let sent = self.ring.word(HEED).swap(word, Ordering::SeqCst) & SENT != 0;
        let engines = if heed == Heed::No { EngineSet::empty() } else { take_notified(&self.ring) };
        Kept { engines, sent }
    }

    /// Takes what nobody has taken yet. If a message was sent, no other is before [`Self::heed`] says so.
    pub fn take(&self) -> Kept {
        let word = self.ring.word(HEED);
        // A plain load first: what does not change costs no locked instruction. Nobody else takes the mark away.
        let sent = word.load(Ordering::SeqCst) & SENT != 0;
        if sent {
            word.store(0, Ordering::SeqCst);
        }
        Kept { engines: take_notified(&self.ring), sent }
    }
}

fn take_notified(ring: &SharedWords) -> EngineSet {
    // A plain load first: what is empty costs no locked instruction.
    if ring.word(NOTIFIED).load(Ordering::Relaxed) == 0 {
        return EngineSet::empty();
    }
    EngineSet::from_bits_truncate(ring.word(NOTIFIED).swap(0, Ordering::SeqCst))
}

const fn record_at(index: u32) -> usize {
    RECORDS + (index % CAPACITY) as usize * RECORD_WORDS
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::super::message::MessageSender;
    use super::*;
    use crate::addr::GuestChannel;

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

    fn kept(engines: EngineSet, sent: bool) -> Kept {
        Kept { engines, sent }
    }

    /// A driver's eventfd, by which the producer sends messages from now on.
    fn connect_message(producer: &mut EventProducer) -> OwnedFd {
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let event = rustix::event::eventfd(0, flags).unwrap();
        let copy = event.try_clone().unwrap();
        producer.set_message(Some(Message::new(copy, Arc::new(MessageSender::new().unwrap()))));
        event
    }

    fn messages(event: &OwnedFd) -> u64 {
        let mut raw = [0; 8];
        rustix::io::read(event, &mut raw).map_or(0, |_| u64::from_ne_bytes(raw))
    }

    fn never() -> OwnedFd {
        rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap()
    }

    #[test]
    fn notifications_merge_and_records_keep_their_order() {
        let (mut producer, mut consumer) = pair();

        for i in 0..3 {
            producer.send(Event::NonStall(Engine::Copy(0)));
            producer.send(Event::Preempted(GuestChannel(i)));
        }

        assert_eq!(
            take(&mut consumer),
            [
                Event::Preempted(GuestChannel(0)),
                Event::Preempted(GuestChannel(1)),
                Event::Preempted(GuestChannel(2)),
                Event::NonStall(Engine::Copy(0)),
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

        assert_eq!(notifications.heed(Heed::No), kept(EngineSet::empty(), false));
        fall_asleep(&consumer);
        for engine in [Engine::Graphics, Engine::Copy(1), Engine::Copy(1)] {
            producer.send(Event::NonStall(engine));
        }
        assert!(is_asleep(&consumer));

        // A record is heeded in any case, and takes them along.
        producer.send(Event::Lost);
        assert!(!is_asleep(&consumer));
        let all = [Event::Lost, Event::NonStall(Engine::Graphics), Event::NonStall(Engine::Copy(1))];
        assert_eq!(take(&mut consumer), all);

        producer.send(Event::NonStall(Engine::Graphics));
        assert_eq!(notifications.take(), kept(Engine::Graphics.into(), false));
        producer.send(Event::NonStall(Engine::Copy(0)));
        assert_eq!(notifications.heed(Heed::Wake), kept(Engine::Copy(0).into(), false));
        fall_asleep(&consumer);
        producer.send(Event::NonStall(Engine::Copy(0)));
        assert!(!is_asleep(&consumer));
        assert_eq!(take(&mut consumer), [Event::NonStall(Engine::Copy(0))]);
    }

    #[test]
    fn notification_that_is_a_message_is_sent_once_and_wakes_nobody_up() {
        let (mut producer, mut consumer) = pair();
        let notifications = consumer.notifications();
        let event = connect_message(&mut producer);
        let copies = EngineSet::COPY0 | EngineSet::COPY1;

        for _ in 0..3 {
            assert_eq!(notifications.heed(Heed::Message(copies)), kept(EngineSet::empty(), false));
            fall_asleep(&consumer);
            producer.send(Event::NonStall(Engine::Graphics));
            assert_eq!((messages(&event), is_asleep(&consumer)), (0, true), "which is nothing to the driver");
            for _ in 0..2 {
                producer.send(Event::NonStall(Engine::Copy(0)));
                producer.send(Event::NonStall(Engine::Copy(1)));
            }
            assert_eq!((messages(&event), is_asleep(&consumer)), (1, true));
            // The handler's, not the thread's, even if that is awake for something else.
            producer.send(Event::Preempted(GuestChannel(0)));
            assert_eq!(take(&mut consumer), [Event::Preempted(GuestChannel(0))]);
            assert_eq!(notifications.take(), kept(copies | EngineSet::GRAPHICS, true));
            // Until the driver allows the next one.
            fall_asleep(&consumer);
            producer.send(Event::NonStall(Engine::Copy(0)));
            assert_eq!((messages(&event), is_asleep(&consumer)), (0, false));
            assert_eq!(take(&mut consumer), [Event::NonStall(Engine::Copy(0))]);
        }
    }

    #[test]
    fn what_changes_before_the_handler_came_tells_that_a_message_was_sent() {
        let (mut producer, consumer) = pair();
        let notifications = consumer.notifications();
        let event = connect_message(&mut producer);
        let graphics = EngineSet::GRAPHICS;

        for heed in [Heed::Wake, Heed::No, Heed::Message(graphics)] {
            notifications.heed(Heed::Message(graphics));
            producer.send(Event::NonStall(Engine::Graphics));
            assert_eq!(messages(&event), 1);
            let engines = if heed == Heed::No { EngineSet::empty() } else { graphics };
            assert_eq!(notifications.heed(heed), kept(engines, true));
            notifications.take();
        }
    }

    #[test]
    fn message_that_nobody_can_send_wakes_the_consumer_up() {
        let (mut producer, mut consumer) = pair();
        consumer.notifications().heed(Heed::Message(EngineSet::all()));
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
        producer.set_message(Some(Message::new(reader, Arc::new(MessageSender::new().unwrap()))));
        notifications.heed(Heed::Message(EngineSet::all()));
        fall_asleep(&consumer);

        producer.send(Event::NonStall(Engine::Graphics));

        assert!(!is_asleep(&consumer));
        assert_eq!(take(&mut consumer), [Event::Unsent]);
        assert_eq!(notifications.take(), kept(EngineSet::GRAPHICS, true), "for the driver's handler");
        notifications.heed(Heed::Message(EngineSet::all()));
        producer.send(Event::NonStall(Engine::Graphics));
        assert_eq!(take(&mut consumer), [Event::NonStall(Engine::Graphics)]);
    }

    #[test]
    fn no_notification_is_lost_while_messages_come_and_go() {
        const ROUNDS: u32 = 20_000;
        let (mut producer, mut consumer) = pair();
        let notifications = consumer.notifications();
        let event = connect_message(&mut producer);
        let (ask, asked) = std::sync::mpsc::sync_channel(0);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            while asked.recv().is_ok() {
                producer.send(Event::NonStall(Engine::Graphics));
            }
        });
        std::thread::spawn(move || {
            let stop = never();
            let mut sent = 0;
            for _ in 0..ROUNDS {
                assert!(notifications.heed(Heed::Message(EngineSet::all())).engines.is_empty());
                ask.send(()).unwrap();
                // The producer is at it meanwhile.
                let kept = notifications.heed(Heed::Wake);
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

        let sent =
            told.recv_timeout(std::time::Duration::from_secs(60)).expect("every notification to arrive");
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
        consumer.notifications().heed(Heed::No);
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
        let (mut producer, mut consumer) = pair();
        let notifications = consumer.notifications();
        let (ask, asked) = std::sync::mpsc::sync_channel(0);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            while asked.recv().is_ok() {
                producer.send(Event::NonStall(Engine::Graphics));
            }
        });
        std::thread::spawn(move || {
            let stop = never();
            for _ in 0..ROUNDS {
                notifications.heed(Heed::No);
                ask.send(()).unwrap();
                // The producer is at it meanwhile.
                if notifications.heed(Heed::Wake).engines.is_empty() {
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
}
