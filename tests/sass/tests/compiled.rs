//! Compiled kernels of our own, run as `record --cubin` runs them: they store what an H200 stored.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::Read as _;

use gpuvmk_sass::compiled::{line, of_cubin};
use gpuvmk_sass::soft::outputs;

const CUBIN: &[u8] = include_bytes!("../kernels/sm90.cubin.gz");
const SUMS: &str = include_str!("../kernels/h200.tsv");

#[test]
fn all_kernels_of_a_file_store_what_an_h200_stored() {
    let mut cubin = Vec::new();
    flate2::read::GzDecoder::new(CUBIN).read_to_end(&mut cubin).unwrap();
    let kernels = of_cubin(&cubin).unwrap();
    assert_eq!(kernels.len(), SUMS.lines().count());
    for kernel in &kernels {
        let stored = outputs(kernel).unwrap_or_else(|error| panic!("{}: {error}", kernel.name));
        let line = line(&kernel.name, &stored);
        assert!(SUMS.contains(&line), "{} stores other words than an H200", kernel.name);
    }
}
