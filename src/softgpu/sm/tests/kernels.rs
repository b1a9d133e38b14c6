//! The four kernels of `tests/kernels`, as compiled for SM90.

use gpuvmk_isa::Arch;

use super::ram::Ram;
use crate::{Access, Alone, Cause, Constants, Grid, Launch, LocalMemory, Progress, Started};

pub const CODE: u64 = 0x7e00_0000_0000;
pub const A: u64 = 0x7f00_0000_0000;
pub const B: u64 = 0x7f00_1000_0000;
pub const C: u64 = 0x7f00_2000_0000;

/// Offset of parameters in constant bank 0 of SM90.
const PARAMETERS: usize = 0x210 / 4;

macro_rules! kernel {
    ($name:literal) => {
        include_bytes!(concat!("../../../../tests/kernels/sass/sm90/", $name, ".bin"))
    };
}

pub fn constants(grid: [u32; 3], block: [u32; 3], pointers: &[u64], words: &[u32]) -> Constants {
    let mut bank = vec![0; 0x400 / 4];
    bank[..3].copy_from_slice(&block);
    bank[3..6].copy_from_slice(&grid);
    let halves = pointers.iter().flat_map(|pointer| [*pointer & 0xffff_ffff, pointer >> 32]);
    let parameters = halves.map(|half| u32::try_from(half).unwrap()).chain(words.iter().copied());
    for (to, word) in bank[PARAMETERS..].iter_mut().zip(parameters) {
        *to = word;
    }
    let mut constants = Constants::default();
    constants.set(0, bank);
    constants
}

pub fn launch(grid: [u32; 3], block: [u32; 3], registers: u16, shared: u32, constants: Constants) -> Launch {
    Launch {
        arch: Arch::Sm90,
        entry: CODE,
        registers,
        grid,
        block,
        shared,
        constants,
        shared_window: 0x7294_0000_0000,
        local_window: 0x7293_0000_0000,
        local: LocalMemory::default(),
    }
}

fn run(ram: &Ram, launch: Launch, workers: usize) -> Progress {
    Grid::new(launch).unwrap().run(ram, &Started(workers), &|| true)
}

#[allow(clippy::cast_precision_loss, reason = "values of a test")]
pub fn values(count: u32, of: impl Fn(f32) -> f32) -> Vec<u32> {
    (0..count).map(|index| of(index as f32).to_bits()).collect()
}

#[test]
fn vector_add() {
    let count = 5000_u32;
    let (a, b) = (values(count, |index| index * 0.37), values(count, |index| 1.0 / (1.0 + index)));
    let mut ram = Ram::default();
    ram.code(CODE, kernel!("vector_add"));
    ram.map(A, &a);
    ram.map(B, &b);
    ram.map(C, &vec![0; count as usize]);
    let (grid, block) = ([count.div_ceil(256), 1, 1], [256, 1, 1]);
    let constants = constants(grid, block, &[A, B, C], &[count]);
    assert_eq!(run(&ram, launch(grid, block, 12, 0, constants), 1), Progress::Done);
    for index in 0..count as usize {
        let sum = f32::from_bits(a[index]) + f32::from_bits(b[index]);
        assert_eq!(ram.read(C + 4 * index as u64), sum.to_bits(), "word {index}");
    }
}

#[test]
fn spin() {
    let (grid, block, rounds) = ([4, 1, 1], [256, 1, 1], 100);
    let mut ram = Ram::default();
    ram.code(CODE, kernel!("spin"));
    ram.map(C, &[0; 1024]);
    let constants = constants(grid, block, &[C], &[rounds, 99]);
    assert_eq!(run(&ram, launch(grid, block, 8, 0, constants), 2), Progress::Done);
    for index in 0..1024 {
        let step = |x: u32, _| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        assert_eq!(ram.read(C + 4 * u64::from(index)), (0..rounds).fold(99 + index, step), "word {index}");
    }
}

#[test]
fn matrix_product() {
    let size = 64_u32;
    let a = values(size * size, |index| (index % 97.0) * 0.01 - 0.3);
    let b = values(size * size, |index| (index % 89.0) * 0.013 - 0.5);
    let mut ram = Ram::default();
    ram.code(CODE, kernel!("matrix_product"));
    ram.map(A, &a);
    ram.map(B, &b);
    ram.map(C, &vec![0; (size * size) as usize]);
    let (grid, block) = ([size / 16, size / 16, 1], [16, 16, 1]);
    let constants = constants(grid, block, &[A, B, C], &[size]);
    assert_eq!(run(&ram, launch(grid, block, 32, 3072, constants), 2), Progress::Done);
    let size = size as usize;
    for row in 0..size {
        for column in 0..size {
            let product = |sum: f32, k: usize| {
                f32::from_bits(a[row * size + k]).mul_add(f32::from_bits(b[k * size + column]), sum)
            };
            let sum = (0..size).fold(0.0, product).to_bits();
            assert_eq!(ram.read(C + 4 * (row * size + column) as u64), sum, "row {row}, column {column}");
        }
    }
}

