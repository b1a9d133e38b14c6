//! Channels that the back stops.

use super::config;
use super::driver::{Driver, STATIC_INFO, UNLOADING, static_info, words};
use super::probe::{DEVICE, channel, client, set_page_directory, start};
use crate::model::Effect;
use gpuvmk_backend::testing::BackCall;
use gpuvmk_chip::addr::{Chid, GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, MmuFault};
use gpuvmk_chip::{AccessKind, Engine, FaultReason};

const CLIENT: u32 = 0xc1d0_0000;

fn running() -> Driver {
    let mut driver = Driver::booted(config());
    client(&mut driver, CLIENT, true);
    assert_eq!(set_page_directory(&mut driver, CLIENT, 0x10_0000), 0);
    assert_eq!(driver.alloc(CLIENT, DEVICE, 1, 0xc86f, &channel(10, 3, 0x1000, 0)), 0);
    start(&mut driver, CLIENT, 1, 10);
    driver.back.calls();
    driver.effects.clear();
    driver.events.clear();
    driver
}

fn fault(channel: u16) -> ChannelStop<GuestChannel> {
    let fault = MmuFault {
        unit: FaultUnit::Engine(Engine::COPY1),
        address: GpuVa(0x12_3456_7000),
        access: AccessKind::Read,
        reason: FaultReason::PageNotPresent,
    };
    ChannelStop::new(GuestChannel(channel), fault)
}

#[test]
pub fn stopped_channel_is_told_by_number_engine_and_fault() {
    let mut driver = running();

    let effects = driver.gsp.stopped(&driver.back, fault(0));
    driver.poll();

    assert_eq!(effects, [Effect::Interrupt]);
    let event = &driver.events[0];
    assert_eq!((event.function, event.result, event.body.len()), (0x1004, 0, 0x30));
    assert_eq!([event.word(0), event.word(4), event.word(0x10)], [10, 3, 31]);
    assert_eq!([event.word(0x1c), event.word(0x20), event.word(0x24)], [0x3456_7000, 0x12, 2]);
}

#[test]
pub fn stopped_channel_has_no_doorbell_and_does_not_run_again() {
    let mut driver = running();
    driver.gsp.stopped(&driver.back, fault(0));

    assert_eq!(driver.gsp.doorbell_target(1, Chid(3)), None);
    assert_eq!(driver.gsp.stopped(&driver.back, fault(0)), []);
    driver.poll();
    assert_eq!(driver.control(CLIENT, 1, 0xa06f_0103, &[1, 0]).0, 0x40);
    assert_eq!(driver.control(CLIENT, 1, 0xa06f_0103, &[0, 0]).0, 0);
    assert_eq!(driver.free(CLIENT, 1), 0);
    assert_eq!(driver.back.calls(), [BackCall::Destroy(0)]);
}

#[test]
pub fn late_stop_of_a_freed_channel_does_not_reach_its_successor() {
    let mut driver = running();
    assert_eq!(driver.free(CLIENT, 1), 0);
    assert_eq!(driver.alloc(CLIENT, DEVICE, 1, 0xc86f, &channel(10, 3, 0x1000, 0)), 0);

    assert_eq!(driver.gsp.stopped(&driver.back, fault(0)), []);

    start(&mut driver, CLIENT, 1, 10);
    assert_eq!(driver.gsp.doorbell_target(1, Chid(3)).unwrap().channel, GuestChannel(1));
}

#[test]
pub fn slots_without_a_channel_say_nothing() {
    let mut driver = running();

    let effects = driver.gsp.stopped(&driver.back, fault(5));

    assert_eq!((effects.len(), driver.poll().len(), driver.events.len()), (0, 0, 0));
}

#[test]
pub fn event_that_does_not_fit_is_dropped_and_counted() {
    let mut driver = running();
    for sequence in 0..62 {
        driver.send(STATIC_INFO, &static_info(), sequence);
        driver.ring();
    }

    let effects = driver.gsp.stopped(&driver.back, fault(0));

    assert_eq!(effects, []);
    assert_eq!(driver.gsp.counters().events_dropped, 1);
    assert_eq!(driver.gsp.doorbell_target(1, Chid(3)), None);
}

#[test]
pub fn nothing_is_told_to_a_driver_that_sleeps() {
    let mut driver = running();
    driver.call(UNLOADING, &words(&[1, 3]));
    let written = driver.messages_written();

    let effects = driver.gsp.stopped(&driver.back, fault(0));

    assert_eq!((effects.len(), driver.messages_written()), (0, written));
}
