//! Drivers that speak 535.113.01: what is the same as in the usual version, and what is not. Offsets and
//! numbers are those of its headers.

use proptest::prelude::*;

use super::driver::{
    ALLOC_MEMORY, CONTROL, Driver, R535, R570, SPEAKS, STATIC_INFO, SYSTEM_INFO, UNLOADING, UPDATE_BAR_PDE,
    poke, static_info, words,
};
use super::probe::{DEVICE, SPACE, SUBDEVICE, channel, client, start};
use super::{config, state};
use crate::model::{Effect, Gsp, GspConfig, Note};
use gpuvmk_backend::GspChannel;
use gpuvmk_backend::testing::BackCall;
use gpuvmk_chip::addr::{GpuVa, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, FaultUnit, MmuFault};
use gpuvmk_chip::{AccessKind, Aperture, Engine, EngineSet, FaultReason, PhysicalAddress};

const CLIENT: u32 = 0xc1d0_0000;
const CHANNEL: u32 = 0xf1f0_0001;
const INTERNAL: u32 = 0xc1e0_0004;
const INTERNAL_DEVICE: u32 = 0xabcd_0080;
const INTERNAL_SUBDEVICE: u32 = 0xabcd_2080;

/// A driver that has booted GSP.
fn booted(config: GspConfig) -> Driver {
    SPEAKS.set(&R535);
    let driver = Driver::booted(config);
    assert_eq!(driver.gsp.state().firmware, R535.name);
    driver
}

fn internal(driver: &mut Driver, cmd: u32, parameters: &[u8]) -> u32 {
    driver.control(INTERNAL, INTERNAL_SUBDEVICE, cmd, parameters).0
}

#[test]
fn what_does_not_differ_is_so_for_drivers_of_each_version() {
    for version in [&R570, &R535] {
        SPEAKS.set(version);
        for test in state::SAME {
            test();
        }
    }
}

#[test]
fn static_info_has_the_graphics_units_and_the_page_tables_of_the_bars() {
    let mut driver = booted(config());

    let info = driver.call(STATIC_INFO, &static_info());

    assert_eq!((info.result, info.body.len()), (0, 0x878));
    assert_eq!(info.word(0x124), 0xff);
    let units: Vec<_> = (0..32).map(|gpc| (info.word(0x128 + 8 * gpc), info.word(0x12c + 8 * gpc))).collect();
    assert_eq!(units[..8], (0..8).map(|gpc| (gpc, 0x1ff)).collect::<Vec<_>>());
    assert_eq!(units[8..], (8..32).map(|gpc| (gpc, 0)).collect::<Vec<_>>());
    assert_eq!(info.word(0x348), 2);
    assert_eq!((info.long(0x350), info.long(0x358)), (1 << 20, (252 << 20) - 1));
    assert_eq!(info.body[0x350 + 0x1c..0x350 + 0x1f], [1, 1, 0]);
    assert_eq!((info.long(0x380), info.long(0x388)), (256 << 20, (4 << 30) - 1));
    assert_eq!(info.long(0x6d8), 256 << 20);
    assert!(info.body[0x71c..].starts_with(b"Virtual GH100\0"));
    assert_eq!((info.long(0x828), info.long(0x830)), (driver.gsp.bar1_root(), driver.gsp.bar2_root()));
    assert_eq!(
        [info.word(0x868), info.word(0x86c), info.word(0x870)],
        [INTERNAL, INTERNAL_DEVICE, INTERNAL_SUBDEVICE]
    );
}

#[test]
fn engines_are_numbered_as_this_version_does() {
    let mut driver = booted(config());

    let (status, table) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a5c, &[0; 0x814]);
    assert_eq!((status, table.word(0)), (0, 5));
    let sources: Vec<_> = (0..5).map(|index| table.word(4 + 16 * index) & 0xffff).collect();
    assert_eq!(sources, [49, 82, 15, 16, 17]);

    let (status, devices) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_1112, &[0; 0xc8c]);
    assert_eq!((status, devices.word(4)), (0, 4));
    let types: Vec<_> = (0..4).map(|index| devices.word(12 + 0x64 * index + 8)).collect();
    assert_eq!(types, [1, 9, 10, 11]);
}

