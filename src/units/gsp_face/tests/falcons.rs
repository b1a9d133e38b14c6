//! The boot by falcons, as nouveau does it: registers in its order, for each way of loading.

mod driver;
mod hostile;

use super::driver::Driver;
use super::gsp_queues::LIBOS;
use super::*;
use crate::gsp_face::hal::{AD104, GA106, TU106};
use driver::{Falcons, Meta};
use gpuvmk_backend::testing::BackCall as Call;

/// A function, and the driver of its falcons.
fn gpu(hal: &'static Hal) -> Gpu {
    Gpu::of(hal, VRAM)
}

/// GSP's first messages after a boot: a sequence for the driver to run, then that it is ready.
fn is_up(driver: &mut Driver) {
    for function in [0x1002, 0x1001] {
        assert_eq!(driver.receive().map(|message| message.function), Some(function));
    }
}

/// Chips of both versions of the descriptor.
const CHIPS: [&Hal; 3] = [&TU106, &GA106, &AD104];

#[test]
fn driver_finds_firmware_of_the_card_ready_and_no_display() {
    let ada = gpu(&AD104);
    assert_eq!((ada.rd(0), ada.rd(0xa00), ada.rd(4)), (0x1940_00a1, 0x194a_1000, 0));
    assert_eq!((ada.rd(0x11_8128) & 1, ada.rd(0x11_8234) & 0xff, ada.rd(0x82_0c04) & 1), (1, 0xff, 1));
    assert_eq!(ada.rd(0x11_83a4), 64);
    let turing = gpu(&TU106);
    assert_eq!((turing.rd(0), turing.rd(0x2_1c04) & 1), (0x1660_00a1, 1));
    let (number, scale) = ((turing.rd(0x10_0ce0) >> 4) & 0x3f, turing.rd(0x10_0ce0) & 0xf);
    assert_eq!(u64::from(number) << (scale + 20), VRAM);
    for gpu in [ada, turing] {
        assert_eq!((gpu.rd(0x8_8050), gpu.rd(0x60_13d4)), (0, 0));
        gpu.wr(0x10_0c10, 0x1234);
        gpu.wr(0x8_8704, 0);
        assert_eq!(gpu.function.counters(), Default::default());
    }
}

#[test]
fn window_to_vram_is_moved_by_the_register_of_the_bus_unit() {
    let gpu = gpu(&AD104);
    gpu.wr(0x1700, 0x30);
    gpu.wr(0x70_0004, 0x1122_3344);
    assert_eq!(gpu.back.vram_word(0x30_0004), 0x1122_3344);
}

#[test]
fn gsp_boots_by_fwsec_and_booter() {
    for hal in CHIPS {
        let gpu = gpu(hal);
        let mut driver = Driver::prepared(&gpu);
        let falcons = Falcons::new(&gpu);
        assert_eq!(falcons.wpr2(), (0, 0), "{}", hal.name);
        assert_eq!(falcons.frts(), 0);
        assert_eq!(falcons.frts_error(), 0);
        assert_eq!(falcons.wpr2(), (falcons.frts_page() << 4, (falcons.frts_page() + 0x100) << 4));
        falcons.prepare_gsp(RAM + LIBOS);
        assert!(!falcons.core_is_active());
        assert_eq!(falcons.booter(Meta::ADDRESS), 0, "{}", hal.name);
        assert!(falcons.core_is_active());
        is_up(&mut driver);
        driver.open();
        assert_eq!(gpu.function.counters().boot_errors, 0);
        assert_eq!(gpu.function.counters().unlisted_reads, 0, "{}", hal.name);
        assert_eq!(gpu.function.counters().unlisted_writes, 0, "{}", hal.name);
    }
}

#[test]
fn booter_moves_the_region_so_that_a_suspension_takes_what_gsp_needs() {
    for hal in CHIPS {
        let gpu = gpu(hal);
        let _driver = Driver::prepared(&gpu);
        let falcons = Falcons::new(&gpu);
        let before = falcons.meta();
        falcons.boot();
        let after = falcons.meta();
        let room = after.wpr_end - after.wpr_start;
        assert_eq!(room, 0x10_1000, "drivers that compute it from the region's ends");
        let frts_end = after.frts_offset + after.frts_size;
        assert_eq!(frts_end - (after.heap + after.heap_size), room, "drivers that do from the heaps");
        assert_eq!(Meta { wpr_start: before.wpr_start, frts_offset: before.frts_offset, ..after }, before);
    }
}

#[test]
fn unloading_takes_the_region_away_and_another_driver_boots() {
    for hal in CHIPS {
        let gpu = gpu(hal);
        let mut driver = Driver::prepared(&gpu);
        let falcons = Falcons::new(&gpu);
        falcons.boot();
        is_up(&mut driver);
        driver.open();
        driver.channel(3, 0x10_0000);
        gpu.back.calls();
        driver.unload(false);
        assert_eq!(gpu.back.calls(), [Call::Destroy(0)]);
        assert_eq!(gpu.rd(0x11_0040), 0x8000_0000);
        assert!(!falcons.core_is_active());
        assert_eq!(falcons.sb(), 0);
        assert_eq!(falcons.sb_error(), 0);
        assert_ne!(falcons.wpr2().1, 0);
        assert_eq!(falcons.booter(0xff_0000_00ff), 0);
        assert_eq!(falcons.wpr2(), (0, 0), "{}", hal.name);

        let mut next = Driver::prepared(&gpu);
        falcons.boot();
        is_up(&mut next);
        assert_eq!(gpu.function.counters().boot_errors, 0);
    }
}

