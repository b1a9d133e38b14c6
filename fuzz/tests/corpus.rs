//! Every input of the corpora in the tree, as an ordinary test: without a fuzzer, without special flags.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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

/// How long each target is tried with inputs that are nearly those of its corpus.
const MUTATED: Duration = Duration::from_secs(2);

/// Random numbers that are the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`, or 0.
    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit.max(1) as u64)).unwrap()
    }

    /// One of a target's inputs, changed in a few places as fuzzers do.
    fn mutation(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        const VALUES: [u64; 8] = [0, 1, 0x7f, 0xff, 0x1000, 0x7fff_ffff, 0xffff_ffff, u64::MAX];
        let mut input = inputs[self.below(inputs.len())].clone();
        for _ in 0..=self.below(4) {
            let at = self.below(input.len());
            match self.below(6) {
                0 if !input.is_empty() => input[at] ^= 1 << self.below(8),
                1 if !input.is_empty() => input[at] = self.next().to_le_bytes()[0],
                2 => {
                    let (value, size) =
                        (VALUES[self.below(VALUES.len())].to_le_bytes(), [1, 2, 4, 8][self.below(4)]);
                    input[at..].iter_mut().zip(&value[..size]).for_each(|(byte, new)| *byte = *new);
                }
                3 => drop(input.drain(at..(at + self.below(16)).min(input.len()))),
                4 => drop(input.splice(at..at, self.next().to_le_bytes())),
                _ => {
                    let other = &inputs[self.below(inputs.len())];
                    let from = self.below(other.len());
                    input.truncate(at);
                    input.extend_from_slice(&other[from..]);
                }
            }
        }
        input.truncate(4096);
        input
    }
}

/// Says which input broke something.
struct Tried<'a>(&'a str, Vec<u8>);

impl Drop for Tried<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the input of {} was {:02x?}", self.0, self.1);
        }
    }
}

/// What a fuzzer does without its eyes: `cargo xtask fuzz` sees which inputs lead somewhere new. The same
/// every time, unless `GPUVMK_FUZZ_SEED` says otherwise.
#[test]
fn every_target_takes_inputs_that_are_nearly_those_of_its_corpus() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = std::env::var("GPUVMK_FUZZ_SEED").map_or(0x2545_f491_4f6c_dd1d, |seed| seed.parse().unwrap());
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, harness) in HARNESSES {
        let mut files: Vec<_> =
            std::fs::read_dir(corpora.join(name)).unwrap().map(|file| file.unwrap().path()).collect();
        files.sort();
        let inputs: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
        let (mut random, start, mut tried) = (Random(seed), Instant::now(), 0_u64);
        while start.elapsed() < MUTATED {
            let input = Tried(name, random.mutation(&inputs));
            harness(&input.1);
            tried += 1;
        }
        println!("{name}: {tried} inputs");
    }
}

/// Noise reaches little, but it reaches it without a fuzzer. The same noise every time.
#[test]
fn every_target_takes_noise() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut next = || random.next();
    for (name, harness) in HARNESSES {
        println!("{name}");
        for _ in 0..50 {
            let words = next() % 100;
            let input: Vec<u8> = (0..words).flat_map(|_| next().to_le_bytes()).collect();
            harness(&input);
        }
    }
}