#[test]
fn copy_engines_that_this_version_has_no_numbers_for_are_in_no_table() {
    let copies = (0..12).map(|n| EngineSet::from(Engine::Copy(n.try_into().unwrap())));
    let engines = copies.fold(EngineSet::GRAPHICS, |all, one| all | one);
    let mut driver = booted(GspConfig { engines, ..config() });

    let (_, table) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a5c, &[0; 0x814]);
    let (_, devices) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_1112, &[0; 0xc8c]);

    assert_eq!((table.word(0), devices.word(4)), (1 + 1 + 10, 1 + 10));
}

#[test]
fn controls_have_this_versions_numbers_and_sizes() {
    let mut driver = booted(config());

    let (status, buffers) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a32, &[0; 0x640]);
    assert_eq!(status, 0);
    let sized: Vec<_> = (0..0x19 * 8).filter(|id| buffers.word(8 * id) == 0x1000).collect();
    assert_eq!(sized, [0x00, 0x0d, 0x10, 0x11, 0x13, 0x14, 0x17, 0x18]);
    assert_eq!(internal(&mut driver, 0x2080_0a32, &[0; 0x680]), 0x3a, "the other version's size");
    assert_eq!(internal(&mut driver, 0x2080_0a42, &[0; 0x504]), 0);
    assert_eq!(internal(&mut driver, 0x2080_01b0, &[0; 0x504]), 0x56, "the other version's number");
    assert_eq!(internal(&mut driver, 0x2080_0ac3, &[1]), 0x3a, "here it is about memory");
    assert_eq!(internal(&mut driver, 0x2080_0a1c, &[0; 0x28]), 0x56);
}

#[test]
fn logs_name_a_control_as_the_driver_means_it() {
    let names = |driver: &mut Driver| {
        internal(driver, 0x2080_0ac3, &[0; 3]);
        let notes = driver.gsp.take_notes();
        let name = notes.into_iter().find_map(|note| match note {
            Note::Refused { name, .. } => name,
            _ => None,
        });
        name.unwrap()
    };
    let mut driver = booted(config());
    assert_eq!(names(&mut driver), "NV2080_CTRL_CMD_INTERNAL_FBSR_SEND_REGION_INFO");

    SPEAKS.set(&R570);
    let mut driver = Driver::booted(config());
    assert_eq!(names(&mut driver), "NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING");
}

/// A driver of Linux 6.12, with a channel that works. It tells of page tables by the control for the range
/// that firmware keeps.
fn working() -> Driver {
    let mut driver = booted(config());
    client(&mut driver, CLIENT, false);
    let mut pdes = vec![0; 0xb8];
    poke(&mut pdes, 8, &(512u64 << 20).to_le_bytes());
    poke(&mut pdes, 0x20, &words(&[2]));
    for (level, (size, shift)) in [(0x20u64, 0x2f), (0x1000, 0x26)].into_iter().enumerate() {
        let at = 0x28 + 24 * level;
        poke(&mut pdes, at, &(0x10_0000 + 0x1000 * level as u64).to_le_bytes());
        poke(&mut pdes, at + 8, &size.to_le_bytes());
        poke(&mut pdes, at + 16, &words(&[1, shift]));
    }
    assert_eq!(driver.control(CLIENT, SPACE, 0x90f1_0106, &pdes).0, 0);
    assert_eq!(driver.alloc(CLIENT, DEVICE, CHANNEL, 0xc86f, &channel(10, 3, 0x1_1000, 0x90_0000)), 0);
    start(&mut driver, CLIENT, CHANNEL, 10);
    driver
}

#[test]
fn channels_run_over_page_tables_that_only_the_reserved_range_tells_of() {
    let driver = working();

    let expected = GspChannel {
        context_of: None,
        page_directory: PhysicalAddress { aperture: Aperture::Vram, address: 0x10_0000 },
        gpfifo: GpuVa(0x1_1000),
        gpfifo_entries_log2: 10,
        userd: 0x90_0000,
        engines: EngineSet::COPY1,
    };
    assert_eq!(driver.back.calls(), [BackCall::Create(0, expected), BackCall::Schedule(0, true)]);
}

