//! What drivers do out of order, or with places that are not there: an error where a driver looks, a count.

use proptest::prelude::*;

use super::*;

const GSP: u32 = 0x11_0000;
const SEC2: u32 = 0x84_0000;

fn errors(gpu: &Gpu) -> u64 {
    gpu.function.counters().boot_errors
}

#[test]
fn secure_boot_before_there_is_a_region_is_an_error() {
    for hal in CHIPS {
        let gpu = gpu(hal);
        let falcons = Falcons::new(&gpu);
        falcons.sb();
        assert_ne!(falcons.sb_error(), 0);
        assert_eq!((falcons.frts_error(), errors(&gpu)), (0, 1), "{}", hal.name);
    }
}

#[test]
fn region_is_set_up_once_and_inside_vram() {
    for hal in CHIPS {
        let gpu = gpu(hal);
        let falcons = Falcons::new(&gpu);
        for region in [[0x3f00, 0x200, 2], [0x3e00, 0, 2], [0xffff_ffff, 0xffff_ffff, 2], [0x3e00, 0x100, 1]]
        {
            falcons.fwsec(0x15, &region);
            assert_ne!(falcons.frts_error(), 0, "{region:x?}");
            assert_eq!(falcons.wpr2(), (0, 0));
        }
        falcons.frts();
        let region = falcons.wpr2();
        falcons.fwsec(0x15, &[0x100, 0x100, 2]);
        assert_ne!(falcons.frts_error(), 0);
        assert_eq!((falcons.wpr2(), errors(&gpu)), (region, 5));
    }
}

#[test]
fn falcon_without_firmware_or_with_another_is_an_error() {
    for hal in CHIPS {
        let gpu = gpu(hal);
        let falcons = Falcons::new(&gpu);
        falcons.reset(GSP);
        falcons.start_gsp();
        assert_ne!(falcons.frts_error(), 0);
        falcons.fwsec(0x77, &[]);
        assert_ne!(falcons.frts_error(), 0);
        falcons.load_fwsec(&[0x5a; 0x400]);
        falcons.start_gsp();
        assert_ne!((falcons.frts_error(), falcons.sb_error()), (0, 0));
        falcons.reset(SEC2);
        assert_ne!(falcons.start_booter(Meta::ADDRESS), 0);
        assert_eq!(errors(&gpu), 4);
    }
}

#[test]
fn interfaces_that_lead_out_of_the_data_are_refused() {
    let gpu = gpu(&AD104);
    let falcons = Falcons::new(&gpu);
    for (at, word) in [
        (0x1a0, 0xff08_0401),
        (0x1a0, 0xff00_0001),
        (0x1a8, 0xffff_fffc),
        (0x1a8, 0x2ff),
        (0x1b8, 0xffff_ffff),
        (0x1b8, 0x2f0),
        (0x1b0, 0),
    ] {
        let mut image = falcons.patched(0x15, &[falcons.frts_page(), 0x100, 2]);
        image[0x100 + at..][..4].copy_from_slice(&u32::to_le_bytes(word));
        let known = [(0x1a0, 0xff08_0401)].contains(&(at, word));
        falcons.load_fwsec(&image);
        falcons.start_gsp();
        // A longer list begins with the same entry.
        assert_eq!(falcons.frts_error() == 0, known, "{at:#x} {word:#x}");
        gpu.function.reset();
    }
}

#[test]
fn booter_wants_a_region_and_a_description_in_memory() {
    for hal in CHIPS {
        let gpu = gpu(hal);
        let _driver = Driver::prepared(&gpu);
        let falcons = Falcons::new(&gpu);
        assert_ne!(falcons.booter(Meta::ADDRESS), 0, "there is no region");
        falcons.frts();
        falcons.prepare_gsp(RAM + LIBOS);
        for address in [0, RAM - 8, RAM + (2 << 20) - 0x80, u64::MAX - 3, RAM + LIBOS] {
            assert_ne!(falcons.booter(address), 0, "{address:#x}");
            assert!(!falcons.core_is_active());
        }
        // GSP's arguments are not there.
        falcons.prepare_gsp(RAM - 8);
        assert_ne!(falcons.booter(Meta::ADDRESS), 0);
        assert_eq!(errors(&gpu), 7);
        falcons.prepare_gsp(RAM + LIBOS);
        assert_eq!(falcons.booter(Meta::ADDRESS), 0, "{}", hal.name);
    }
}

