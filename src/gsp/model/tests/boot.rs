//! Boot arguments, good and bad, and what of a boot is visible.

use super::config;
use super::driver::{Driver, LIBOS, RMARGS, UNLOADING, words};
use crate::hal::{AD104, GA106, GB203, GH100, TU106};
use crate::model::{BootError, Effect, GspConfig};

#[test]
pub fn boot_drains_the_queue_and_tells_that_it_is_done() {
    let mut driver = Driver::new(config());

    driver.boot(LIBOS).unwrap();
    let replies = driver.poll();

    assert_eq!(driver.effects, [Effect::Running], "the driver polls: no interrupt");
    assert_eq!(replies, []);
    assert_eq!(driver.commands_read(), 2);
    let event = &driver.events[0];
    assert_eq!((event.function, event.result, event.body.len()), (0x1001, 0, 0));
    assert_eq!((driver.gsp.counters().rpcs, driver.gsp.counters().refused), (2, 0));
}

#[test]
pub fn message_queue_gets_the_header_that_drivers_expect() {
    let driver = Driver::booted(config());

    let header = driver.shared_get(0x4_1000, 36);

    assert_eq!(header, words(&[0, 0x4_0000, 0x1000, 63, 1, 1, 32, 0x1000, 2]));
}

#[test]
pub fn arguments_outside_memory_are_told_with_their_address() {
    let mut driver = Driver::new(config());

    assert_eq!(driver.boot(1 << 40), Err(BootError::NoMemory(1 << 40)));
    driver.back.put_ram(RMARGS, &(1u64 << 41).to_le_bytes());
    assert_eq!(driver.boot(LIBOS), Err(BootError::NoMemory(1 << 41)));
}

#[test]
pub fn contradicting_arguments_are_refused_and_a_later_boot_works() {
    let mut driver = Driver::new(config());
    let bad = [
        (RMARGS + 8, words(&[0])),
        (RMARGS + 8, words(&[513])),
        (RMARGS + 8, words(&[2])),
        (RMARGS + 16, words(&[0x1800, 0])),
        (RMARGS + 16, words(&[0x4_1000, 0])),
        (RMARGS + 24, words(&[0xffff_f000, 0xffff_ffff])),
        (LIBOS + 3 * 32, words(&[0, 0])),
        (LIBOS + 3 * 32 + 24, words(&[2])),
        (LIBOS + 3 * 32 + 16, words(&[0x10, 0])),
    ];
    for (address, value) in bad {
        let before = driver.back.ram(address, value.len());
        driver.back.put_ram(address, &value);
        let refused = driver.boot(LIBOS);
        driver.back.put_ram(address, &before);
        assert!(
            matches!(refused, Err(BootError::Arguments(_) | BootError::NoMemory(_))),
            "{address:#x} {value:?} {refused:?}"
        );
    }

    assert_eq!(driver.boot(LIBOS), Ok(()));
}

#[test]
pub fn queue_headers_of_another_shape_are_refused() {
    for (at, value) in
        [(0, 1), (4, 0x1000), (8, 0x2000), (12, 1), (20, 0), (24, 0), (24, 0x1000), (28, 0x800)]
    {
        let mut driver = Driver::new(config());
        driver.shared_put(0x1000 + at, &u32::to_le_bytes(value));

        let refused = driver.boot(LIBOS);

        assert!(matches!(refused, Err(BootError::Arguments(_))), "{at} {value:#x}");
        assert!(driver.effects.is_empty());
    }
}

#[test]
pub fn resume_without_a_suspend_is_refused() {
    let mut driver = Driver::booted(config());
    assert!(matches!(driver.boot(0), Err(BootError::Arguments(_))));

    driver.call(UNLOADING, &words(&[0, 0]));

    assert!(matches!(driver.boot(0), Err(BootError::Arguments(_))));
}

#[test]
pub fn doorbells_before_the_boot_and_after_unloading_do_nothing() {
    let mut driver = Driver::new(config());
    driver.ring();
    assert_eq!((driver.effects.len(), driver.commands_read()), (0, 0));
    driver.boot(LIBOS).unwrap();
    driver.poll();
    driver.call(UNLOADING, &words(&[0, 0]));
    driver.effects.clear();
    let (read, written) = (driver.commands_read(), driver.messages_written());

    driver.send(super::driver::STATIC_INFO, &super::driver::static_info(), 9);
    driver.ring();

    assert_eq!((driver.commands_read(), driver.messages_written()), (read, written));
    assert!(driver.effects.is_empty());
}

#[test]
pub fn chips_that_falcons_boot_have_the_driver_run_a_sequence_before_they_are_ready() {
    for (hal, sequencer) in [(&TU106, true), (&GA106, true), (&AD104, true), (&GH100, false), (&GB203, false)]
    {
        let mut driver = Driver::new(GspConfig { hal, ..config() });

        driver.boot(LIBOS).unwrap();
        driver.poll();

        let told: Vec<_> = driver.events.iter().map(|event| (event.function, event.body.clone())).collect();
        let ready = (0x1001, Vec::new());
        // No command, and the room in which a driver would keep registers.
        let expected = if sequencer { vec![(0x1002, vec![0; 0x28]), ready] } else { vec![ready] };
        assert_eq!(told, expected, "{}", hal.name);
        assert_eq!(driver.effects, [Effect::Running], "the driver polls: no interrupt");
    }
}

#[test]
pub fn resumed_gsp_has_nothing_run() {
    let mut driver = Driver::booted(GspConfig { hal: &TU106, ..config() });
    assert_eq!(driver.call(UNLOADING, &words(&[1, 3])).result, 0);
    driver.events.clear();

    driver.boot(0).unwrap();
    driver.poll();

    assert_eq!(driver.events.iter().map(|event| event.function).collect::<Vec<_>>(), [0x1001]);
}