#[test]
fn stopped_channel_is_told_without_an_address() {
    let mut driver = working();
    driver.events.clear();
    let fault = MmuFault {
        unit: FaultUnit::Engine(Engine::COPY1),
        address: GpuVa(0x12_3456_7000),
        access: AccessKind::Read,
        reason: FaultReason::PageNotPresent,
    };

    driver.gsp.stopped(&driver.back, ChannelStop::new(GuestChannel(0), fault));
    driver.poll();

    let event = &driver.events[0];
    assert_eq!((event.function, event.body.clone()), (0x1004, words(&[10, 3, 31, 0, 0])));
}

#[test]
fn bar2_is_an_entry_that_the_driver_makes_itself() {
    let mut driver = booted(GspConfig { hal: &super::other_chip::CHIP, ..config() });
    driver.effects.clear();
    let directory = 0x123_4000u64;
    let body = [1u64.to_le_bytes(), (directory >> 4 | 2).to_le_bytes(), 47u64.to_le_bytes()].concat();

    assert_eq!(driver.call(UPDATE_BAR_PDE, &body).result, 0);
    assert_eq!(driver.effects, [Effect::Bar2Root(0x12_3402)]);
}

/// A list of pages: the status.
fn list(driver: &mut Driver, handle: u32, class: u32, pages: &[u64]) -> u32 {
    let count = pages.len() as u32;
    let mut list = words(&[CLIENT, DEVICE, handle, class, 0, 0, 0, 0]);
    list.extend((u64::from(count) * 0x1000).to_le_bytes());
    list.extend(words(&[count, 0, count << 16, 0]));
    list.extend(pages.iter().flat_map(|page| (page >> 12).to_le_bytes()));
    driver.call(ALLOC_MEMORY, &list).result
}

/// FBSR_INIT: the status.
fn init(driver: &mut Driver, handle: u32, regions: u32) -> u32 {
    let mut parameters = words(&[4, regions, CLIENT, handle]);
    parameters.extend(0x2000u64.to_le_bytes());
    parameters.extend([0; 8]);
    internal(driver, 0x2080_0ac2, &parameters)
}

/// FBSR_SEND_REGION_INFO: the status.
fn region(driver: &mut Driver, handle: u32, [from, to, size]: [u64; 3]) -> u32 {
    let mut parameters = words(&[4, CLIENT, handle, 0]);
    parameters.extend([from, to, size].map(u64::to_le_bytes).concat());
    internal(driver, 0x2080_0ac3, &parameters)
}

#[test]
fn resume_lets_channels_run_without_being_asked() {
    let mut driver = working();
    driver.back.calls();
    assert_eq!(list(&mut driver, 0xcaf0_0003, 0x81, &[0x20_0000, 0x20_1000]), 0);
    assert_eq!(init(&mut driver, 0xcaf0_0003, 1), 0);
    assert_eq!(list(&mut driver, 0xcaf0_0004, 0x82, &[0x40_0000, 0x40_1000]), 0);
    assert_eq!(region(&mut driver, 0xcaf0_0004, [0, 0, 0x2000]), 0);
    assert_eq!(driver.call(UNLOADING, &words(&[1, 3])).result, 0);
    assert_eq!(driver.back.calls(), [BackCall::Schedule(0, false)]);
    driver.effects.clear();
    driver.events.clear();

    driver.boot(0).unwrap();
    driver.poll();

    assert_eq!(driver.back.calls(), [BackCall::Schedule(0, true)]);
    assert_eq!(driver.effects, [Effect::Running]);
    assert_eq!(driver.events[0].function, 0x1001);
}

#[test]
fn regions_outside_their_list_and_lists_that_are_none_are_refused() {
    let mut driver = working();
    assert_eq!(list(&mut driver, 1, 0x82, &[0x40_0000, 0x40_1000]), 0);

    assert_eq!(region(&mut driver, 1, [0, 0, 0x2001]), 0x2e);
    assert_eq!(region(&mut driver, 1, [u64::MAX, 0, 2]), 0x2e);
    assert_eq!(region(&mut driver, CHANNEL, [0, 0, 0x1000]), 0x31);
    assert_eq!(region(&mut driver, 99, [0, 0, 0x1000]), 0x57);
    assert_eq!(init(&mut driver, SUBDEVICE, 1), 0x31);
}

