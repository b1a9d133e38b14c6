//! A chip that never was, and firmware that never was: the model follows their tables alone.

use super::config;
use super::driver::{Driver, LIBOS, STATIC_INFO, SYSTEM_INFO, UPDATE_BAR_PDE};
use super::probe::{DEVICE, channel, client, set_page_directory};
use crate::abi::Abi;
use crate::abi::r570_144::ABI;
use crate::abi::table::{Answer, Control, ControlCall, Type};
use crate::hal::{GH100, GspHal, Vectors};
use crate::model::{Gsp, GspConfig};
use gpuvmk_chip::gmmu::Gmmu;
use gpuvmk_chip::{Chip, Engine, TextureClusters};

const INTERNAL: u32 = 0xc1e0_0004;
const INTERNAL_SUBDEVICE: u32 = 0xabcd_2080;

const NEVER: GspHal = GspHal {
    name: "Chip that never was",
    short_name: "GX100",
    chip: Chip::GH100,
    mmu: Gmmu::V2,
    channels_per_runlist: 16,
    non_wpr_heap: 3 << 20,
    display: None,
    display_vectors: GH100.display_vectors,
    cpu_sequencer: false,
    vectors: Vectors { gsp_stall: 0x11, non_stall, memory: 0x81 },
    multiprocessor: GH100.multiprocessor,
    memory: GH100.memory,
    graphics: TextureClusters::of(&[1, 2]),
};

pub static CHIP: GspHal = NEVER;

fn non_stall(engine: Engine) -> u32 {
    if engine == Engine::Graphics { 0x70 } else { 0x71 }
}

#[test]
fn gsp_says_and_takes_what_the_chip_has() {
    let mut driver = Driver::booted(GspConfig { hal: &CHIP, ..config() });

    let info = driver.call(STATIC_INFO, &[0; 0x678]);
    assert_eq!(&info.body[0x4ec..0x4ec + CHIP.name.len()], CHIP.name.as_bytes());
    let (status, clusters) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0137, &[0; 4]);
    assert_eq!((status, clusters.word(0)), (0, 0b11));
    let (status, table) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a5c, &[0; 0x814]);
    assert_eq!((status, table.word(4 + 8), table.word(4 + 16 + 12)), (0, 0x11, 0x70));
    let body = |shift: u64| [1u64.to_le_bytes(), 2u64.to_le_bytes(), shift.to_le_bytes()].concat();
    assert_eq!([47, 56].map(|shift| driver.call(UPDATE_BAR_PDE, &body(shift)).result), [0, 0x1f]);
    client(&mut driver, 1, true);
    assert_eq!(set_page_directory(&mut driver, 1, 0x10_0000), 0);
    let mut made = |chid: u32| {
        let userd = 0x20_0000 + u64::from(chid) * 0x200;
        driver.alloc(1, DEVICE, 0x100 + chid, 0xc86f, &channel(1, chid, 0x10_0000, userd))
    };
    assert_eq!([15, 16].map(&mut made), [0, 0x1f]);
}

/// One control, by a number that is another's in 570.144, of another size.
static CONTROLS: &[Control] = &[Control {
    number: 0x2080_0ac3,
    name: "GPC_MASK",
    object: Type::Subdevice,
    size: 12,
    answer: Answer::Handler(ControlCall::GpcMask(|mask, raw| raw[8..].copy_from_slice(&mask.to_le_bytes()))),
    source: "none",
    doc: "",
}];

static FIRMWARE: Abi = Abi { version: "1.0", controls: &[CONTROLS], client_parameters: 0x6c, ..ABI };

/// A driver of a GSP that speaks [`FIRMWARE`].
fn speaks_another(mut driver: Driver) -> Driver {
    driver.gsp = Gsp::with_abi(config(), &FIRMWARE);
    driver.boot(LIBOS).unwrap();
    driver.poll();
    driver
}

#[test]
fn one_number_means_two_things_in_two_versions() {
    let mut driver = speaks_another(Driver::bare(config()));

    let (status, answer) = driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0ac3, &[0; 12]);
    assert_eq!((status, answer.word(8)), (0, 0xff));
    assert_eq!(driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0ac3, &[0]).0, 0x3a, "the other's size");
    assert_eq!(driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a5c, &[0; 0x814]).0, 0x56);
    assert_eq!(driver.alloc(7, 7, 7, 0, &[0; 0x78]), 0x3a);
    assert_eq!(driver.alloc(7, 7, 7, 0, &[0; 0x6c]), 0);
}

#[test]
fn driver_that_says_its_version_first_is_spoken_to_in_it() {
    // This one sends what 570.144 sends, before the boot.
    let mut driver = speaks_another(Driver::new(config()));

    assert_eq!(driver.gsp.state().firmware, "570.144");
    assert_eq!(driver.control(INTERNAL, INTERNAL_SUBDEVICE, 0x2080_0a5c, &[0; 0x814]).0, 0);
}

#[test]
fn version_does_not_change_under_objects() {
    let mut driver = speaks_another(Driver::bare(config()));
    assert_eq!(driver.alloc(7, 7, 7, 0, &[0; 0x6c]), 0);

    driver.send(SYSTEM_INFO, &[0; 928], 0);
    driver.ring();

    assert_eq!((driver.gsp.state().firmware.as_str(), driver.gsp.counters().refused), ("1.0", 1));
}

#[test]
fn classes_are_those_of_the_chip_in_the_catalogue() {
    static OLDER: GspHal = GspHal { chip: Chip::TU102, ..NEVER };
    for (hal, status) in [(&CHIP, 0), (&OLDER, 0x22)] {
        let mut driver = Driver::booted(GspConfig { hal, ..config() });
        client(&mut driver, 1, true);
        assert_eq!(set_page_directory(&mut driver, 1, 0x10_0000), 0);

        let made = driver.alloc(1, DEVICE, 0x100, 0xc86f, &channel(1, 1, 0x10_0000, 0x20_0000));

        assert_eq!(made, status);
        assert_eq!(
            driver.alloc(1, DEVICE, 0x101, 0x906f, &channel(1, 2, 0x10_0000, 0x20_0000)),
            0x22,
            "Fermi's"
        );
    }
}
