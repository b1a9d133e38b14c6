//! Words of compute kernels of our own, compiled for seven versions, read as NVIDIA's disassembler wrote
//! them when they were recorded. One line for each operation, form and set of modifiers: version, address,
//! word, text.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeSet;
use std::io::Read as _;

use flate2::read::GzDecoder;
use gpuvmk_isa::print::At;
use gpuvmk_isa::{Arch, Word, decode};

/// Lines that are recorded.
const LINES: usize = 2754;

fn recorded() -> String {
    let mut text = String::new();
    GzDecoder::new(include_bytes!("recorded.tsv.gz").as_slice()).read_to_string(&mut text).unwrap();
    text
}

#[test]
fn recorded_words_print_as_recorded_and_encode_again() {
    let text = recorded();
    let mut lines = 0;
    let mut versions = BTreeSet::new();
    let mut wrong = Vec::new();
    for line in text.lines() {
        let [arch, address, word, expected] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let arch = Arch::from_number(arch.parse().unwrap()).unwrap();
        let address = u64::from_str_radix(address, 16).unwrap();
        let word = Word(u128::from_str_radix(word, 16).unwrap());
        match decode(arch, word) {
            Ok(instruction) => {
                let printed = At(&instruction, address).to_string();
                if printed != expected || instruction.encode() != Some(word) {
                    wrong.push(format!("{arch} {:#034x}: {expected} is printed {printed}", word.0));
                }
            }
            Err(why) => wrong.push(format!("{arch} {:#034x}: {expected}: {why}", word.0)),
        }
        lines += 1;
        versions.insert(arch);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!((lines, versions.len()), (LINES, Arch::ALL.len()));
}
