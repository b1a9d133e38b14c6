//! Random drivers: nothing panics or grows, and every channel is given back exactly once (the back asserts
//! that).

use proptest::prelude::*;

use super::config;
use super::driver::{ALLOC, ALLOC_MEMORY, CONTROL, Driver, FREE, LIBOS, PAGE, UNLOADING, seal, words};
use super::probe::{DEVICE, SPACE, SUBDEVICE, channel, client, set_page_directory};
use crate::model::ObjectLimits;
use gpuvmk_chip::addr::{Chid, GuestChannel};
use gpuvmk_chip::channel_event::{ChannelStop, StopCause};

const CLIENT: u32 = 0xc1d0_0000;

/// Handles from a small set, so that they collide.
fn handle() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => 1u32..12,
        1 => Just(CLIENT),
        2 => Just(DEVICE),
        1 => Just(SUBDEVICE),
        1 => Just(SPACE),
        1 => Just(0xc1e0_0004),
        1 => Just(0xabcd_0080),
        1 => any::<u32>(),
    ]
}

fn class() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => prop::sample::select(vec![
            0u32, 0x80, 0x2080, 0x90f1, 0xc86f, 0xc86f, 0xc86f, 0xc8b5, 0xcbc0, 0xcb97, 0x902d, 0xa140, 0x7e, 5,
        ]),
        1 => any::<u32>(),
    ]
}

/// What a driver may do.
#[derive(Clone, Debug)]
enum Step {
    Alloc { client: u32, parent: u32, object: u32, class: u32, engine: u32, chid: u32, ring: u64 },
    Channel { object: u32, engine: u32, chid: u32, runs: bool },
    Client,
    Free { client: u32, object: u32 },
    Control { client: u32, object: u32, cmd: u32, parameters: Vec<u8> },
    PageDirectory { client: u32, object: u32, space: u32, address: u64 },
    Stopped { slot: u16 },
    Unload { suspend: bool },
    Boot { resume: bool },
    Rpc { function: u32, body: Vec<u8> },
}

fn step() -> impl Strategy<Value = Step> {
    let client = || prop_oneof![6 => Just(CLIENT), 2 => 1u32..4, 1 => Just(0xc1e0_0004), 1 => any::<u32>()];
    let commands = prop::sample::select(vec![
        0x0080_1813u32,
        0x0080_1814,
        0x2080_012b,
        0x2080_0138,
        0x2080_0301,
        0x2080_0a32,
        0x2080_0a5c,
        0x2080_0ac2,
        0x2080_0ac3,
        0x2080_1112,
        0x90f1_0106,
        0xa06f_0103,
        0xa06f_0104,
        0xc36f_0108,
    ]);
    let sizes =
        prop::sample::select(vec![0usize, 1, 2, 4, 8, 0x14, 0x18, 0x20, 0xb8, 0x230, 0x680, 0x814, 0xc8c]);
    let parameters = sizes
        .prop_flat_map(|size| prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], size));
    prop_oneof![
        8 => (client(), handle(), handle(), class(), prop_oneof![Just(1u32), Just(9), Just(10), Just(11), any::<u32>()],
              0u32..6, prop_oneof![Just(0u64), Just(0x1000), any::<u64>()])
            .prop_map(|(client, parent, object, class, engine, chid, ring)|
                Step::Alloc { client, parent, object, class, engine, chid, ring }),
        8 => (1u32..12, prop::sample::select(vec![1u32, 9, 10, 11]), 0u32..6, prop::bool::weighted(0.8))
            .prop_map(|(object, engine, chid, runs)| Step::Channel { object, engine, chid, runs }),
        2 => Just(Step::Client),
        4 => (client(), handle()).prop_map(|(client, object)| Step::Free { client, object }),
        4 => (client(), handle(), prop_oneof![6 => commands, 1 => any::<u32>()], parameters)
            .prop_map(|(client, object, cmd, parameters)| Step::Control { client, object, cmd, parameters }),
        2 => (client(), handle(), handle(), prop_oneof![Just(0x1000u64), any::<u64>()])
            .prop_map(|(client, object, space, address)| Step::PageDirectory { client, object, space, address }),
        1 => (0u16..10).prop_map(|slot| Step::Stopped { slot }),
        1 => any::<bool>().prop_map(|suspend| Step::Unload { suspend }),
        1 => any::<bool>().prop_map(|resume| Step::Boot { resume }),
        2 => (prop_oneof![Just(ALLOC), Just(CONTROL), Just(ALLOC_MEMORY), Just(FREE), 0u32..240, any::<u32>()],
              prop::collection::vec(any::<u8>(), 0..200))
            .prop_map(|(function, body)| Step::Rpc { function, body }),
    ]
}

