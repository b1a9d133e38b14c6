//! What compiled code has and our kernels have not: barriers with phases, fences, branches by tables,
//! constants of buffers whose handles are in registers. `sass/` has the sources.

use gpuvmk_isa::Arch;

use super::kernels::{A, B, C, CODE, constants, launch};
use super::ram::Ram;
use crate::{Constants, Grid, Launch, Progress, Started};

fn run(ram: &Ram, launch: Launch, workers: usize) {
    let grid = Grid::new(launch).unwrap();
    assert_eq!(grid.run(ram, &Started(workers), &|| true), Progress::Done);
}

#[test]
fn threads_exchange_words_between_phases_of_a_barrier() {
    const ROUNDS: u32 = 20;
    let mut bank = vec![0; 0x400 / 4];
    // Where each version has its parameters.
    for parameters in [0x160 / 4, 0x210 / 4] {
        bank[parameters..][..3].copy_from_slice(&[crate::row::low(C), crate::row::low(C >> 32), ROUNDS]);
    }
    let mut wanted: Vec<u32> = (0..64).collect();
    for round in 0..ROUNDS {
        let before = wanted.clone();
        for (index, word) in wanted.iter_mut().enumerate() {
            *word = before[index ^ 43].wrapping_mul(5).wrapping_add(round);
        }
    }
    for (arch, code) in [
        (Arch::Sm80, &include_bytes!("sass/phases80.bin")[..]),
        (Arch::Sm90, &include_bytes!("sass/phases90.bin")[..]),
    ] {
        let mut constants = Constants::default();
        constants.set(0, bank.clone());
        let mut ram = Ram::default();
        ram.code(CODE, code);
        ram.map(C, &[0; 64]);
        run(&ram, Launch { arch, ..launch([1; 3], [64, 1, 1], 16, 0x600, constants) }, 1);
        let found: Vec<u32> = (0..64).map(|index| ram.read(C + 4 * index)).collect();
        assert_eq!(found, wanted, "{arch:?}");
    }
}

/// Of two threads that each store a word and then load the other's, one at least sees what the other stored.
#[test]
fn fences_keep_a_store_before_a_load() {
    const ROUNDS: u32 = 2000;
    let mut ram = Ram::default();
    ram.code(CODE, include_bytes!("sass/fences.bin"));
    ram.map(A, &[0; 2 * ROUNDS as usize]);
    ram.map(B, &[7; 2 * ROUNDS as usize]);
    ram.map(C, &[0; 2]);
    let constants = constants([2, 1, 1], [1; 3], &[A, B, C], &[ROUNDS]);
    run(&ram, launch([2, 1, 1], [1; 3], 16, 0, constants), 2);
    for round in 0..u64::from(ROUNDS) {
        let seen = [0, 4].map(|more| ram.read(B + 8 * round + more));
        assert!(seen == [0, 1] || seen == [1, 0] || seen == [1, 1], "round {round}: {seen:?}");
    }
}

#[test]
fn a_branch_by_a_table_goes_where_the_table_says() {
    // Constant bank 2 of the compiled file: where the places are behind the first one, at 0x80.
    const TABLE: [u32; 5] = [0x80, 0xa0, 0xc0, 0xe0, 0x100];
    let of: [fn(u32) -> u32; 5] = [|x| x + 1000, |x| x * 3, |x| x ^ 85, |x| !x, |x| x << 7];
    for (which, of) in (0..).zip(of) {
        let mut ram = Ram::default();
        ram.code(CODE, include_bytes!("sass/table.bin"));
        ram.map(C, &[0; 32]);
        let mut constants = constants([1; 3], [32, 1, 1], &[C], &[which]);
        constants.set(2, TABLE.to_vec());
        run(&ram, launch([1; 3], [32, 1, 1], 16, 0, constants), 1);
        let found: Vec<u32> = (0..32).map(|index| ram.read(C + 4 * index)).collect();
        assert_eq!(found, (0..32).map(of).collect::<Vec<_>>(), "place {which}");
    }
}

/// Words of machine code, without what they say to the scheduler.
fn assembled(words: &[u128]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// STG.E desc[UR6][R10.64+offset], register.
const fn store(register: u128, offset: u128) -> u128 {
    let modifiers = 1 << 72 | 4 << 73 | 1 << 76 | 1 << 84 | 1 << 90 | 1 << 91;
    0x7986 | 10 << 24 | register << 32 | offset << 40 | 6 << 64 | modifiers
}

#[test]
fn constants_of_a_handle_are_read_where_they_are_wanted() {
    const SIZE: u64 = 0x80;
    let code = assembled(&[
        0x0000_0000_0000_0a00_0000_8400_0004_7ab9, // ULDC.64 UR4, c[0x0][0x210]
        0x0000_0000_0000_0a00_0000_8600_0006_7ab9, // ULDC.64 UR6, c[0x0][0x218]
        0x0000_0000_0000_2100_0000_0000_0000_7919, // S2R R0, SR_TID.X
        0x0000_0000_078e_00ff_0000_0004_0001_7824, // IMAD.SHL.U32 R1, R0, 0x4, RZ
        0x0000_0000_0f8e_00ff_0000_0006_ff0a_7e24, // IMAD.U32 R10, RZ, RZ, UR6
        0x0000_0000_0f8e_00ff_0000_0007_ff0b_7e24, // IMAD.U32 R11, RZ, RZ, UR7
        0x7210 | 10 << 16 | 10 << 24 | 1 << 32 | 0x07ff_e0ff << 64, // IADD3 R10, R10, R1, RZ
        0x7582 | 5 << 16 | 4 << 24 | 0x10 << 38 | 255 << 64 | 4 << 73 | 1 << 91, // LDC R5, cx[UR4][0x10]
        0x7582 | 6 << 16 | 4 << 24 | 0x8 << 38 | 1 << 64 | 5 << 73 | 1 << 91, // LDC.64 R6, cx[UR4][R1+0x8]
        // IADD3 R8, R5, cx[UR4][0x4], RZ
        0x7a10 | 8 << 16 | 5 << 24 | 4 << 32 | 0x4 << 38 | 0x07ff_e0ff << 64 | 1 << 91,
        // ULDC UR8, cx[UR4][0x7c], and IMAD.U32 R9, RZ, RZ, UR8.
        0x7ab9 | 8 << 16 | 4 << 24 | 0x7c << 38 | 4 << 73 | 1 << 91,
        0x0000_0000_0f8e_00ff_0000_0008_ff09_7e24,
        store(5, 0),
        store(6, 0x80),
        store(7, 0x100),
        store(8, 0x180),
        store(9, 0x200),
        0x000f_ea00_0380_0000_0000_0000_0000_794d, // EXIT
    ]);
    let mut ram = Ram::default();
    ram.code(CODE, &code);
    let words: Vec<u32> = (0..64).map(|index| 100 + index * index).collect();
    ram.map(B, &words);
    ram.map(C, &[0; 160]);
    let handle = B >> 4 | (SIZE / 16) << 45;
    run(&ram, launch([1; 3], [32, 1, 1], 16, 0, constants([1; 3], [32, 1, 1], &[handle, C], &[])), 1);
    // Beyond its size a buffer has zeros.
    let word = |index: usize| if index < 32 { words[index] } else { 0 };
    for lane in 0..32_u64 {
        let index = usize::try_from(lane).unwrap();
        let found = [0, 0x80, 0x100, 0x180, 0x200].map(|more| ram.read(C + 4 * lane + more));
        let wanted = [word(4), word(index + 2), word(index + 3), word(4) + word(1), word(31)];
        assert_eq!(found, wanted, "lane {lane}");
    }
}
