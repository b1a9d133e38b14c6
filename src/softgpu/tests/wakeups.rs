//! Who is woken for what: the FIFO's tables alone, without threads.

use std::time::{Duration, Instant};

use crate::chip::GF100;
use crate::fifo::{Departure, Fifo, Worker};
use gpuvmk_backend::FifoState;
use gpuvmk_chip::addr::HostChannel;
use gpuvmk_chip::{Aperture, Engine, PhysicalAddress};

const BLOCK: PhysicalAddress = PhysicalAddress { aperture: Aperture::Vram, address: 0x1000 };

/// All PBDMAs asleep, channels 1 to 4 bound and started and on no runlist.
fn fifo() -> Fifo {
    let mut fifo = Fifo::new(GF100.channels, GF100.pbdmas);
    let ready = GF100.engines();
    fifo.state = FifoState { enabled: true, pbdma_mask: 0b111, ready, large_pages_64k: false };
    for number in (1..5).map(HostChannel) {
        fifo.bind(number, Some(BLOCK));
        let channel = fifo.channel_mut(number).unwrap();
        (channel.enabled, channel.pending) = (true, false);
    }
    (0..3).for_each(|pbdma| assert_eq!(fifo.lie_down(pbdma), None));
    fifo
}

#[test]
fn each_newly_listed_channel_wakes_one_and_those_that_were_listed_wake_nobody() {
    let (mut fifo, now) = (fifo(), Instant::now());

    fifo.set_runlist([1, 2].map(HostChannel));

    assert_eq!(fifo.call(now, 0).count_ones(), 2);
    for pbdma in 0..2 {
        fifo.get_up(pbdma);
        let job = fifo.next(pbdma, now).unwrap();
        fifo.leave(&job, Departure::Idle, now);
        fifo.lie_down(pbdma);
    }
    fifo.set_runlist([2, 1].map(HostChannel));
    assert_eq!(fifo.call(now, 0), 0, "they have done all that they were told of");
    fifo.set_runlist([1, 2, 3].map(HostChannel));
    assert_eq!(fifo.call(now, 0).count_ones(), 1);
}

#[test]
fn only_channels_that_may_not_run_any_more_have_to_leave() {
    let (mut fifo, now) = (fifo(), Instant::now());
    fifo.set_runlist([1, 2].map(HostChannel));
    let [one, two] = [0, 1].map(|pbdma| fifo.next(pbdma, now).unwrap().channel);

    fifo.set_runlist([two, HostChannel(3)]);

    assert_eq!([one, two], [1, 2].map(HostChannel));
    assert_eq!(fifo.to_leave().collect::<Vec<_>>(), [Worker::Pbdma(0)]);
}

#[test]
fn channel_that_an_engine_works_for_keeps_that_engine_and_no_pbdma() {
    let (mut fifo, now) = (fifo(), Instant::now());
    let later = now + Duration::from_millis(1);
    fifo.state.pbdma_mask = 1;
    fifo.set_runlist([1, 2, 3].map(HostChannel));
    fifo.get_up(0);
    let [one, two] = [1, 2].map(HostChannel);
    let job = fifo.next(0, now).unwrap();
    assert!(fifo.take_engine(Engine::Graphics, one) && fifo.take_engine(Engine::COPY0, one));

    fifo.leave(&job, Departure::Working(Engine::Graphics), now);

    let other = fifo.next(0, now).unwrap();
    assert_eq!((job.channel, other.channel), (one, two), "the PBDMA is free");
    assert!(fifo.take_engine(Engine::COPY0, two), "and so is an engine that does not work");
    assert!(!fifo.take_engine(Engine::Graphics, two) && fifo.is_busy(one));
    fifo.leave(&other, Departure::NoEngine(Engine::Graphics), now);
    assert!(fifo.engine_wanted(Engine::Graphics) && !fifo.engine_wanted(Engine::COPY0));
    let third = fifo.next(0, now).unwrap();
    assert_eq!((third.channel, fifo.next(0, now)), (HostChannel(3), None), "both others wait for the engine");
    assert_eq!(fifo.to_leave().count(), 0);
    fifo.set_runlist([2, 3].map(HostChannel));
    assert_eq!(fifo.to_leave().collect::<Vec<_>>(), [Worker::Engine(Engine::Graphics)]);
    fifo.set_runlist([1, 2, 3].map(HostChannel));

    fifo.leave(&job, Departure::Done(later), now);

    // Its time is not up: it goes on first, with its engine, where the third one had the PBDMA on loan.
    assert!(fifo.is_any_back(now) && fifo.holder(Engine::Graphics) == Some(one));
    assert_eq!(fifo.lender(one), Some(0));
    fifo.leave(&third, Departure::Yielded, now);
    let again = fifo.next(0, now).unwrap();
    assert_eq!((again.channel, again.slice_end), (one, Some(later)));
    fifo.leave(&again, Departure::Idle, now);
    assert_eq!(fifo.next(0, now).unwrap().channel, two, "who has waited longest for the engine that is free");
}

