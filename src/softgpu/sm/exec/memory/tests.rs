//! Lanes that are served together find what they find one by one.

use super::{addresses, load_global, load_shared, run_of_warp, store_global, store_shared};
use crate::exec::context::Context;
use crate::memory::Memory;
use crate::op::{Condition, Op, Place, Source, Space, ZERO_ROW};
use crate::program::Program;
use crate::row::{ALL, LANES, Lanes, Row, ZERO, each};
use crate::tests::ram::Ram;
use crate::warp::Warp;
use crate::{Constants, Launch, LocalMemory};

const WORDS: u32 = 1024;
const BASE: u64 = 0x7f00_0000_0000;

/// Addresses as kernels have them, and others: runs, broadcasts, both for parts of a warp, steps, any.
fn offsets(random: &mut fastrand::Rng, size: u32) -> Row {
    let first = random.u32(0..64) * size;
    match random.u32(0..7) {
        0 => each(|lane| first + word(lane) * size),
        1 => [first; LANES],
        2 => each(|lane| first + word(lane / 16) * 64 * size),
        3 => each(|lane| first + word(lane % 16) * size),
        4 => each(|lane| first + word(lane) * 2 * size),
        5 => each(|lane| first + word(31 - lane) * size),
        _ => each(|_| random.u32(0..200) * size),
    }
}

fn word(lane: usize) -> u32 {
    u32::try_from(lane).unwrap()
}

fn mask(random: &mut fastrand::Rng) -> u32 {
    [ALL, 0xffff, 0xff00_ff00, random.u32(..)][random.usize(0..4)]
}

fn row(random: &mut fastrand::Rng) -> Row {
    each(|_| random.u32(..))
}

fn shared<const COUNT: usize>() {
    let mut random = fastrand::Rng::with_seed(5);
    for _ in 0..2000 {
        let mut words: Vec<u32> = (0..WORDS).map(|_| random.u32(..)).collect();
        let size = 4 * u32::try_from(COUNT).unwrap();
        let (at, mask) = (offsets(&mut random, size), mask(&mut random));
        let mut rows = [ZERO; COUNT];
        load_shared(&words, &at, mask, &mut rows).unwrap();
        let data: [Row; COUNT] = std::array::from_fn(|_| row(&mut random));
        let mut expected = words.clone();
        for lane in Lanes(mask) {
            let first = at[lane] as usize / 4;
            for index in 0..COUNT {
                assert_eq!(rows[index][lane], words[first + index], "{at:x?} {mask:x}");
                expected[first + index] = data[index][lane];
            }
        }
        store_shared(&mut words, &at, mask, data.each_ref()).unwrap();
        assert_eq!(words, expected, "{at:x?} {mask:x}");
        // One address beyond the end, or between words, is told wherever it is.
        let lane = random.usize(0..LANES);
        let mut wrong = at;
        wrong[lane] = [WORDS * 4, !(size - 1), wrong[lane] + 2][random.usize(0..3)];
        let fails = mask >> lane & 1 == 1;
        assert_eq!(load_shared(&words, &wrong, mask, &mut rows).is_err(), fails, "{wrong:x?} {mask:x}");
        assert_eq!(store_shared(&mut words, &wrong, mask, data.each_ref()).is_err(), fails);
    }
}

#[test]
fn patterns_of_shared_memory() {
    shared::<1>();
    shared::<2>();
    shared::<4>();
}