#[test]
fn second_start_of_the_booter_is_refused_while_gsp_runs() {
    for hal in CHIPS {
        let gpu = gpu(hal);
        let mut driver = Driver::prepared(&gpu);
        let falcons = Falcons::new(&gpu);
        falcons.boot();
        for mailboxes in [Meta::ADDRESS, 0xff_0000_00ff] {
            assert_ne!(falcons.booter(mailboxes), 0);
            assert!(falcons.core_is_active());
        }
        gpu.wr(GSP + 0x100, 2);
        assert_eq!(errors(&gpu), 3);
        is_up(&mut driver);
        driver.open();
        driver.unload(false);
        // Unloading is not for what was never suspended.
        falcons.sb();
        assert_ne!(falcons.booter(Meta::ADDRESS), 0);
        assert_ne!(falcons.wpr2().1, 0);
        assert_eq!(falcons.booter(0xff_0000_00ff), 0);
    }
}

#[test]
fn transfers_that_cannot_be_done_are_counted_and_change_nothing() {
    let gpu = gpu(&AD104);
    let falcons = Falcons::new(&gpu);
    falcons.dma_setup(GSP);
    let attempts = [
        // Not the guest's memory, out of the falcon's, too large, out of it, another index.
        (0x2000_0000, 0x600, 0),
        (0x10_0000, 0x600, 0xff04),
        (0x10_0000, 0x600, 0xff_fff0),
        (0x10_0000, 0x700, 0),
        (0x10_0000, 0x620, 0),
        (0x10_0000, 0x1600, 0),
    ];
    for (index, (image, command, to)) in (1..).zip(attempts) {
        falcons.dma(GSP, image, command, 0, to, 0x100);
        assert_eq!(errors(&gpu), index, "{command:#x}");
    }
    gpu.wr(GSP + 0x110, u32::MAX);
    gpu.wr(GSP + 0x128, u32::MAX);
    gpu.wr(GSP + 0x11c, u32::MAX);
    gpu.wr(GSP + 0x118, 0x600);
    assert_eq!(errors(&gpu), 7);
    gpu.wr(GSP + 0x1c0, 1 << 25);
    assert!((0..0x4000).all(|_| gpu.rd(GSP + 0x1c4) == 0));
}

#[test]
fn rom_reads_the_same_while_all_is_reset() {
    let gpu = gpu(&AD104);
    let read = || (0..0x400).map(|word| gpu.rd(0x30_0000 + 4 * word)).collect::<Vec<_>>();
    let rom = read();
    for base in [GSP, SEC2] {
        gpu.wr(base + 0x3c0, 1);
    }
    gpu.wr(0x30_0000, 0);
    assert_eq!(read(), rom);
    gpu.function.reset();
    assert_eq!(read(), rom);
    assert_eq!(gpu.rd(0x3f_fffc), u32::MAX);
}

/// Places where something happens.
const HOT: [u32; 32] = [
    0x040, 0x044, 0x100, 0x104, 0x110, 0x114, 0x118, 0x11c, 0x128, 0x180, 0x184, 0x1c0, 0x1c4, 0x3c0, 0x600,
    0x604, 0x624, 0x1668, 0xc00, 0x004, 0x008, 0x0f4, 0x108, 0x10c, 0x12c, 0x1388, 0x1240, 0x3e8, 0x408,
    0x188, 0x1180, 0x1198,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_accesses_never_panic_and_states_are_taken(
        chip in 0..CHIPS.len(),
        booted: bool,
        steps in prop::collection::vec(
            (
                prop_oneof![
                    8 => (prop::sample::select(&HOT[..]), any::<bool>())
                        .prop_map(|(at, sec2)| at + if sec2 { SEC2 } else { GSP }),
                    1 => 0x1400u32..0x1800,
                    1 => Just(0x1f_a828u32),
                ],
                prop_oneof![
                    Just(2u32), Just(1), Just(0), Just(0x614), Just(5), Just(1 << 24 | 0xfffc), Just(0x100_1000),
                    any::<u32>()
                ],
            ),
            1..120,
        ),
    ) {
        let gpu = gpu(CHIPS[chip]);
        let _driver = Driver::prepared(&gpu);
        if booted {
            Falcons::new(&gpu).boot();
        } else {
            Falcons::new(&gpu).frts();
            Falcons::new(&gpu).load_booter();
        }
        for (offset, value) in steps {
            gpu.wr(offset, value);
            gpu.rd(offset);
        }
        gpu.back.calls();
        let gpu: Gpu = gpu.restored();
        gpu.function.reset();
        Driver::prepared(&gpu);
        Falcons::new(&gpu).boot();
    }
}
