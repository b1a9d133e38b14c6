//! Wrap, continuation, checksums, sequence numbers, full queues.

use super::config;
use super::driver::{
    ALLOC_MEMORY, CONTINUATION, CONTROL, Driver, PAGE, RECORD, STATIC_INFO, poke, seal, static_info, words,
};
use super::probe::{DEVICE, client};
use crate::model::{Note, Refused};

const CLIENT: u32 = 0xc1d0_0000;

/// An ALLOC_MEMORY body with a list of `pages` pages.
fn list(handle: u32, pages: u32) -> Vec<u8> {
    let mut body = words(&[CLIENT, DEVICE, handle, 0x81, 0, 0, 0, 0, 0, 0]);
    body.extend(words(&[pages, 0, pages << 16, 0]));
    body.extend((0..u64::from(pages)).flat_map(|page| (page * 0x0101_0101_0101).to_le_bytes()));
    body
}

#[test]
pub fn calls_of_every_size_wrap_around_the_queue_many_times() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);

    for round in 0..200u32 {
        let body = list(0x1000, 1 + round * 37 % 8000);
        let reply = driver.call(ALLOC_MEMORY, &body);
        assert_eq!((reply.result, &reply.body), (0, &body), "round {round}");
        assert_eq!(driver.free(CLIENT, 0x1000), 0);
    }

    assert_eq!(driver.gsp.counters().sequence_gaps, 0);
    assert_eq!(driver.gsp.counters().records_refused, 0);
}

#[test]
pub fn large_rpc_arrives_in_pieces_and_is_answered_in_pieces() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    let body = list(0x1000, 20_000);
    assert!(body.len() > 2 * RECORD);

    let reply = driver.call(ALLOC_MEMORY, &body);

    assert_eq!((reply.result, reply.body), (0, body));
    assert_eq!(driver.gsp.counters().rpcs, 2 + 4 + 1);
}

#[test]
pub fn rpc_that_fills_one_record_exactly_is_not_waited_for() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    let mut body = list(0x1000, 100);
    body.resize(RECORD, 0);

    let reply = driver.call(ALLOC_MEMORY, &body);

    assert_eq!((reply.result, reply.body), (0, body));
}

#[test]
pub fn continuation_of_nothing_is_counted_and_not_answered() {
    let mut driver = Driver::booted(config());

    driver.send(CONTINUATION, &[0; 64], 1);
    driver.ring();

    assert_eq!(driver.poll(), []);
    assert_eq!(driver.gsp.counters().continuations_refused, 1);
}

#[test]
pub fn rpc_whose_continuation_does_not_come_is_given_up_for_the_next() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    let body = list(0x1000, 20_000);
    let raw = driver.encode(ALLOC_MEMORY, &body[..RECORD], 1);
    driver.push(&raw);
    driver.ring();
    assert_eq!(driver.poll(), []);

    let info = driver.call(STATIC_INFO, &static_info());

    assert_eq!(info.result, 0);
    assert_eq!(driver.gsp.counters().continuations_refused, 1);
}

#[test]
pub fn rpc_larger_than_any_answer_can_be_is_refused_at_once() {
    let mut driver = Driver::booted(config());
    let mut body = words(&[CLIENT, 1, 0x1234, 0, 0x10_0000, 0]);
    body.resize(RECORD, 0);

    let reply = driver.call(CONTROL, &body);

    assert_eq!(reply.result, 0x1a);
}

#[test]
fn bad_checksum_is_answered_with_an_error_and_the_queue_goes_on() {
    let mut driver = Driver::booted(config());
    let mut raw = driver.encode(STATIC_INFO, &static_info(), 7);
    raw[0x100] ^= 1;
    driver.push(&raw);

    driver.ring();
    let replies = driver.poll();

    assert_eq!((replies.len(), replies[0].result, replies[0].sequence), (1, 0x25, 7));
    assert_eq!(driver.gsp.counters().records_refused, 1);
    assert!(matches!(driver.gsp.take_notes()[..], [Note::Record(Refused::Checksum { function: 65, .. })]));
    assert_eq!(driver.call(STATIC_INFO, &static_info()).result, 0);
}