#[test]
fn engine_is_free_when_its_channel_is_back_and_may_not_go_on() {
    let (mut fifo, now) = (fifo(), Instant::now());
    let later = now + Duration::from_millis(1);
    fifo.set_runlist([1, 2].map(HostChannel));
    let [one, two] = [0, 1].map(|pbdma| fifo.next(pbdma, now).unwrap());
    assert!(fifo.take_engine(Engine::Graphics, one.channel));
    fifo.leave(&one, Departure::Working(Engine::Graphics), now);
    fifo.leave(&two, Departure::NoEngine(Engine::Graphics), now);
    fifo.leave(&one, Departure::Done(later), now);
    assert_eq!(fifo.holder(Engine::Graphics), Some(one.channel));

    fifo.channel_mut(one.channel).unwrap().enabled = false;

    assert_eq!(fifo.holder(Engine::Graphics), None);
    assert_eq!(fifo.next(0, now).unwrap().channel, two.channel);
    assert!(fifo.take_engine(Engine::Graphics, two.channel));
    fifo.channel_mut(one.channel).unwrap().enabled = true;
    assert!(!fifo.take_engine(Engine::Graphics, one.channel));
}

#[test]
fn channel_whose_time_is_up_goes_to_the_end_and_waits_for_its_engine() {
    let (mut fifo, now) = (fifo(), Instant::now());
    fifo.set_runlist([1, 2].map(HostChannel));
    let [one, two] = [0, 1].map(|pbdma| fifo.next(pbdma, now).unwrap());
    assert!(fifo.take_engine(Engine::Graphics, one.channel));
    fifo.leave(&one, Departure::Working(Engine::Graphics), now);
    fifo.leave(&two, Departure::NoEngine(Engine::Graphics), now);

    fifo.leave(&one, Departure::Outlasted(Engine::Graphics), now);

    let next = fifo.next(0, now).unwrap();
    assert_eq!(next.channel, two.channel);
    assert!(fifo.take_engine(Engine::Graphics, two.channel));
    assert_eq!(fifo.next(1, now), None);
    // Done when its time was up is no reason to go first.
    fifo.leave(&next, Departure::Working(Engine::Graphics), now);
    fifo.leave(&next, Departure::Done(now), now);
    assert!(!fifo.is_any_back(now) && fifo.lender(two.channel).is_none());
    assert_eq!(fifo.next(0, now).unwrap().channel, one.channel);
}

#[test]
fn whoever_leaves_takes_the_next_channel_itself() {
    let (mut fifo, now) = (fifo(), Instant::now());
    fifo.set_runlist([1].map(HostChannel));
    fifo.get_up(0);
    let job = fifo.next(0, now).unwrap();
    fifo.set_runlist([1, 2, 3].map(HostChannel));

    fifo.leave(&job, Departure::Idle, now);

    assert_eq!(fifo.call(now, 1).count_ones(), 1, "two are ready, one is taken by whoever left");
    assert_eq!(fifo.call(now, 0).count_ones(), 1, "unless that one has something else to do");
}

#[test]
fn earliest_semaphore_is_watched_and_a_new_watch_is_found_when_the_old_one_works() {
    let (mut fifo, now) = (fifo(), Instant::now());
    fifo.set_runlist([1, 2].map(HostChannel));
    fifo.get_up(0);
    let [first, second] = [0, 0].map(|pbdma| fifo.next(pbdma, now).unwrap());
    fifo.leave(&first, Departure::Blocked, now + Duration::from_millis(1));
    let late = fifo.lie_down(0).expect("one watches");
    fifo.get_up(1);
    fifo.leave(&second, Departure::Blocked, now);

    let early = fifo.lie_down(1).expect("its own semaphore is due earlier");

    assert!(early < late);
    assert_eq!(fifo.lie_down(2), None, "one is enough");
    assert_eq!(fifo.call_timekeeper(), 0);
    fifo.get_up(1);
    assert!(fifo.next(1, early).is_some());
    assert_eq!(fifo.call_timekeeper().count_ones(), 1);
}

#[test]
fn channel_that_waits_for_an_engine_is_ready_when_the_engine_is_free() {
    let (mut fifo, now) = (fifo(), Instant::now());
    fifo.set_runlist([1, 2].map(HostChannel));
    (0..2).for_each(|pbdma| fifo.get_up(pbdma));
    let [holder, waits] = [0, 1].map(|pbdma| fifo.next(pbdma, now).unwrap());
    assert!(fifo.take_engine(Engine::Graphics, holder.channel));
    fifo.leave(&waits, Departure::NoEngine(Engine::Graphics), now);
    fifo.lie_down(1);
    assert_eq!(fifo.call(now, 0), 0);

    fifo.leave(&holder, Departure::Stopped, now);

    assert_eq!(fifo.call(now, 0).count_ones(), 1);
}

#[test]
fn engine_that_is_free_again_calls_one_of_those_that_waited_for_it() {
    let (mut fifo, now) = (fifo(), Instant::now());
    fifo.set_runlist([1, 2, 3, 4].map(HostChannel));
    fifo.get_up(0);
    let holder = fifo.next(0, now).unwrap();
    assert!(fifo.take_engine(Engine::COPY0, holder.channel));
    fifo.get_up(1);
    for _ in 0..3 {
        let waits = fifo.next(1, now).unwrap();
        fifo.leave(&waits, Departure::NoEngine(Engine::COPY0), now);
    }
    fifo.lie_down(1);
    assert_eq!(fifo.call(now, 0), 0);

    fifo.leave(&holder, Departure::Idle, now);

    assert_eq!(fifo.call(now, 1), 0, "whoever left takes it");
    assert_eq!(fifo.call(now, 0).count_ones(), 1, "unless that one has something else to do");
    let next = fifo.next(0, now).unwrap();
    assert!(fifo.take_engine(Engine::COPY0, next.channel));
    fifo.leave(&next, Departure::Idle, now);
    assert_eq!(fifo.call(now, 1), 0, "and the next after that");
}