#[test]
fn reduce_sum() {
    let count = 10_000_u32;
    let words: Vec<u32> = (0..count).map(|index| index.wrapping_mul(2_654_435_761)).collect();
    for workers in [1, 3] {
        let mut ram = Ram::default();
        ram.code(CODE, kernel!("reduce_sum"));
        ram.map(A, &words);
        ram.map(C, &[0; 2]);
        let (grid, block) = ([8, 1, 1], [256, 1, 1]);
        let constants = constants(grid, block, &[A, C], &[count]);
        assert_eq!(run(&ram, launch(grid, block, 14, 1032, constants), workers), Progress::Done);
        let sum: u64 = words.iter().map(|word| u64::from(*word)).sum();
        assert_eq!(u64::from(ram.read(C)) | u64::from(ram.read(C + 4)) << 32, sum);
    }
}

#[test]
fn memory_that_is_not_there_is_a_fault() {
    let (grid, block) = ([1, 1, 1], [32, 1, 1]);
    let mut ram = Ram::default();
    ram.code(CODE, kernel!("vector_add"));
    ram.map(A, &[0; 32]);
    ram.map(B, &[0; 32]);
    let constants = constants(grid, block, &[A, B, C], &[32]);
    let Progress::Faulted(fault) = run(&ram, launch(grid, block, 12, 0, constants), 1) else { panic!() };
    let Cause::Memory(memory) = fault.cause else { panic!("{fault}") };
    assert_eq!((memory.address, memory.access, fault.warp), (C, Access::Write, 0));
    // Code that is not there.
    let mut nowhere = launch(grid, block, 12, 0, Constants::default());
    nowhere.entry = B + 0x1000;
    let Progress::Faulted(fault) = run(&ram, nowhere, 1) else { panic!() };
    assert_eq!(fault.pc, B + 0x1000);
    // A register beyond the launch's.
    let few = launch(grid, block, 4, 0, Constants::default());
    assert!(matches!(run(&ram, few, 1), Progress::Faulted(_)));
}

#[test]
fn blocks_that_wait_for_each_other_are_there_all_at_once_or_not_at_all() {
    let of = |blocks: u32, threads: u32, registers, shared, local: LocalMemory| {
        let constants = constants([blocks, 1, 1], [threads, 1, 1], &[C], &[1, 7]);
        let launch = launch([blocks, 1, 1], [threads, 1, 1], registers, shared, constants);
        Grid::new(Launch { local, ..launch }).unwrap().gather()
    };
    let none = LocalMemory::default();
    assert_eq!(of(144 * 32, 32, 8, 0, none), Ok(()));
    assert_eq!(of(144 * 32 + 1, 32, 8, 0, none), Err(144 * 32));
    // By what they take of this process.
    assert_eq!(of(144, 256, 64, 48 << 10, none), Ok(()));
    assert_eq!(of(144, 1024, 64, 227 << 10, none), Err(64 * 484 / 483));
    // By local memory: 32 lanes with 1 KiB each.
    let local = LocalMemory { base: 0, size: 100 << 15, low: 1024, high: 0 };
    assert_eq!([100, 101].map(|blocks| of(blocks, 32, 8, 0, local)), [Ok(()), Err(100)]);
}

#[test]
fn a_grid_pauses_and_goes_on() {
    let (grid, block) = ([2, 1, 1], [64, 1, 1]);
    let mut ram = Ram::default();
    ram.code(CODE, kernel!("spin"));
    ram.map(C, &[0; 128]);
    let constants = constants(grid, block, &[C], &[20_000, 7]);
    let grid = Grid::new(launch(grid, block, 8, 0, constants)).unwrap();
    let mut slices = 0;
    loop {
        let asked = std::sync::atomic::AtomicU32::new(0);
        let go_on = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 4;
        match grid.run(&ram, &Alone, &go_on) {
            Progress::Paused => slices += 1,
            progress => {
                assert_eq!(progress, Progress::Done);
                break;
            }
        }
    }
    assert!(slices > 10, "{slices} slices");
    let step = |x: u32, _| x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    assert_eq!(ram.read(C), (0..20_000).fold(7, step));
}
