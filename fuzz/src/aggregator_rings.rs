//! Memory that the aggregator shares with a device backend: doorbell board, mailbox, event ring. The other
//! side writes what it likes between any two steps; nothing is taken twice over, without bound, or for a
//! channel that cannot be.

use std::os::fd::AsFd;

use gpuvmk::addr::GuestChannel;
use gpuvmk::aggregator::doorbells::{self, DoorbellReceiver, DoorbellSender, Found, MAX_CHANNELS};
use gpuvmk::aggregator::event_ring::{self, CAPACITY, EventConsumer, EventProducer};
use gpuvmk::aggregator::protocol::{Doorbell, Event};
use gpuvmk::chip::channel_event::{ChannelStop, StopCause};
use gpuvmk::chip::{Engine, EngineSet};
use gpuvmk::pci::mapping::{Access, Mapping};

use crate::input::Input;

/// Bytes of a buffer that is smaller than the mailbox, and of one that is larger.
const BUFFERS: [usize; 3] = [16, 0x400, 0x2000];

struct Board {
    receiver: DoorbellReceiver,
    sender: DoorbellSender,
    memory: Mapping,
}

struct Ring {
    producer: EventProducer,
    consumer: EventConsumer,
    memory: Mapping,
}

fn mapping(file: impl AsFd) -> Mapping {
    let size = u64::try_from(rustix::fs::fstat(&file).expect("a file of ours").st_size).expect("a size");
    Mapping::of_file(file.as_fd(), 0, size, Access::ReadWrite).expect("a mapping")
}

/// Lets both sides use the memory while somebody writes to it.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let (receiver, file, wake) = doorbells::create().expect("a board");
    let sender = DoorbellSender::open(file.as_fd(), wake).expect("a board");
    let board = Board { receiver, sender, memory: mapping(file) };
    let (producer, file, pipe) = event_ring::create().expect("a ring");
    let consumer = EventConsumer::open(file.as_fd(), pipe).expect("a ring");
    let mut ring = Ring { producer, consumer, memory: mapping(file) };
    let mut steps = 0;
    while input.more() && steps < 256 {
        steps += 1;
        match input.below(4) {
            0 => scribble(&mut input, &board.memory, &doorbells::LANDMARKS),
            1 => scribble(&mut input, &ring.memory, &event_ring::LANDMARKS),
            2 => use_board(&mut input, &board),
            _ => use_ring(&mut input, &mut ring),
        }
    }
}

fn scribble(input: &mut Input<'_>, memory: &Mapping, landmarks: &[usize]) {
    for _ in 0..=input.below(8) {
        let word = if input.below(4) == 3 { u64::from(input.u16()) } else { input.pick(landmarks) as u64 };
        let value = match input.below(4) {
            0 => input.u8().into(),
            1 => u32::MAX,
            _ => input.u32(),
        };
        // What does not fit is not written.
        let _ = memory.write_u32(word * 4, value);
    }
}

fn use_board(input: &mut Input<'_>, board: &Board) {
    let Board { receiver, sender, .. } = board;
    let mut buffer = vec![0; input.pick(&BUFFERS)];
    match input.below(12) {
        0 => sender.ring(Doorbell { channel: GuestChannel(input.u16()), gp_put: input.u32() }),
        1..=3 => {
            let mut last = None;
            let taken = receiver.take(|doorbell, _| {
                assert!(doorbell.channel.0 < MAX_CHANNELS, "a channel that cannot be");
                assert!(last < Some(doorbell.channel.0), "a channel twice");
                last = Some(doorbell.channel.0);
            });
            assert!(taken <= usize::from(MAX_CHANNELS), "more doorbells than channels");
        }
        4 => drop(receiver.prepare_to_sleep(input.flag())),
        5 => drop(format!("{:?}", receiver.report())),
        6 => drop(sender.ask(input.bytes(200))),
        7 | 8 if receiver.mailbox().has_request() => {
            let length = receiver.mailbox().take(&mut buffer);
            assert!(length <= buffer.len(), "more than the buffer holds");
            let size = input.pick(&BUFFERS);
            receiver.mailbox().answer(&vec![input.u8(); size]);
        }
        9 => drop(sender.mailbox().sleep()),
        _ => {
            if let Found::Answer(length) = sender.mailbox().look(&mut buffer) {
                assert!(length <= buffer.len(), "more than the buffer holds");
            }
        }
    }
}

fn use_ring(input: &mut Input<'_>, ring: &mut Ring) {
    match input.below(4) {
        0 => {
            let before = ring.producer.lost();
            let event = match input.below(3) {
                0 => Event::NonStall(input.pick(&[Engine::Graphics, Engine::COPY1])),
                1 => Event::Preempted(GuestChannel(input.u16())),
                _ => Event::Stopped(ChannelStop::new(
                    GuestChannel(input.u16()),
                    StopCause::Manager(input.u32()),
                )),
            };
            let kept = ring.producer.send(event);
            assert_eq!(ring.producer.lost(), before + u64::from(!kept), "a loss that is not counted");
        }
        1 => {
            for index in 0..=u16::from(input.u8()) * 3 {
                ring.producer.send(Event::Preempted(GuestChannel(index)));
            }
        }
        _ => {
            let most = usize::try_from(CAPACITY).expect("a small ring") + EngineSet::all().engines().count();
            let mut told = 0;
            let taken = ring.consumer.take(|_| told += 1);
            assert!(taken == told && told <= most, "more events than fit");
        }
    }
}
