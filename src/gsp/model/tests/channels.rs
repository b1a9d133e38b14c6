//! Channels: parameters, numbers, slots, objects, scheduling, and that each is given back exactly once.

use super::config;
use super::driver::{ALLOC, Driver, poke, words};
use super::probe::{DEVICE, SPACE, SUBDEVICE, channel, client, set_page_directory, start};
use crate::model::GspConfig;
use gpuvmk_backend::ChannelRefusal;
use gpuvmk_backend::testing::BackCall;
use gpuvmk_chip::Engine;
use gpuvmk_chip::addr::{Chid, GuestChannel};

const CLIENT: u32 = 0xc1d0_0000;
const CHANNEL: u32 = 0xf1f0_0001;

/// A driver with a client whose address space has a page directory.
fn driver() -> Driver {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    assert_eq!(set_page_directory(&mut driver, CLIENT, 0x10_0000), 0);
    driver
}

fn alloc(driver: &mut Driver, handle: u32, parameters: &[u8]) -> u32 {
    driver.alloc(CLIENT, DEVICE, handle, 0xc86f, parameters)
}

/// Parameters of a good channel with a change.
fn changed(at: usize, data: &[u8]) -> Vec<u8> {
    let mut raw = channel(1, 1, 0x1_0000, 0x2_0000);
    poke(&mut raw, at, data);
    raw
}

#[test]
pub fn parameters_that_no_channel_can_have_are_refused() {
    let mut driver = driver();
    let refused = [
        (changed(0x08, &4u64.to_le_bytes()), 0x1f, "ring that is not aligned"),
        (changed(0x08, &(1u64 << 40).to_le_bytes()), 0x2e, "ring above 40 bits"),
        (changed(0x08, &0u64.wrapping_sub(8).to_le_bytes()), 0x2e, "ring at the end of everything"),
        (changed(0x10, &words(&[0])), 0x1f, "ring without entries"),
        (changed(0x10, &words(&[1000])), 0x1f, "entries that are not a power of two"),
        (changed(0x10, &words(&[1 << 20])), 0x1f, "too many entries"),
        (changed(0x14, &words(&[1 << 21 | 256 << 12])), 0x1f, "channel 2048"),
        (changed(0x1c, &words(&[0])), 0x33, "no address space"),
        (changed(0x1c, &words(&[SUBDEVICE])), 0x33, "address space that is something else"),
        (changed(0x80, &words(&[0])), 0x1f, "no engine"),
        (changed(0x80, &words(&[13])), 0x1f, "engine that is not offered"),
        (changed(0xa8, &0x2_0100u64.to_le_bytes()), 0x1f, "USERD that is not aligned"),
        (changed(0xa8, &(256u64 << 20).to_le_bytes()), 0x1e, "USERD outside VRAM"),
        (changed(0xa8, &0u64.wrapping_sub(512).to_le_bytes()), 0x1e, "USERD at the end of everything"),
        (changed(0xb8, &words(&[1])), 0x1f, "USERD in system memory"),
    ];
    for (parameters, status, what) in refused {
        assert_eq!(alloc(&mut driver, CHANNEL, &parameters), status, "{what}");
    }

    assert_eq!(driver.back.calls(), []);
    assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1_0000, 0x2_0000)), 0);
}

#[test]
pub fn channel_without_a_page_directory_is_refused() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);

    assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1_0000, 0)), 0x40);
    assert_eq!(set_page_directory(&mut driver, CLIENT, 0x10_0000), 0);
    assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1_0000, 0)), 0);
}

#[test]
pub fn channel_numbers_are_unique_on_a_runlist_and_free_for_another() {
    let mut driver = driver();

    assert_eq!(alloc(&mut driver, 1, &channel(1, 300, 0x1000, 0)), 0);
    assert_eq!(alloc(&mut driver, 2, &channel(9, 300, 0x1000, 0)), 0x63);
    assert_eq!(alloc(&mut driver, 3, &channel(10, 300, 0x1000, 0)), 0);
    assert_eq!(driver.gsp.doorbell_target(0, Chid(300)).unwrap().channel, GuestChannel(0));
    assert_eq!(driver.gsp.doorbell_target(1, Chid(300)).unwrap().channel, GuestChannel(1));
    assert_eq!(driver.free(CLIENT, 1), 0);
    assert_eq!(alloc(&mut driver, 2, &channel(9, 300, 0x1000, 0)), 0);
}

#[test]
pub fn channel_without_a_fixed_number_gets_the_first_that_is_free() {
    let mut driver = driver();
    assert_eq!(alloc(&mut driver, 1, &channel(10, 0, 0x1000, 0)), 0);

    assert_eq!(
        alloc(&mut driver, 2, &{
            let mut raw = channel(10, 0, 0x1000, 0);
            poke(&mut raw, 0x14, &words(&[0]));
            raw
        }),
        0
    );

    let (status, token) = driver.control(CLIENT, 2, 0xc36f_0108, &[0; 4]);
    assert_eq!((status, token.word(0)), (0, 1 << 16 | 1));
}

