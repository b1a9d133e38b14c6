//! Instructions in forms of their own give what they give the usual way, which warps without all their
//! lanes take.

use super::kernels::{C, CODE, constants, launch};
use super::ram::Ram;
use crate::{Alone, Grid, Progress};

/// What threads of one block store, and how many instructions their warp ran.
fn stored(threads: u32) -> (Vec<u32>, u64) {
    let block = [threads, 1, 1];
    let mut ram = Ram::default();
    ram.code(CODE, include_bytes!("../benches/sass/mixed.bin"));
    ram.map(C, &[0; 32]);
    let grid = Grid::new(launch([1; 3], block, 16, 0, constants([1; 3], block, &[C], &[1000, 99]))).unwrap();
    assert_eq!(grid.run(&ram, &Alone, &|| true), Progress::Done);
    ((0..32).map(|index| ram.read(C + 4 * index)).collect(), grid.instructions())
}

#[test]
fn whole_warps_compute_what_others_do() {
    let ((whole, of_whole), (part, of_part)) = (stored(32), stored(31));
    assert_eq!(whole[..31], part[..31]);
    assert_eq!((part[31], of_part), (0, of_whole));
    assert!(whole.iter().all(|word| *word != 0));
}
