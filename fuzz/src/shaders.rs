//! Shaders: machine code of any kind, decoded ([`words()`]) and executed ([`run`]).
//!
//! Whatever the words are, decoding and execution do not panic, a slice of a grid ends when it is told to,
//! and one worker does the same again from the same start. A word that decodes encodes to itself.

mod memory;
pub(crate) mod word;

use std::sync::atomic::{AtomicU32, Ordering};

use gpuvmk_isa::{Arch, Word, decode};
use gpuvmk_sm::{Constants, Grid, Launch, LocalMemory, Progress, Started};

use crate::input::Input;
use memory::{BASE, Ram, WORDS};
use word::{ARCHES, word};

/// Most instructions of a program.
const MOST: usize = 48;

/// How often a grid is asked to go on before it pauses. Between two questions are a turn of a warp, and the
/// making of a CTA.
const TURNS: u32 = 96;

/// How often each worker may ask after it was told to stop: inside a turn, and behind it.
const LATE: u32 = 4;

/// Where constants, data and local memory are: in the words behind the code.
const DATA: u64 = BASE + 0x1000;
const LOCAL: u64 = BASE + 0x4000;
const LOCAL_SIZE: u64 = 0x8000;

/// Decodes words, and prints and encodes what they are.
pub fn words(data: &[u8]) {
    let mut input = Input::new(data);
    while input.more() {
        let arch = input.pick(&ARCHES);
        let word = word(&mut input, arch);
        let Ok(instruction) = decode(arch, word) else { continue };
        let text = instruction.to_string();
        let again = instruction.encode();
        assert_eq!(again, Some(word), "{arch:?} {:#034x}: {text}", word.0);
    }
}

/// Sizes along the axes.
fn sizes(input: &mut Input<'_>) -> [u32; 3] {
    [0; 3].map(|_: u32| match input.below(8) {
        0..=3 => 1,
        4 | 5 => u32::from(input.below(70)),
        6 => input.pick(&[0, 32, 1024, 1025, 65535, 0x7fff_ffff, u32::MAX]),
        _ => u32::from(input.u16()),
    })
}

/// A launch of the code at [`BASE`].
fn launch(input: &mut Input<'_>, arch: Arch) -> Launch {
    let mut constants = Constants::default();
    for bank in [0, usize::from(input.u8())] {
        let words = (0..input.below(64)).map(|_| match input.below(3) {
            0 => input.u32(),
            1 => u32::from(input.u8()),
            _ => u32::try_from(DATA & 0xffff_ffff).unwrap_or(0),
        });
        constants.set(bank, words.collect());
    }
    let entry = match input.below(16) {
        15 => input.near(&[BASE, BASE + WORDS as u64 * 4]),
        _ => BASE,
    };
    let size = |input: &mut Input<'_>| match input.below(4) {
        0 => input.u32(),
        _ => u32::from(input.u8()),
    };
    Launch {
        arch,
        entry,
        registers: if input.flag() { u16::from(input.u8()) } else { 32 },
        grid: sizes(input),
        block: sizes(input),
        shared: if input.flag() { size(input) } else { 0x1000 },
        constants,
        shared_window: input.near(&[0x7294_0000_0000, BASE]),
        local_window: input.near(&[0x7293_0000_0000, BASE]),
        local: LocalMemory { base: LOCAL, size: LOCAL_SIZE, low: size(input), high: size(input) },
    }
}

/// Runs a grid until it ends or has asked often enough whether it may go on.
fn slice(grid: &Grid, ram: &Ram, workers: usize) -> Progress {
    let asked = AtomicU32::new(0);
    let progress = grid.run(ram, &Started(workers), &|| asked.fetch_add(1, Ordering::Relaxed) < TURNS);
    let late = asked.into_inner().saturating_sub(TURNS);
    assert!(late as usize <= LATE as usize * workers, "asked {late} times after it was told to pause");
    progress
}

/// Executes a program in two slices.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let arch = input.pick(&ARCHES);
    let workers = 1 + usize::from(input.below(8) == 7);
    let launch = launch(&mut input, arch);
    let mut code: Vec<Word> = Vec::new();
    while input.more() && code.len() < MOST {
        code.push(word(&mut input, arch));
    }
    let halves = |word: &Word| {
        let bytes = word.0.to_le_bytes();
        bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect::<Vec<_>>()
    };
    let start: Vec<u32> = code.iter().flat_map(halves).collect();
    let outcome = || {
        let ram = Ram::new(start.iter().copied());
        let grid = Grid::new(launch.clone()).ok()?;
        let first = slice(&grid, &ram, workers);
        let second = (first == Progress::Paused).then(|| slice(&grid, &ram, workers));
        Some((first, second, ram.words()))
    };
    let once = outcome();
    if workers == 1 {
        assert!(once == outcome(), "the same grid ran in two ways");
    }
}