fn carry_out(driver: &mut Driver, step: Step) {
    match step {
        Step::Alloc { client, parent, object, class, engine, chid, ring } => {
            let parameters = match class {
                0xc86f => channel(engine, chid, ring, 0x1000),
                0xc8b5 => words(&[1, engine]),
                0x80 => vec![0; 0x38],
                0x90f1 => {
                    let mut raw = vec![0; 0x30];
                    raw[4] = 8;
                    raw
                }
                0x7e | 5 => vec![0; 0x18],
                _ => Vec::new(),
            };
            let mut body = words(&[client, parent, object, class, 0, parameters.len() as u32, 0, 0]);
            body.extend(parameters);
            driver.send(ALLOC, &body, 0);
        }
        Step::Channel { object, engine, chid, runs } => {
            let mut body = words(&[CLIENT, DEVICE, object, 0xc86f, 0, 0x170, 0, 0]);
            body.extend(channel(engine, chid, if runs { 0x1000 } else { 0 }, 0x1000));
            driver.send(ALLOC, &body, 0);
            driver.ring();
            driver.send(CONTROL, &words(&[CLIENT, object, 0xa06f_0103, 0, 2, 0, 1]), 0);
        }
        Step::Client => {
            driver.send(ALLOC, &words(&[CLIENT, CLIENT, CLIENT, 0, 0, 0, 0, 0]), 0);
            let mut device = words(&[CLIENT, CLIENT, DEVICE, 0x80, 0, 0x38, 0, 0]);
            device.extend([0; 0x38]);
            driver.send(ALLOC, &device, 0);
            let mut space = words(&[CLIENT, DEVICE, SPACE, 0x90f1, 0, 0x30, 0, 0, 0, 8]);
            space.extend([0; 0x28]);
            driver.send(ALLOC, &space, 0);
            let directory =
                words(&[CLIENT, DEVICE, 0x0080_1813, 0, 0x20, 0, 0x1000, 0, 2, 0, SPACE, 0, 0, 0]);
            driver.send(CONTROL, &directory, 0);
        }
        Step::Free { client, object } => driver.send(FREE, &words(&[client, 0, object, 0]), 0),
        Step::Control { client, object, cmd, parameters } => {
            let mut body = words(&[client, object, cmd, 0, parameters.len() as u32, 0]);
            body.extend(parameters);
            driver.send(CONTROL, &body, 0);
        }
        Step::PageDirectory { client, object, space, address } => {
            let mut body = words(&[client, object, 0x0080_1813, 0, 0x20, 0]);
            body.extend(address.to_le_bytes());
            body.extend(words(&[2, 0, space, 0, 0, 0]));
            driver.send(CONTROL, &body, 0);
        }
        Step::Stopped { slot } => {
            driver.gsp.stopped(&driver.back, ChannelStop::new(GuestChannel(slot), StopCause::Manager(31)));
        }
        Step::Unload { suspend } => driver.send(UNLOADING, &words(&[suspend.into(), 0]), 0),
        Step::Boot { resume } => {
            if !resume {
                driver.restart();
            }
            let _ = driver.boot(if resume { 0 } else { LIBOS });
        }
        Step::Rpc { function, body } => driver.send(function, &body, 0),
    }
    driver.ring();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_calls_keeps_channels_and_objects_consistent(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut driver = Driver::booted(config());
        client(&mut driver, CLIENT, true);
        prop_assert_eq!(set_page_directory(&mut driver, CLIENT, 0x1000), 0);
        for step in steps {
            carry_out(&mut driver, step);
            driver.restore();
            let written = driver.messages_written();
            driver.publish_read(written);
            prop_assert!(driver.gsp.objects() <= ObjectLimits::default().total as usize);
            prop_assert!(driver.back.live().len() <= 8);
            for (runlist, chid) in (0..3).flat_map(|runlist| (0..6).map(move |chid| (runlist, chid))) {
                if let Some(target) = driver.gsp.doorbell_target(runlist, Chid(chid)) {
                    prop_assert_eq!(driver.back.live().get(&target.channel).map(|live| live.userd), Some(target.userd));
                }
            }
        }

        driver.restart();
        prop_assert_eq!(driver.boot(LIBOS), Ok(()));

        prop_assert!(driver.back.live().is_empty());
        prop_assert_eq!(driver.gsp.objects(), 3);
    }

    #[test]
    fn random_bodies_of_known_functions_are_answered(
        function in prop::sample::select(vec![4u32, 10, 47, 65, 70, 72, 73, 76, 103]),
        body in prop::collection::vec(any::<u8>(), 0..6000),
    ) {
        let mut driver = Driver::booted(config());

        driver.send(function, &body, 5);
        driver.ring();

        let expected = usize::from(function != 72 && function != 73);
        prop_assert_eq!(driver.poll().len(), expected);
    }

    #[test]
    fn random_queue_contents_and_pointers_are_survived(
        pages in prop::collection::vec(prop::collection::vec(any::<u8>(), PAGE), 1..4),
        patches in prop::collection::vec((0usize..96, any::<u32>()), 0..8),
        sealed in any::<bool>(),
        pointers in prop::collection::vec(any::<u32>(), 4),
        at in 0u32..63,
    ) {
        let mut driver = Driver::booted(config());
        driver.publish(at);
        driver.ring();
        let mut raw = driver.encode(CONTROL, &pages.concat(), 1);
        for (place, value) in patches {
            raw[place..place + 4].copy_from_slice(&value.to_le_bytes());
        }
        if sealed {
            seal(&mut raw);
        }
        for _ in 0..30 {
            driver.push(&raw);
            driver.ring();
        }
        for pointer in pointers {
            driver.publish(pointer % 70);
            driver.publish_read(pointer >> 16 & 0x7f);
            driver.ring();
        }
        driver.restore();
        prop_assert_eq!(driver.gsp.objects(), 3);
    }

    #[test]
    fn random_boot_arguments_boot_or_are_refused(
        patches in prop::collection::vec((0u64..0x2000, any::<u32>()), 1..6),
        header in prop::collection::vec((0u64..32, any::<u16>()), 0..4),
    ) {
        let mut driver = Driver::new(config());
        for (at, value) in patches {
            driver.back.put_ram(LIBOS + at, &value.to_le_bytes());
        }
        for (at, value) in header {
            driver.shared_put(0x1000 + at, &value.to_le_bytes());
        }

        let booted = driver.boot(LIBOS).is_ok();

        prop_assert_eq!(driver.gsp.objects(), if booted { 3 } else { 0 });
        driver.restore();
        driver.ring();
    }
}
