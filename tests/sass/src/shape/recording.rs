//! What a GPU gave for hand-made programs: all words, since they are few and tell what differs.
//!
//! The file is text, compressed by gzip. Its first line says what it is and on which GPU it was made. Each
//! other line is a slot: program, sum of its code, slot, and the words of all threads in hexadecimal digits,
//! `word*count` where several follow each other; `-` where the GPU gave other words when it ran again.

use std::fmt::Write as _;
use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::{Shape, THREADS};
use crate::record::{Gpu, Stopped};
use crate::recorded::sum;
use crate::soft;

/// The first line begins with it.
const MAGIC: &str = "gpuvmk shapes 1";

/// How often a program runs: what is not the same each time is no result.
const TIMES: usize = 3;

/// Most bytes of a file that is read.
const MOST: u64 = 16 << 20;

/// What a program gave.
#[derive(Clone, Debug)]
pub struct OfShape {
    /// The program.
    pub shape: Shape,
    /// Words of each slot, none where they are not the same each time; or why there are none.
    pub slots: Result<Vec<Option<Vec<u32>>>, Stopped>,
}

/// Runs programs, each several times. After one that gave nothing no other one is tried.
pub fn record(gpu: &mut dyn Gpu, shapes: &[Shape]) -> Vec<OfShape> {
    let mut stopped = false;
    let mut one = |shape: &Shape| {
        let mut slots: Result<Vec<_>, _> = Err(Stopped("not tried".into()));
        for _ in 0..TIMES {
            if stopped {
                break;
            }
            match (gpu.run(shape), &mut slots) {
                (Ok(words), Ok(slots)) => again(slots, &words),
                (Ok(words), Err(_)) => {
                    slots = Ok(words.chunks(THREADS as usize).map(|slot| Some(slot.to_vec())).collect());
                }
                (Err(error), _) => {
                    stopped = true;
                    slots = Err(error);
                }
            }
        }
        OfShape { shape: shape.clone(), slots }
    };
    shapes.iter().map(&mut one).collect()
}

/// Forgets what is not the same.
fn again(slots: &mut [Option<Vec<u32>>], words: &[u32]) {
    for (slot, words) in slots.iter_mut().zip(words.chunks(THREADS as usize)) {
        slot.take_if(|slot| slot != words);
    }
}

/// A slot of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    shape: String,
    code: u64,
    name: String,
    words: Option<Vec<u32>>,
}

/// A recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The GPU and its driver.
    pub on: String,
    slots: Vec<Slot>,
}

/// A slot that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    shape: String,
    slot: String,
    how: String,
}

impl Difference {
    /// For people.
    #[must_use]
    pub fn line(&self) -> String {
        format!("{}, {}: {}", self.shape, self.slot, self.how)
    }
}

/// Programs and slots that differ, as `shape_differences.tsv` has them.
#[must_use]
pub fn table(differences: &[Difference]) -> String {
    differences.iter().map(|one| format!("{}\t{}\n", one.shape, one.slot)).collect()
}

/// Those that such a table does not have.
#[must_use]
pub fn unexpected<'a>(differences: &'a [Difference], known: &str) -> Vec<&'a Difference> {
    let is_known =
        |one: &&Difference| !known.lines().any(|line| table(std::slice::from_ref(*one)).trim() == line);
    differences.iter().filter(is_known).collect()
}

/// A sum of a program's code, wherever it lies.
fn sum_of_code(shape: &Shape) -> u64 {
    let code = shape.code(0);
    sum(&code.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect::<Vec<_>>())
}

impl Recording {
    /// What is kept of what programs gave.
    #[must_use]
    pub fn of(on: &str, found: &[OfShape]) -> Self {
        let mut slots = Vec::new();
        for OfShape { shape, slots: given } in found {
            let code = sum_of_code(shape);
            for (name, words) in shape.slots().iter().zip(given.iter().flatten()) {
                let (shape, name) = (shape.name.to_owned(), name.clone());
                slots.push(Slot { shape, code, name, words: words.clone() });
            }
        }
        Self { on: on.to_owned(), slots }
    }

    /// Slots whose words were not the same each time.
    pub fn unstable(&self) -> impl Iterator<Item = String> + '_ {
        let unstable = self.slots.iter().filter(|slot| slot.words.is_none());
        unstable.map(|slot| format!("{}, {}", slot.shape, slot.name))
    }

    /// Runs the programs in the software GPU: where it gives other words, and which are not recorded.
    #[must_use]
    pub fn verify(&self, shapes: &[Shape]) -> Vec<Difference> {
        let mut differences = Vec::new();
        for shape in shapes {
            let recorded: Vec<_> = self.slots.iter().filter(|slot| slot.shape == shape.name).collect();
            let mut differ = |slot: &str, how: String| {
                let (shape, slot) = (shape.name.to_owned(), slot.to_owned());
                differences.push(Difference { shape, slot, how });
            };
            let names = recorded.iter().map(|slot| &slot.name);
            if recorded.is_empty() {
                differ("*", "it was not recorded".into());
                continue;
            }
            let code = sum_of_code(shape);
            if recorded.iter().any(|slot| slot.code != code) || !names.eq(shape.slots()) {
                differ("*", "it is another program than the one that was recorded".into());
                continue;
            }
            let mine = match soft::outputs(shape) {
                Ok(mine) => mine,
                Err(error) => {
                    differ("*", error.to_string());
                    continue;
                }
            };
            for (slot, mine) in recorded.iter().zip(mine.chunks(THREADS as usize)) {
                if let Some(words) = slot.words.as_ref().filter(|words| *words != mine) {
                    differ(&slot.name, compared(words, mine));
                }
            }
        }
        differences
    }

    /// Writes a file.
    ///
    /// # Errors
    /// The file takes nothing.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut text = format!("{MAGIC}\t{}\n", self.on);
        for Slot { shape, code, name, words } in &self.slots {
            let words = words.as_ref().map_or_else(|| "-".into(), |words| packed(words));
            let _ = writeln!(text, "{shape}\t{code:016x}\t{name}\t{words}");
        }
        let mut to = GzEncoder::new(to, Compression::best());
        to.write_all(text.as_bytes())?;
        to.finish().map(|_| ())
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is none.
    pub fn read(from: impl Read) -> io::Result<Self> {
        let none = || io::Error::new(io::ErrorKind::InvalidData, "no recording of hand-made programs");
        let mut text = String::new();
        GzDecoder::new(from).take(MOST).read_to_string(&mut text)?;
        let mut lines = text.lines();
        let on =
            lines.next().and_then(|line| line.strip_prefix(MAGIC)?.strip_prefix('\t')).ok_or_else(none)?;
        let slots = lines.map(|line| slot(line).ok_or_else(none)).collect::<io::Result<_>>()?;
        Ok(Self { on: on.to_owned(), slots })
    }
}