#[test]
pub fn slots_run_out_and_come_back() {
    let mut driver = Driver::booted(GspConfig { channels: 2, ..config() });
    client(&mut driver, CLIENT, true);
    assert_eq!(set_page_directory(&mut driver, CLIENT, 0x10_0000), 0);
    assert_eq!(alloc(&mut driver, 1, &channel(1, 1, 0x1000, 0)), 0);
    assert_eq!(alloc(&mut driver, 2, &channel(1, 2, 0x1000, 0)), 0);

    assert_eq!(alloc(&mut driver, 3, &channel(1, 3, 0x1000, 0)), 0x4f);
    assert_eq!(driver.free(CLIENT, 1), 0);
    assert_eq!(alloc(&mut driver, 3, &channel(1, 3, 0x1000, 0)), 0);

    assert_eq!(driver.gsp.doorbell_target(0, Chid(3)).unwrap().channel, GuestChannel(0));
}

#[test]
pub fn refusals_of_the_back_reach_the_driver_and_leave_nothing() {
    for (refusal, channel_status, object_status) in [
        (ChannelRefusal::Exhausted, 0x1a, 0x1a),
        (ChannelRefusal::Invalid, 0x1f, 0x1f),
        (ChannelRefusal::Unsupported, 0x56, 0x22),
        (ChannelRefusal::Lost, 0x0f, 0x0f),
    ] {
        let mut driver = driver();
        driver.back.refuse(Some(refusal));
        let objects = driver.gsp.objects();

        assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1000, 0)), channel_status);
        assert_eq!(driver.gsp.objects(), objects);
        assert_eq!(driver.gsp.doorbell_target(0, Chid(1)), None);

        driver.back.refuse(None);
        assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1000, 0)), 0);
        driver.back.refuse(Some(refusal));
        assert_eq!(driver.alloc(CLIENT, CHANNEL, 7, 0xcbc0, &[]), object_status);
        assert_eq!(driver.control(CLIENT, CHANNEL, 0xa06f_0103, &[1, 0]).0, channel_status);
    }
}

#[test]
pub fn objects_of_a_graphics_channel_are_those_that_nvk_asks_for() {
    let mut driver = driver();
    assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1000, 0)), 0);
    driver.back.calls();

    assert_eq!(driver.alloc(CLIENT, CHANNEL, 1, 0xc8b5, &words(&[1, 9])), 0);
    for (handle, class) in [(2, 0x902d), (3, 0xcb97), (4, 0xa140), (5, 0xcbc0)] {
        assert_eq!(driver.alloc(CLIENT, CHANNEL, handle, class, &[]), 0);
    }

    let graphics = |class| BackCall::Object(0, class, Engine::Graphics);
    assert_eq!(
        driver.back.calls(),
        [
            BackCall::Object(0, 0xc8b5, Engine::COPY0),
            graphics(0x902d),
            graphics(0xcb97),
            graphics(0xa140),
            graphics(0xcbc0)
        ]
    );
}

#[test]
pub fn objects_without_a_name_are_given_one_each_and_go_with_their_channel() {
    let mut driver = driver();
    assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1000, 0)), 0);
    let mut body = words(&[CLIENT, CHANNEL, 0, 0xc8b5, 0, 8, 0, 0]);
    body.extend(words(&[1, 9]));

    let names: Vec<u32> = (0..2).map(|_| driver.call(ALLOC, &body).word(8)).collect();

    assert_eq!(names, [0xcaf0_0000, 0xcaf0_0001]);
    assert_eq!(driver.free(CLIENT, 0), 0, "nouveau frees by the name that it gave");
    assert_eq!(driver.free(CLIENT, names[0]), 0);
    assert_eq!(driver.free(CLIENT, CHANNEL), 0);
    assert_eq!(driver.free(CLIENT, names[1]), 0x57, "gone with the channel");
}

#[test]
pub fn objects_of_engines_that_the_channel_does_not_have_are_refused() {
    let mut driver = driver();
    assert_eq!(alloc(&mut driver, CHANNEL, &channel(10, 1, 0x1000, 0)), 0);

    assert_eq!(driver.alloc(CLIENT, CHANNEL, 1, 0xcbc0, &[]), 0x22);
    assert_eq!(driver.alloc(CLIENT, CHANNEL, 1, 0xc8b5, &words(&[1, 9])), 0x22);
    assert_eq!(driver.alloc(CLIENT, CHANNEL, 1, 0xc8b5, &words(&[1, 1])), 0x1f);
    assert_eq!(driver.alloc(CLIENT, CHANNEL, 1, 0xc8b5, &words(&[2, 10])), 0x1f);
    assert_eq!(driver.alloc(CLIENT, CHANNEL, 1, 0xc8b5, &words(&[0, 1])), 0);
}