#[test]
fn suspended_gsp_goes_on_without_fwsec_also_after_a_loss_of_power() {
    for (hal, powered) in CHIPS.iter().flat_map(|hal| [(hal, true), (hal, false)]) {
        let gpu = gpu(hal);
        let mut driver = Driver::prepared(&gpu);
        let falcons = Falcons::new(&gpu);
        falcons.boot();
        is_up(&mut driver);
        driver.open();
        driver.unload(true);
        let region = falcons.wpr2();
        assert_eq!(falcons.sb(), 0);
        let suspended = falcons.suspend_memory();
        assert_eq!(falcons.booter(suspended), 0, "{}", hal.name);
        assert_eq!(falcons.wpr2(), (0, 0));
        if !powered {
            gpu.function.reset();
        }
        assert_eq!(falcons.booter(suspended), 0, "{} powered {powered}", hal.name);
        assert_eq!(falcons.wpr2(), region);
        assert!(falcons.core_is_active());
        assert_eq!(driver.receive().map(|message| message.function), Some(0x1001));
        assert_eq!(gpu.function.counters().boot_errors, 0);
        driver.channel(3, 0x10_0000);
    }
}

#[test]
fn reset_of_gsp_ends_firmware_that_runs() {
    let gpu = gpu(&AD104);
    let mut driver = Driver::prepared(&gpu);
    let falcons = Falcons::new(&gpu);
    falcons.boot();
    is_up(&mut driver);
    driver.open();
    driver.channel(3, 0x10_0000);
    gpu.back.calls();
    assert_eq!(gpu.rd(0x11_0100), 0, "the falcon is not there to be started");
    falcons.reset(0x11_0000);
    assert_eq!(gpu.back.calls(), [Call::Destroy(0)]);
    assert_eq!((gpu.rd(0x11_0040), gpu.rd(0x11_0100)), (0, 0x10));
    assert!(!falcons.core_is_active());
    // The region stays, and with it the booter's firmware.
    assert_ne!(falcons.wpr2().1, 0);
    assert_eq!(falcons.booter(0xff_0000_00ff), 0);
    Driver::prepared(&gpu);
    falcons.boot();
}

#[test]
fn function_reset_brings_everything_back() {
    let gpu = gpu(&AD104);
    let _driver = Driver::prepared(&gpu);
    let falcons = Falcons::new(&gpu);
    falcons.boot();
    gpu.function.reset();
    assert_eq!((falcons.wpr2(), gpu.rd(0x84_01c0), gpu.rd(0x84_1668)), ((0, 0), 0, 0));
    assert!(!falcons.core_is_active());
    Driver::prepared(&gpu);
    falcons.boot();
}

#[test]
fn memory_of_a_falcon_is_read_back_through_its_ports_and_scrubbed_by_a_reset() {
    for base in [0x11_0000, 0x84_0000] {
        let gpu = gpu(&TU106);
        gpu.wr(base + 0x1c0, 1 << 24 | 0x100);
        gpu.wr(base + 0x1c4, 0x1234_5678);
        gpu.wr(base + 0x1c4, 0x9abc_def0);
        gpu.wr(base + 0x1c0, 1 << 25 | 0x100);
        assert_eq!((gpu.rd(base + 0x1c4), gpu.rd(base + 0x1c4)), (0x1234_5678, 0x9abc_def0));
        gpu.wr(base + 0x3c0, 1);
        gpu.wr(base + 0x1c0, 0x100);
        assert_eq!(gpu.rd(base + 0x1c4), 0);
    }
}

#[test]
fn restored_between_all_steps_of_a_boot() {
    for hal in CHIPS {
        let whole = gpu(hal);
        let driver = Driver::prepared(&whole);
        let gpu = whole.restored();
        assert_eq!(Falcons::new(&gpu).frts(), 0);
        let gpu = gpu.restored();
        let falcons = Falcons::new(&gpu);
        falcons.prepare_gsp(RAM + LIBOS);
        falcons.load_booter();
        gpu.back.calls();
        let gpu = gpu.restored();
        let falcons = Falcons::new(&gpu);
        assert_eq!(falcons.start_booter(Meta::ADDRESS), 0, "{}", hal.name);
        let mut driver = driver.moved(&gpu);
        is_up(&mut driver);
        gpu.back.calls();
        let gpu = gpu.restored();
        let mut driver = driver.moved(&gpu);
        driver.open();
        driver.unload(false);
        let falcons = Falcons::new(&gpu);
        assert_eq!((falcons.sb(), falcons.booter(0xff_0000_00ff)), (0, 0));
        assert_eq!(falcons.wpr2(), (0, 0));
    }
}

#[test]
fn doorbells_of_blackwell_have_a_bit_of_their_own() {
    let gpu = gpu(&crate::gsp_face::hal::GB203);
    let mut driver = Driver::booted(&gpu);
    driver.open();
    driver.channel(3, 0x10_0000);
    gpu.back.calls();
    gpu.wr(0xbb_0090, 1 << 16 | 3);
    assert_eq!((gpu.back.calls(), gpu.function.counters().bad_doorbells), (vec![], 1));
    gpu.wr(0xbb_0090, 1 << 30 | 1 << 16 | 3);
    assert_eq!(gpu.back.calls(), [Call::Doorbell(0, 0)]);
    assert_eq!((gpu.rd(0xad_00bc), gpu.rd(0x10_40d8)), (0xff, 1));
}
