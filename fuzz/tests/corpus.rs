//! Every input of the corpora in the tree, as an ordinary test: without a fuzzer, without special flags.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use gpuvmk_fuzz::HARNESSES;

/// Harnesses count what their process has open: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn every_target_has_a_small_corpus_and_takes_all_of_it() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut bytes = 0;
    for (name, harness) in HARNESSES {
        let folder = corpora.join(name);
        let mut inputs = 0;
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")) {
            let path = entry.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            bytes += input.len();
            inputs += 1;
            println!("{}", path.display());
            harness(&input);
        }
        assert!(inputs > 0, "the corpus of {name} is empty");
    }
    assert!(
        bytes < 300 << 10,
        "the corpora have {bytes} bytes: cargo xtask fuzz --merge makes them small again"
    );
}

#[test]
fn every_target_is_in_the_list_and_the_other_way_round() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    files.sort();
    let names: Vec<&str> = HARNESSES.iter().map(|(name, _)| *name).collect();
    assert_eq!(files, names);
}

/// Noise reaches little, but it reaches it without a fuzzer. The same noise every time.
#[test]
fn every_target_takes_noise() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for (name, harness) in HARNESSES {
        println!("{name}");
        for _ in 0..50 {
            let words = next() % 100;
            let input: Vec<u8> = (0..words).flat_map(|_| next().to_le_bytes()).collect();
            harness(&input);
        }
    }
}