#[test]
fn version_follows_the_length_and_never_under_objects() {
    let says = |driver: &mut Driver, length: usize| {
        let refused = driver.gsp.counters().refused;
        driver.send(SYSTEM_INFO, &vec![0; length], 0);
        driver.ring();
        (driver.gsp.state().firmware, driver.gsp.counters().refused - refused)
    };
    let mut driver = booted(config());

    for (length, version, refused) in [
        (0x3a0, "570.144", 0),
        (0x298, "535.113.01", 0),
        (0x299, "535.113.01", 1),
        (0x370, "550.163.01", 0),
        (0x36f, "550.163.01", 1),
        (0x2a0, "535.261.03", 0),
        (0x29f, "535.261.03", 1),
        (0, "535.261.03", 1),
        (0x1000, "570.144", 0),
        (0x297, "570.144", 1),
    ] {
        assert_eq!(says(&mut driver, length), (version.to_owned(), refused), "{length:#x}");
    }
    assert_eq!(says(&mut driver, 0x298).0, "535.113.01");
    client(&mut driver, CLIENT, true);
    for length in [0x370, 0x3a0, 0x2a0, 0x1000] {
        assert_eq!(says(&mut driver, length), ("535.113.01".to_owned(), 1), "{length:#x}");
    }
    assert_eq!(says(&mut driver, 0x298), ("535.113.01".to_owned(), 0));
    assert_eq!(driver.free(CLIENT, CLIENT), 0);
    assert_eq!(says(&mut driver, 0x3a0), ("570.144".to_owned(), 0));
}

#[test]
fn next_driver_may_speak_another_version() {
    let mut driver = working();
    SPEAKS.set(&R570);
    driver.restart();
    driver.send(SYSTEM_INFO, &vec![0; R570.system_info], 0);

    driver.boot(super::driver::LIBOS).unwrap();

    assert_eq!(driver.gsp.state().firmware, "570.144");
    assert!(driver.back.live().is_empty());
}

#[test]
fn state_of_a_gsp_has_its_version() {
    let mut driver = working();

    driver.restore();

    assert_eq!(driver.gsp.state().firmware, R535.name);
    assert_eq!(driver.call(STATIC_INFO, &static_info()).result, 0);
    let mut other = driver.gsp.state();
    other.firmware = "535.113".to_owned();
    assert!(Gsp::from_state(&other, config()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Versions change in between, with and without objects: nothing panics, and channels are given back.
    #[test]
    fn drivers_that_lie_about_their_version_harm_themselves_only(
        steps in prop::collection::vec((prop::sample::select(vec![0x298usize, 0x3a0, 0x370, 0x2a0, 0x1000, 3]),
            prop::sample::select(vec![0x2080_0ac3u32, 0x2080_0ac2, 0x2080_0a32, 0x2080_0a42, 0x2080_01b0, 0x90f1_0106]),
            prop::sample::select(vec![0usize, 1, 0x18, 0x20, 0x28, 0xb8, 0x504, 0x640, 0x680]), any::<u8>(), any::<bool>()), 1..40),
    ) {
        let mut driver = booted(config());
        for (length, control, size, fill, objects) in steps {
            driver.send(SYSTEM_INFO, &vec![fill; length], 0);
            let mut body = words(&[INTERNAL, INTERNAL_SUBDEVICE, control, 0, size as u32, 0]);
            body.extend(vec![fill; size]);
            driver.send(CONTROL, &body, 0);
            driver.ring();
            if objects {
                let root = words(&[CLIENT, CLIENT, CLIENT, 0, 0, 0, 0, 0]);
                driver.send(super::driver::ALLOC, &root, 0);
            } else {
                driver.send(super::driver::FREE, &words(&[CLIENT, 0, CLIENT, 0]), 0);
            }
            driver.ring();
            driver.restore();
            let written = driver.messages_written();
            driver.publish_read(written);
        }
        prop_assert!(driver.back.live().is_empty());
        prop_assert!(driver.gsp.objects() <= 4);
    }
}
