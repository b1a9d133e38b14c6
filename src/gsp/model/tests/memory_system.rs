//! Controls that nouveau of Linux 7.3 sends: at its start, and before suspensions.

use super::config;
use super::driver::{Driver, words};

const INTERNAL: u32 = 0xc1e0_0004;
const INTERNAL_DEVICE: u32 = 0xabcd_0080;
const INTERNAL_SUBDEVICE: u32 = 0xabcd_2080;

#[test]
fn memory_system_compresses_nothing() {
    let mut driver = Driver::booted(config());

    let (status, config) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a1c, &[0xee; 0x28]);

    assert_eq!(status, 0);
    assert_eq!(config.body[..8], [0, 0, 0, 1, 1, 0, 0, 0]);
    assert_eq!(config.body[8..], [0; 0x20]);
    assert_eq!(driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a1c, &[0; 0x20]).0, 0x3a);
}

#[test]
fn store_of_compression_bits_has_no_bytes() {
    let mut driver = Driver::booted(config());

    let (status, store) = driver.control(INTERNAL, INTERNAL_DEVICE, 0x0080_1306, &[0xee; 0x50]);

    assert_eq!((status, store.body), (0, vec![0; 0x50]));
    assert_eq!(driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x0080_1306, &[0; 0x50]).0, 0x56);
}

#[test]
fn raw_compression_can_be_turned_off_and_not_on() {
    let mut driver = Driver::booted(config());
    let mut set = |mode| driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a6f, &[mode]).0;

    assert_eq!((set(0), set(1)), (0, 0x56));
}

#[test]
fn gpu_is_never_ready_to_lose_its_power_while_the_machine_runs() {
    let mut driver = Driver::booted(config());

    let (status, ready) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_a7d7, &words(&[!0])[..2]);

    assert_eq!((status, ready.body), (0, vec![0, 0]));
}
