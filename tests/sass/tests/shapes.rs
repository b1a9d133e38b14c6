//! Hand-made programs: they end on the software GPU, all its twins give the same, and so did a GPU.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs::{self, File};
use std::path::Path;

use gpuvmk_isa::{Arch, Word, decode};
use gpuvmk_sass::shape::{RECORDED_ON, Recording, shapes, table, wary};
use gpuvmk_sass::soft::{outputs, outputs_by};
use gpuvmk_sass::task::{Launched, Task};
use gpuvmk_sass::windows::Places;
use gpuvmk_sm::Twin;

const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shapes.tsv.gz");
const DIFFERENCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shape_differences.tsv");

#[test]
fn programs_end_and_twins_store_the_same() {
    for shape in shapes().into_iter().chain(wary()) {
        for word in shape.code(0x10_0000).as_chunks().0 {
            let word = Word::from_bytes(*word);
            assert!(decode(Arch::Sm90, word).is_ok(), "{}: {word:x?}", shape.name);
        }
        let one = outputs_by(Twin::PLAIN, &shape);
        // What a trap handler's words are is not known.
        if shape.name != "wary_words_of_traps" {
            one.as_ref().unwrap_or_else(|error| panic!("{}: {error}", shape.name));
        }
        for twin in Twin::all() {
            assert_eq!(one, outputs_by(twin, &shape), "{} by {twin:?}", shape.name);
        }
    }
}

/// Nobody ran BRA.CONV on a GPU. Compiled code branches by it around a WARPSYNC that lanes need that are not
/// together, so that it goes where BRA.DIV, which a GPU ran, does not.
#[test]
fn lanes_branch_where_they_are_together_or_where_they_are_not() {
    let stored = |name: &str| {
        let shape = shapes().into_iter().chain(wary()).find(|shape| shape.name == name).unwrap();
        outputs(&shape).unwrap()
    };
    let (apart, together) = (stored("places_divergent"), stored("wary_converged"));
    assert!(apart.contains(&1) && together.contains(&1));
    for (apart, together) in apart.iter().zip(&together) {
        // 1 has gone, 2 has not; else nothing was stored.
        match (apart, together) {
            (1, 2) | (2, 1) => {}
            (1 | 2, _) | (_, 1 | 2) => panic!("{apart} {together}"),
            _ => assert_eq!(apart, together),
        }
    }
}

/// `UPDATE_DIFFERENCES=1` writes what differs; what is mended is to be taken from the list.
#[test]
fn a_gpu_gave_the_same_but_for_known_differences() {
    let exists = Path::new(RECORDING).exists();
    assert_eq!(exists, RECORDED_ON.is_some(), "shape::RECORDED_ON says what {RECORDING} was recorded on");
    let Some(on) = RECORDED_ON else {
        eprintln!("No GPU ran these programs yet: nothing was compared.");
        return;
    };
    let recording = Recording::read(File::open(RECORDING).unwrap()).unwrap();
    assert_eq!(recording.on, on);
    let found = recording.verify(&shapes());
    found.iter().for_each(|difference| eprintln!("{}", difference.line()));
    if std::env::var_os("UPDATE_DIFFERENCES").is_some() {
        fs::write(DIFFERENCES, table(&found)).unwrap();
    }
    assert_eq!(table(&found), fs::read_to_string(DIFFERENCES).unwrap());
}

/// One instruction, whose address is 0, and EXIT.
struct Load(u128);

impl Launched for Load {
    fn task(&self, _: &Places) -> Task {
        const EXIT: u128 = 0x0380_0000_0000_0000_0000_794d;
        Task {
            arch: Arch::Sm90,
            code: [self.0, EXIT].into_iter().flat_map(u128::to_le_bytes).collect(),
            registers: 16,
            shared: 0x400,
            barriers: 0,
            local: 0,
            local_high: 0,
            grid: 1,
            block: 32,
            banks: vec![(0, vec![0; 0x220])],
            variables: Vec::new(),
            inputs: vec![0; 16],
            stored: 1,
            filled: 0,
        }
    }
}

#[test]
fn load_without_a_descriptor_is_out_of_range_but_in_shared_memory() {
    let stopped = |word| outputs(&Load(word)).err().map(|error| error.to_string()).unwrap_or_default();
    // LD.E R9, [R4]; and with a descriptor.
    assert!(stopped(0x0010_0900_0000_0000_0409_7980).contains("AddressOutOfRange"));
    assert!(!stopped(0x0c10_1900_0000_000c_0409_7980).contains("AddressOutOfRange"));
}
