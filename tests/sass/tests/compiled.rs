//! Compiled kernels of our own, run as `record --cubin` runs them: they store what an H200 stored.
//!
//! `flow1` to `flow3` are kernels of random control flow: `cargo xtask sass source --seed 1` to 3, compiled
//! by `nvcc -arch=sm_90 -cubin` of CUDA 13.5.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Read as _;

use gpuvmk_sass::compiled::{line, of_cubin};
use gpuvmk_sass::soft::outputs;

/// A cubin, and sums of what its kernels stored.
macro_rules! recorded {
    ($cubin:literal, $sums:literal) => {
        (include_bytes!(concat!("../kernels/", $cubin)), include_str!(concat!("../kernels/", $sums)))
    };
}

fn store_the_same((cubin, sums): (&[u8], &str)) {
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(cubin).read_to_end(&mut unpacked).unwrap();
    let kernels = of_cubin(&unpacked).unwrap();
    assert_eq!(kernels.len(), sums.lines().count());
    for kernel in &kernels {
        let stored = outputs(kernel);
        let line = stored.as_ref().map(|stored| line(&kernel.name, stored));
        assert!(line.is_ok_and(|line| sums.contains(&line)), "{}: {:?}", kernel.name, stored.err());
    }
}

#[test]
fn all_kernels_of_a_file_store_what_an_h200_stored() {
    store_the_same(recorded!("sm90.cubin.gz", "h200.tsv"));
}

#[test]
fn so_do_kernels_of_random_control_flow() {
    store_the_same(recorded!("flow1.cubin.gz", "flow1.tsv"));
    store_the_same(recorded!("flow2.cubin.gz", "flow2.tsv"));
    store_the_same(recorded!("flow3.cubin.gz", "flow3.tsv"));
}
