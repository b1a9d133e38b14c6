//! What an H200 gave for 200 programs of 400 instances, an H100 for 37 more with loads, stores and atomics
//! among them, and an H200 for 22 with generic addresses: the software GPU gives the same, but for what
//! `differences.tsv` names.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs::{self, File};

use gpuvmk_sass::recorded::{Extent, Recorded, merge, table_of_differences};
use gpuvmk_sass::soft::{executes, outputs_by};
use gpuvmk_sm::Twin;

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/h200.gz");
const MEMORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/h100.gz");
const GENERIC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/generic.gz");
const DIFFERENCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differences.tsv");

/// Each operation that differs or is not executed, with how many of its words: one that is mended is to be
/// taken from the list. `UPDATE_DIFFERENCES=1` writes it.
#[test]
fn gpus_gave_the_same_but_for_known_differences() {
    let mut counts = BTreeMap::new();
    for file in [VECTORS, MEMORY, GENERIC] {
        let recorded = Recorded::read(File::open(file).unwrap()).unwrap();
        merge(&mut counts, recorded.verify_all(Extent::Warp, 2).unwrap());
    }
    assert!(counts.len() > 1300, "{} operations", counts.len());
    let found = table_of_differences(&counts);
    if std::env::var_os("UPDATE_DIFFERENCES").is_some() {
        fs::write(DIFFERENCES, &found).unwrap();
    }
    assert_eq!(found, fs::read_to_string(DIFFERENCES).unwrap());
}

#[test]
fn twins_store_the_same() {
    let twins = Twin::all();
    if twins == [Twin::PLAIN] {
        eprintln!("This processor has the twin for every processor only: nothing was compared.");
        return;
    }
    let recorded = Recorded::read(File::open(VECTORS).unwrap()).unwrap();
    let memory = Recorded::read(File::open(MEMORY).unwrap()).unwrap();
    let generic = Recorded::read(File::open(GENERIC).unwrap()).unwrap();
    let programs = (0..20).map(|index| recorded.program(index, Extent::Warp));
    let programs = programs.chain((25..37).map(|index| memory.program(index, Extent::Warp)));
    for (index, program) in
        programs.chain((0..6).map(|index| generic.program(index, Extent::Warp))).enumerate()
    {
        let mut program = program.unwrap();
        for (at, instance) in &program.instances {
            if !executes(instance.opcode) {
                // What follows is a wait.
                program.words[*at] = program.words[*at + 1];
            }
        }
        let stored = twins.iter().map(|twin| outputs_by(*twin, &program).unwrap()).collect::<Vec<_>>();
        for (other, twin) in stored.iter().zip(&twins) {
            assert!(stored[0] == *other, "program {index} by {twin:?}");
        }
    }
}