fn slot(line: &str) -> Option<Slot> {
    let mut parts = line.split('\t');
    let (shape, code, name, words) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let words = if words == "-" { None } else { Some(unpacked(words)?) };
    let code = u64::from_str_radix(code, 16).ok()?;
    Some(Slot { shape: shape.to_owned(), code, name: name.to_owned(), words })
}

fn packed(words: &[u32]) -> String {
    let of = |run: &[u32]| match run {
        [word] => format!("{word:x}"),
        [word, ..] => format!("{word:x}*{}", run.len()),
        [] => String::new(),
    };
    words.chunk_by(|one, other| one == other).map(of).collect::<Vec<_>>().join(" ")
}

/// As many words as there are threads.
fn unpacked(text: &str) -> Option<Vec<u32>> {
    let mut words = Vec::new();
    for part in text.split(' ') {
        let (word, count) = part.split_once('*').unwrap_or((part, "1"));
        let room = (THREADS as usize).checked_sub(words.len())?;
        let count = count.parse().ok().filter(|count| *count <= room)?;
        words.extend(std::iter::repeat_n(u32::from_str_radix(word, 16).ok()?, count));
    }
    (words.len() == THREADS as usize).then_some(words)
}

/// How words differ.
fn compared(theirs: &[u32], mine: &[u32]) -> String {
    let mut differ = theirs.iter().zip(mine).enumerate().filter(|(_, (theirs, mine))| theirs != mine);
    let count = differ.clone().count();
    let first = differ
        .next()
        .map(|(thread, (theirs, mine))| format!("thread {thread}: {theirs:#x} on the GPU, {mine:#x} here"));
    format!("{}; {count} of {THREADS} threads", first.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{shapes, wary};
    use crate::task::Launched;

    struct Software(usize);

    impl Gpu for Software {
        fn run(&mut self, program: &dyn Launched) -> Result<Vec<u32>, Stopped> {
            self.0 += 1;
            let mut words = soft::outputs(program).map_err(|error| Stopped(error.to_string()))?;
            // What is no result: the last word counts runs.
            if let (Some(last), 1) = (words.last_mut(), self.0 % 3) {
                *last ^= 1;
            }
            Ok(words)
        }
    }

    #[test]
    fn what_is_the_same_each_time_is_kept_and_compared() {
        let shapes = &shapes()[..2];
        let recording = Recording::of("a GPU", &record(&mut Software(0), shapes));
        let last = |shape: &Shape| format!("{}, {}", shape.name, shape.slots().last().unwrap());
        assert_eq!(recording.unstable().collect::<Vec<_>>(), shapes.iter().map(last).collect::<Vec<_>>());
        let mut bytes = Vec::new();
        recording.write(&mut bytes).unwrap();
        let mut read = Recording::read(&bytes[..]).unwrap();
        assert_eq!(read, recording);
        assert_eq!(read.verify(shapes), []);
        read.slots[0].words.as_mut().unwrap()[40] ^= 0x100;
        read.slots.last_mut().unwrap().code ^= 1;
        let differences = read.verify(shapes);
        assert_eq!(table(&differences), "words\tMACTIVE\nwords_after_exit\t*\n");
        let line = differences[0].line();
        assert!(line.contains("thread 40: 0xfeff on the GPU") || line.contains("thread 40: 0x1"), "{line}");
        assert_eq!(unexpected(&differences, "words\tMACTIVE\n").len(), 1);
        assert_eq!(read.verify(&wary()[..1])[0].how, "it was not recorded");
    }

    #[test]
    fn after_one_that_stops_none_is_tried() {
        struct Stops;
        impl Gpu for Stops {
            fn run(&mut self, _: &dyn Launched) -> Result<Vec<u32>, Stopped> {
                Err(Stopped("a reason".into()))
            }
        }
        let found = record(&mut Stops, &shapes()[..3]);
        let why = |of: &OfShape| of.slots.clone().unwrap_err().0;
        assert_eq!(found.iter().map(why).collect::<Vec<_>>(), ["a reason", "not tried", "not tried"]);
    }

    #[test]
    fn damaged_files_are_refused() {
        let mut bytes = Vec::new();
        Recording::of("a GPU", &record(&mut Software(1), &shapes()[..1])).write(&mut bytes).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            let _ = Recording::read(&damaged[..]);
        }
        assert!(Recording::read(&bytes[..bytes.len() / 2]).is_err());
        assert_eq!(unpacked("5*97"), None);
        assert_eq!(unpacked("5*95"), None);
        assert_eq!(unpacked("5*95 ffffffff").map(|words| words[95]), Some(u32::MAX));
    }
}
