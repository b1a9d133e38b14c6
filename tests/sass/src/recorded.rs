//! What a GPU gave: programs, and sums of what each instance stored.
//!
//! The file is compressed by gzip. In it are `SASS` and a version, the number of threads, and the programs:
//! seed, number of instances, and of each its word and two sums. All numbers are little-endian.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering};

use gpuvmk_isa::{Arch, Word, decode};

use crate::instance::label;
use crate::program::Program;
use crate::soft::{self, NoOutputs};

const MAGIC: [u8; 4] = *b"SASS";
const VERSION: u32 = 1;

/// Threads of a warp.
const WARP: u32 = 32;

/// Recorded programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Threads of each program.
    pub threads: u32,
    /// Seeds and instances.
    pub programs: Vec<(u64, Vec<Vector>)>,
}

/// What an instance gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vector {
    /// The instance.
    pub word: Word,
    /// [`sum`] of what all threads stored.
    pub all: u64,
    /// That of what the first warp stored.
    pub warp: u64,
}

/// Which threads run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The first warp: a second for all programs.
    Warp,
    /// All.
    All,
}

/// Why a file is no recording.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It ends early, or is not compressed.
    #[error("reading recorded vectors")]
    Read(#[from] std::io::Error),
    /// Its first words are others.
    #[error("no recorded vectors, or of a version that is not known")]
    Version,
}

/// What an operation did on all recorded threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instances, one for each thread.
    pub instances: u64,
    /// Words of programs that are instances.
    pub words: u64,
    /// Those that did not give what the GPU gave.
    pub different: u64,
    /// Those that the software GPU does not execute.
    pub not_executed: u64,
}

impl Counts {
    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.instances += other.instances;
        self.words += other.words;
        self.different += other.different;
        self.not_executed += other.not_executed;
    }
}

/// The sum of words that is recorded: FNV-1a over words (Fowler, Noll and Vo).
#[must_use]
pub fn sum(words: &[u32]) -> u64 {
    words
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, word| (sum ^ u64::from(*word)).wrapping_mul(0x100_0000_01b3))
}

/// An operation's name, as results are counted by.
#[must_use]
pub fn name(arch: Arch, word: Word) -> String {
    decode(arch, word).map_or_else(|_| "?".into(), |instruction| label(&instruction))
}

impl Recorded {
    /// One of its programs.
    #[must_use]
    pub fn program(&self, index: usize, extent: Extent) -> Option<Program> {
        let (seed, vectors) = self.programs.get(index)?;
        let words: Vec<_> = vectors.iter().map(|vector| vector.word).collect();
        let threads = if extent == Extent::Warp { WARP } else { self.threads };
        Some(Program::of(Arch::Sm90, *seed, threads, &words))
    }

    /// Runs a program in the software GPU, and counts by operation what is as it was recorded.
    ///
    /// # Errors
    /// The program gave nothing.
    pub fn verify(&self, index: usize, extent: Extent) -> Result<BTreeMap<String, Counts>, NoOutputs> {
        let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
        let (Some(program), Some((_, vectors))) = (self.program(index, extent), self.programs.get(index))
        else {
            return Ok(counts);
        };
        let stored = soft::outputs(&crate::record::without_refused(&program))?;
        let threads = usize::try_from(program.threads).unwrap_or(0);
        let mut left = &stored[..];
        for ((_, instance), vector) in program.instances.iter().zip(vectors) {
            let (mine, rest) = left.split_at_checked(instance.slots() * threads).unwrap_or_default();
            left = rest;
            let executed = soft::executes(instance.opcode);
            let recorded = if extent == Extent::Warp { vector.warp } else { vector.all };
            counts.entry(name(program.arch, instance.word)).or_default().add(Counts {
                instances: program.threads.into(),
                words: 1,
                different: u64::from(executed && sum(mine) != recorded),
                not_executed: u64::from(!executed),
            });
        }
        Ok(counts)
    }