#[test]
pub fn binding_takes_engines_of_the_channels_runlist_only() {
    let mut driver = driver();
    assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1000, 0)), 0);

    let status =
        |driver: &mut Driver, engine| driver.control(CLIENT, CHANNEL, 0xa06f_0104, &words(&[engine])).0;

    assert_eq!([1, 9, 10, 77].map(|engine| status(&mut driver, engine)), [0, 0, 0x1f, 0x1f]);
}

#[test]
pub fn scheduling_goes_to_the_back_both_ways() {
    let mut driver = driver();
    assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1000, 0)), 0);
    driver.back.calls();
    start(&mut driver, CLIENT, CHANNEL, 1);

    assert_eq!(driver.control(CLIENT, CHANNEL, 0xa06f_0103, &[0, 0]).0, 0);

    assert_eq!(driver.back.calls(), [BackCall::Schedule(0, true), BackCall::Schedule(0, false)]);
}

#[test]
pub fn holding_all_channels_back_spares_those_that_do_not_run() {
    let mut driver = driver();
    for (handle, chid) in [(1, 1), (2, 2)] {
        assert_eq!(alloc(&mut driver, handle, &channel(1, chid, 0x1000, 0)), 0);
    }
    start(&mut driver, CLIENT, 1, 1);
    driver.back.calls();
    let toggle = |driver: &mut Driver, disable| driver.control(CLIENT, SUBDEVICE, 0x2080_0ac3, &[disable]).0;

    assert_eq!(toggle(&mut driver, 1), 0);
    start(&mut driver, CLIENT, 2, 1);
    assert_eq!(driver.back.calls(), [BackCall::Schedule(0, false)]);
    assert_eq!(toggle(&mut driver, 0), 0);

    assert_eq!(driver.back.calls(), [BackCall::Schedule(0, true), BackCall::Schedule(1, true)]);
}

#[test]
pub fn every_way_to_free_takes_the_channel_from_the_back_once() {
    for object in [CHANNEL, SPACE, DEVICE, CLIENT] {
        let mut driver = driver();
        assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1000, 0)), 0);
        assert_eq!(driver.alloc(CLIENT, CHANNEL, 7, 0xcbc0, &[]), 0);
        driver.back.calls();

        assert_eq!(driver.free(CLIENT, object), 0);

        assert_eq!(driver.back.calls(), [BackCall::Destroy(0)], "{object:#x}");
        assert_ne!(driver.free(CLIENT, CHANNEL), 0);
        assert_eq!(driver.gsp.doorbell_target(0, Chid(1)), None);
    }
}

#[test]
pub fn page_directory_in_use_cannot_be_replaced() {
    let mut driver = driver();
    assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1000, 0)), 0);

    assert_eq!(set_page_directory(&mut driver, CLIENT, 0x20_0000), 0x63);
    assert_eq!(driver.control(CLIENT, DEVICE, 0x0080_1814, &words(&[SPACE, 0])).0, 0);
    assert_eq!(driver.free(CLIENT, CHANNEL), 0);
    assert_eq!(set_page_directory(&mut driver, CLIENT, 0x20_0000), 0);
}

#[test]
pub fn page_directories_must_lie_in_memory() {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    client(&mut driver, CLIENT + 1, false);

    assert_eq!(set_page_directory(&mut driver, CLIENT, 0x10_0800), 0x1e);
    assert_eq!(set_page_directory(&mut driver, CLIENT, 256 << 20), 0x1e);
    assert_eq!(set_page_directory(&mut driver, CLIENT, 0u64.wrapping_sub(0x1000)), 0x1e);
    assert_eq!(set_page_directory(&mut driver, CLIENT + 1, 0x10_0000), 0x1f);
    assert_eq!(driver.control(CLIENT, SPACE, 0x90f1_0106, &[0; 0xb8]).0, 0x1f);
}

#[test]
pub fn promoting_needs_a_channel_and_a_possible_number_of_buffers() {
    let mut driver = driver();
    assert_eq!(alloc(&mut driver, CHANNEL, &channel(1, 1, 0x1000, 0)), 0);
    let promote = |driver: &mut Driver, object: u32, count: u32| {
        let mut raw = vec![0; 0x230];
        poke(&mut raw, 0xc, &words(&[CLIENT, object]));
        poke(&mut raw, 0x28, &words(&[count]));
        driver.control(CLIENT, SUBDEVICE, 0x2080_012b, &raw).0
    };

    assert_eq!(promote(&mut driver, CHANNEL, 16), 0);
    assert_eq!(promote(&mut driver, CHANNEL, 17), 0x1f);
    assert_eq!(promote(&mut driver, 0x55, 1), 0x57);
    assert_eq!(promote(&mut driver, DEVICE, 1), 0x31);
}