#[test]
pub fn record_without_an_rpc_header_is_skipped() {
    for (at, value) in [(48, 0x0200_0000), (52, 0)] {
        let mut driver = Driver::booted(config());
        let mut raw = driver.encode(STATIC_INFO, &static_info(), 7);
        poke(&mut raw, at, &u32::to_le_bytes(value));
        seal(&mut raw);
        driver.push(&raw);
        driver.ring();

        assert_eq!(driver.poll(), []);
        assert_eq!(driver.gsp.counters().records_refused, 1);
        assert_eq!(driver.call(STATIC_INFO, &static_info()).result, 0);
    }
}

#[test]
pub fn sizes_that_contradict_each_other_are_refused() {
    // The length in the RPC header, and the elements in the element header.
    for (at, value) in [(56, 0), (56, 31), (56, 0x1_0000), (56, u32::MAX), (56, 0x2000), (40, 0), (40, 2)] {
        let mut driver = Driver::booted(config());
        let mut raw = driver.encode(STATIC_INFO, &static_info(), 7);
        poke(&mut raw, at, &u32::to_le_bytes(value));
        seal(&mut raw);
        driver.push(&raw);
        driver.ring();

        assert_eq!(driver.poll(), [], "{at} {value:#x}");
        assert_eq!(driver.gsp.counters().records_refused, 1);
        assert_eq!(driver.call(STATIC_INFO, &static_info()).result, 0);
    }
}

#[test]
pub fn element_numbers_that_jump_are_counted_once_and_taken() {
    let mut driver = Driver::booted(config());
    driver.encode(STATIC_INFO, &static_info(), 0);

    let first = driver.call(STATIC_INFO, &static_info()).result;
    let second = driver.call(STATIC_INFO, &static_info()).result;

    assert_eq!((first, second), (0, 0));
    assert_eq!(driver.gsp.counters().sequence_gaps, 1);
}

#[test]
pub fn write_pointer_outside_the_queue_is_refused() {
    let mut driver = Driver::booted(config());
    for pointer in [63, 64, u32::MAX] {
        driver.publish(pointer);
        driver.ring();
    }

    assert_eq!(driver.gsp.counters().records_refused, 3);
    assert_eq!(driver.commands_read(), 2);
}

#[test]
fn full_message_queue_drops_answers_and_recovers_when_it_is_read() {
    let mut driver = Driver::booted(config());
    for sequence in 0..100 {
        driver.send(STATIC_INFO, &static_info(), sequence);
        driver.ring();
    }

    let replies = driver.poll();

    assert_eq!(replies.len(), 62);
    assert_eq!(driver.gsp.counters().replies_dropped, 38);
    assert!(driver.gsp.take_notes().contains(&Note::QueueFull));
    assert_eq!(driver.call(STATIC_INFO, &static_info()).result, 0);
}

#[test]
pub fn read_pointer_outside_the_message_queue_counts_as_a_full_one() {
    let mut driver = Driver::booted(config());
    driver.publish_read(63);

    driver.send(STATIC_INFO, &static_info(), 0);
    driver.ring();

    assert_eq!(driver.gsp.counters().replies_dropped, 1);
}

#[test]
pub fn memory_that_goes_away_stops_the_queue_without_an_answer() {
    let mut driver = Driver::booted(config());
    driver.send(STATIC_INFO, &static_info(), 0);
    driver.back.unplug();

    driver.ring();

    assert_eq!(driver.gsp.counters().records_refused, 1);
}

#[test]
pub fn page_table_is_not_read_again_after_the_boot() {
    let mut driver = Driver::booted(config());
    driver.shared_put(0, &[0xff; PAGE]);

    assert_eq!(driver.call(STATIC_INFO, &static_info()).result, 0);
}
