//! A chip whose display cannot be fused off: what nouveau asks when it makes the display engine, in its
//! order, and what it must not find.

use super::config;
use super::driver::{Driver, R535, R570, SPEAKS, words};
use super::probe::{DEVICE, SUBDEVICE, client};
use crate::hal::{AD104, GB203};
use crate::model::GspConfig;

const CLIENT: u32 = 0xc1d0_0002;
const COMMON: u32 = 0x0073_0000;
const ROOT: u32 = 0xca70_0000;
const INTERNAL: u32 = 0xc1e0_0004;
const INTERNAL_SUBDEVICE: u32 = 0xabcd_2080;
const NOT_SUPPORTED: u32 = 0x56;
const INVALID_CLASS: u32 = 0x22;

fn blackwell() -> GspConfig {
    GspConfig { hal: &GB203, ..config() }
}

/// Status and answer of a control whose parameters were full of ones.
fn ask(driver: &mut Driver, client: u32, object: u32, number: u32, size: usize) -> (u32, Vec<u8>) {
    let (status, answer) = driver.control(client, object, number, &vec![0xff; size]);
    (status, answer.body)
}

fn has_no_heads(static_info: usize, supported: u32) {
    let mut driver = Driver::booted(blackwell());
    let nothing = |size: usize| (0, vec![0; size]);

    assert_eq!(ask(&mut driver, INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a49, 0x18), nothing(0x18));
    client(&mut driver, CLIENT, true);
    assert_eq!(driver.alloc(CLIENT, DEVICE, COMMON, 0x0073, &[]), 0);
    assert_eq!(
        ask(&mut driver, INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a01, static_info),
        nothing(static_info)
    );
    assert_eq!(ask(&mut driver, INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0ac6, 0x1008), nothing(0x1008));
    for (number, size) in [(0x0073_1365, 4), (0x0073_0102, 0xc), (0x0073_0287, 8), (supported, 0xc)] {
        assert_eq!(ask(&mut driver, CLIENT, COMMON, number, size), nothing(size), "{number:#x}");
    }
    for (event, index) in [(0x007e_0000, 1), (0x007e_0001, 7)] {
        let mut parameters = words(&[CLIENT, 0, 0x7e, index]);
        parameters.extend([0; 8]);
        assert_eq!(driver.alloc(CLIENT, SUBDEVICE, event, 0x7e, &parameters), 0);
        assert_eq!(driver.control(CLIENT, SUBDEVICE, 0x2080_0301, &words(&[index, 2, 0, 0, 0])).0, 0);
    }
    assert_eq!(driver.alloc(CLIENT, DEVICE, ROOT, 0xca70, &[]), 0);
    assert_eq!(driver.free(CLIENT, ROOT), 0);
    assert_eq!(driver.free(CLIENT, CLIENT), 0);
    assert_eq!((driver.gsp.objects(), driver.gsp.counters().refused), (3, 0));
}

/// Sources of interrupts, with their stall vectors.
fn stalls(driver: &mut Driver) -> Vec<(u32, u32)> {
    let (status, table) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a5c, &[0; 0x814]);
    assert_eq!(status, 0);
    (0..table.word(0) as usize)
        .map(|index| (table.word(4 + 16 * index) & 0xffff, table.word(4 + 16 * index + 8)))
        .filter(|(_, stall)| *stall != !0)
        .collect()
}

#[test]
fn display_engine_without_heads_answers_all_that_makes_it() {
    SPEAKS.set(&R570);
    has_no_heads(0x24, 0x0073_0107);
    let mut driver = Driver::booted(blackwell());
    assert_eq!(stalls(&mut driver), [(50, 0x60), (2, 0x61), (176, 0x62)]);
}

#[test]
fn display_engine_without_heads_answers_drivers_of_the_other_version() {
    SPEAKS.set(&R535);
    has_no_heads(0x1c, 0x0073_0120);
    let mut driver = Driver::booted(blackwell());
    assert_eq!(stalls(&mut driver), [(49, 0x60), (2, 0x61)], "it has no interrupt for what can wait");
}

#[test]
fn chips_whose_display_is_fused_off_know_nothing_of_it() {
    for hal in [config().hal, &AD104] {
        let mut driver = Driver::booted(GspConfig { hal, ..config() });
        client(&mut driver, CLIENT, true);

        assert_eq!(driver.alloc(CLIENT, DEVICE, COMMON, 0x0073, &[]), INVALID_CLASS);
        assert_eq!(driver.alloc(CLIENT, DEVICE, ROOT, 0xca70, &[]), INVALID_CLASS);
        let (status, _) = ask(&mut driver, INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a49, 0x18);
        assert_eq!(status, NOT_SUPPORTED);
        assert_eq!(stalls(&mut driver), [(50, 0x60)]);
    }
}

#[test]
fn display_objects_are_in_a_state_that_only_such_a_chip_takes() {
    let mut driver = Driver::booted(blackwell());
    client(&mut driver, CLIENT, true);
    assert_eq!(driver.alloc(CLIENT, DEVICE, COMMON, 0x0073, &[]), 0);
    assert_eq!(driver.alloc(CLIENT, DEVICE, ROOT, 0xca70, &[]), 0);

    driver.restore();

    assert_eq!(ask(&mut driver, CLIENT, COMMON, 0x0073_0102, 0xc).0, 0);
    let error = crate::model::Gsp::from_state(&driver.gsp.state(), config()).unwrap_err().to_string();
    assert!(error.contains("of class 0x0073 cannot be where it is"), "{error}");
}