fn global<const COUNT: usize>() {
    let mut random = fastrand::Rng::with_seed(6);
    let launch = Launch {
        arch: gpuvmk_isa::Arch::Sm90,
        entry: 0,
        registers: 8,
        grid: [1; 3],
        block: [32, 1, 1],
        shared: 0,
        constants: Constants::default(),
        shared_window: 0,
        local_window: 1 << 24,
        local: LocalMemory::default(),
    };
    let program = Program::new(launch.arch, 8, Constants::default());
    for _ in 0..500 {
        let words: Vec<u32> = (0..WORDS).map(|_| random.u32(..)).collect();
        let mut ram = Ram::default();
        ram.map(BASE, &words);
        let mut view = ram.view();
        let mut context = Context {
            launch: &launch,
            program: &program,
            view: &mut *view,
            shared: &mut crate::cta::Shared::default(),
            place: [0; 3],
            slot: 0,
        };
        let size = 4 * u32::try_from(COUNT).unwrap();
        let (at, mask) = (offsets(&mut random, size), mask(&mut random));
        let addresses = at.map(|at| BASE + u64::from(at));
        let mut rows = [ZERO; COUNT];
        load_global(&mut context, &addresses, mask, &mut rows).unwrap();
        let data: [Row; COUNT] = std::array::from_fn(|_| row(&mut random));
        store_global(&mut context, &addresses, mask, data.each_ref()).unwrap();
        let mut expected = words.clone();
        for lane in Lanes(mask) {
            let first = at[lane] as usize / 4;
            for index in 0..COUNT {
                assert_eq!(rows[index][lane], words[first + index], "{at:x?} {mask:x}");
                expected[first + index] = data[index][lane];
            }
        }
        let lane = random.usize(0..LANES);
        let mut wrong = addresses;
        wrong[lane] = [BASE - 16, BASE + 4 * u64::from(WORDS), wrong[lane] + 2][random.usize(0..3)];
        let fails = mask >> lane & 1 == 1;
        assert_eq!(load_global(&mut context, &wrong, mask, &mut rows).is_err(), fails, "{wrong:x?} {mask:x}");
        let found: Vec<u32> = (0..WORDS).map(|index| ram.read(BASE + 4 * u64::from(index))).collect();
        assert_eq!(found, expected, "{at:x?} {mask:x}");
    }
}

#[test]
fn patterns_of_global_memory() {
    global::<1>();
    global::<2>();
    global::<4>();
}

fn load_of(place: Place) -> Op {
    let first = crate::op::UNIFORM_ROWS;
    let a = Source { row: first + 2, high: first + 3, ..Source::ZERO };
    Op {
        opcode: gpuvmk_isa::Opcode::Ldg,
        uniform: false,
        guard: Condition::ALWAYS,
        d: first,
        a,
        b: Source::ZERO,
        c: Source::ZERO,
        to: [crate::op::TRUE; 2],
        from: [Condition::ALWAYS; 3],
        detail: crate::op::Detail::Move(place, crate::op::Unit::Words(1)),
    }
}

#[test]
fn a_run_is_told_from_half_of_each_address() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut warp = Warp::default();
    warp.start(8, 0, 32, 0);
    let mut told = 0;
    for _ in 0..20_000 {
        let size = [4, 8, 16][random.usize(0..3)];
        let uniform = [ZERO_ROW, 4][random.usize(0..2)];
        let place = Place {
            space: Space::Global,
            wide: random.bool(),
            uniform,
            offset: random.i32(-64..64),
            scale: 0,
        };
        let op = load_of(place);
        let first = [0x1000, 0xffff_ff00, random.u32(..)][random.usize(0..3)] & !15;
        let mut low = each(|lane| first.wrapping_add(size * word(lane)));
        let mut high = [random.u32(0..4); LANES];
        let lane = random.usize(0..LANES);
        match random.u32(0..8) {
            0 => low[lane] ^= 1 << random.u32(0..32),
            1 => high[lane] ^= 1,
            _ => {}
        }
        warp.put(op.a.row, &low, ALL);
        warp.put(op.a.high, &high, ALL);
        warp.put(4, &[[0, 0x100, u32::MAX][random.usize(0..3)]; LANES], ALL);
        warp.put(5, &[random.u32(0..2); LANES], ALL);
        let all = addresses(&warp, &op, place, &[]);
        let follow = (0..LANES).all(|lane| all[lane] == all[0].wrapping_add(u64::from(size) * lane as u64));
        let carries = low[0].checked_add(31 * size).is_none();
        match run_of_warp(&warp, &op, place, &[], size) {
            Some(first) => {
                told += 1;
                assert!(follow && first == all[0] && first.is_multiple_of(size.into()), "{all:x?}");
            }
            None => assert!(!follow || carries || !all[0].is_multiple_of(size.into()), "{all:x?}"),
        }
    }
    assert!(told > 2000, "{told}");
}
