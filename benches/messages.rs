//! What passes between a device back end and the aggregator: requests as bytes, doorbells on the board,
//! events on the ring, requests in the mailbox. One thread plays both ends, so nobody is woken: what is
//! measured is the work.
//!
//! `cargo bench --bench messages`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that cannot be set up ends")]

use std::os::fd::AsFd;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box, black_box_drop};
use gpuvmk::addr::{GpuVa, GuestChannel, GuestVram};
use gpuvmk::aggregator::doorbells::{self, DoorbellReceiver, DoorbellSender, MAX_CHANNELS};
use gpuvmk::aggregator::event_ring::{self, EventConsumer, EventProducer};
use gpuvmk::aggregator::protocol::{
    Doorbell, Event, GuestMapping, GuestTarget, MAX_UPDATE_RUNS, Reply, Request, SpaceId,
};
use gpuvmk::aggregator::wire::{decode_reply, decode_request, encode_reply, encode_request};
use gpuvmk::chip::Engine;

fn main() {
    divan::main();
}

/// Runs of an update: what a small buffer needs, some, as many as fit.
const RUNS: [usize; 3] = [1, 64, MAX_UPDATE_RUNS];

fn update(runs: usize) -> Request {
    let map = (0u64..).take(runs).map(|run| GuestMapping {
        va: GpuVa(run << 16),
        pages: 8,
        page_shift: 12,
        target: GuestTarget::Vram(GuestVram(run << 17)),
        read_only: false,
        kind: 0,
    });
    Request::UpdateSpace { space: SpaceId(1), unmap: Vec::new(), map: map.collect() }
}

/// Items are runs.
#[divan::bench(args = RUNS)]
fn encode_update(bencher: Bencher<'_, '_>, runs: usize) {
    let (request, mut bytes) = (update(runs), Vec::new());
    bencher.counter(ItemsCount::new(runs)).bench_local(|| encode_request(black_box(&request), &mut bytes));
}

/// Items are runs.
#[divan::bench(args = RUNS)]
fn decode_update(bencher: Bencher<'_, '_>, runs: usize) {
    let mut bytes = Vec::new();
    encode_request(&update(runs), &mut bytes);
    bencher.counter(ItemsCount::new(runs)).bench_local(|| decode_request(black_box(&bytes)).unwrap());
}

#[divan::bench]
fn reply_there_and_back(bencher: Bencher<'_, '_>) {
    let mut bytes = Vec::new();
    bencher.bench_local(|| {
        encode_reply(black_box(&Reply::Done), &mut bytes);
        decode_reply(&bytes).unwrap()
    });
}

fn board() -> (DoorbellReceiver, DoorbellSender) {
    let (receiver, file, wake) = doorbells::create().unwrap();
    (receiver, DoorbellSender::open(file.as_fd(), wake).unwrap())
}

/// Items are doorbells, each of another channel.
#[divan::bench(args = [1, 8, 64, MAX_CHANNELS])]
fn ring_and_take(bencher: Bencher<'_, '_>, channels: u16) {
    let (receiver, sender) = board();
    let mut gp_put = 0_u32;
    bencher.counter(ItemsCount::new(channels)).bench_local(|| {
        gp_put = gp_put.wrapping_add(1);
        for channel in 0..channels {
            sender.ring(Doorbell { channel: GuestChannel(channel), gp_put });
        }
        assert_eq!(receiver.take(|doorbell, _| black_box_drop(doorbell)), usize::from(channels));
    });
}

#[divan::bench]
fn look_at_a_board_without_news(bencher: Bencher<'_, '_>) {
    let (receiver, _sender) = board();
    bencher.bench_local(|| receiver.take(|doorbell, _| black_box_drop(doorbell)));
}

fn ring() -> (EventProducer, EventConsumer) {
    let (producer, file, wake) = event_ring::create().unwrap();
    (producer, EventConsumer::open(file.as_fd(), wake).unwrap())
}

/// Items are events.
#[divan::bench(args = [1, 8, 64])]
fn send_and_take_events(bencher: Bencher<'_, '_>, events: u16) {
    let (mut producer, mut consumer) = ring();
    bencher.counter(ItemsCount::new(events)).bench_local(|| {
        for channel in 0..events {
            assert!(producer.send(Event::Preempted(GuestChannel(channel))));
        }
        assert_eq!(consumer.take(black_box_drop), usize::from(events));
    });
}

#[divan::bench]
fn notify_and_take(bencher: Bencher<'_, '_>) {
    let (mut producer, mut consumer) = ring();
    bencher.bench_local(|| {
        producer.send(Event::NonStall(Engine::Graphics));
        consumer.take(black_box_drop)
    });
}