    /// Runs all programs on `workers` threads, and counts by operation.
    ///
    /// # Errors
    /// A program gave nothing.
    pub fn verify_all(&self, extent: Extent, workers: usize) -> Result<BTreeMap<String, Counts>, NoOutputs> {
        let next = AtomicUsize::new(0);
        let work = || -> Result<BTreeMap<String, Counts>, NoOutputs> {
            let mut mine: BTreeMap<String, Counts> = BTreeMap::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= self.programs.len() {
                    return Ok(mine);
                }
                merge(&mut mine, self.verify(index, extent)?);
            }
        };
        let mut all = BTreeMap::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
            for thread in threads {
                let found = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                merge(&mut all, found?);
            }
            Ok(all)
        })
    }

    /// Writes a file.
    ///
    /// # Errors
    /// The file takes nothing.
    pub fn write(&self, file: impl Write) -> std::io::Result<()> {
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::best());
        file.write_all(&MAGIC)?;
        for word in [VERSION, self.threads] {
            file.write_all(&word.to_le_bytes())?;
        }
        file.write_all(&count(self.programs.len()))?;
        for (seed, vectors) in &self.programs {
            file.write_all(&seed.to_le_bytes())?;
            file.write_all(&count(vectors.len()))?;
            for vector in vectors {
                file.write_all(&vector.word.0.to_le_bytes())?;
                file.write_all(&vector.all.to_le_bytes())?;
                file.write_all(&vector.warp.to_le_bytes())?;
            }
        }
        file.finish()?.flush()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// See [`Unreadable`].
    pub fn read(file: impl Read) -> Result<Self, Unreadable> {
        let mut file = flate2::read::GzDecoder::new(file);
        let mut head = [0; 4];
        file.read_exact(&mut head)?;
        if head != MAGIC || word(&mut file)? != VERSION {
            return Err(Unreadable::Version);
        }
        let threads = word(&mut file)?;
        let mut programs = Vec::new();
        for _ in 0..word(&mut file)? {
            let (seed, mut vectors) = (double(&mut file)?, Vec::new());
            for _ in 0..word(&mut file)? {
                let halves = [double(&mut file)?, double(&mut file)?].map(u128::from);
                let (all, warp) = (double(&mut file)?, double(&mut file)?);
                vectors.push(Vector { word: Word(halves[0] | halves[1] << 64), all, warp });
            }
            programs.push((seed, vectors));
        }
        Ok(Self { threads, programs })
    }
}

/// Adds counts to counts.
pub fn merge(all: &mut BTreeMap<String, Counts>, more: BTreeMap<String, Counts>) {
    for (name, counts) in more {
        all.entry(name).or_default().add(counts);
    }
}

/// A table of operations that differ, or are not executed: how many of their words there are, and of those.
#[must_use]
pub fn table_of_differences(counts: &BTreeMap<String, Counts>) -> String {
    let mut table = String::from("operation\twords\tdifferent\tnot executed\n");
    for (name, Counts { words, different, not_executed, .. }) in counts {
        if different + not_executed > 0 {
            table += &format!("{name}\t{words}\t{different}\t{not_executed}\n");
        }
    }
    table
}

fn word(file: &mut impl Read) -> std::io::Result<u32> {
    let mut bytes = [0; 4];
    file.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn double(file: &mut impl Read) -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut file = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        file.write_all(bytes).unwrap();
        file.finish().unwrap()
    }

    #[test]
    fn other_files_are_refused() {
        assert!(matches!(Recorded::read(&packed(b"SASSxxxx")[..]), Err(Unreadable::Version)));
        assert!(matches!(Recorded::read(&packed(b"SASS\x01\0")[..]), Err(Unreadable::Read(_))));
        assert!(matches!(Recorded::read(&b"SASS"[..]), Err(Unreadable::Read(_))));
    }

    #[test]
    fn a_wrong_result_is_counted_as_different() {
        // IADD3 R32, P4, P5, R16, R17, R18.
        let word = Word(0x7210 | 32 << 16 | 16 << 24 | 17 << 32 | 18 << 64 | 4 << 81 | 5 << 84 | 0xf << 87);
        let stored = soft::outputs(&Program::of(Arch::Sm90, 3, WARP, &[word])).unwrap();
        let counts = |warp| {
            let programs = vec![(3, vec![Vector { word, all: 0, warp }])];
            Recorded { threads: 256, programs }.verify(0, Extent::Warp).unwrap()["IADD3"]
        };
        let right = Counts { instances: 32, words: 1, different: 0, not_executed: 0 };
        assert_eq!(counts(sum(&stored)), right);
        assert_eq!(counts(0), Counts { different: 1, ..right });
    }
}
