//! What each operation does to its GPU's function, from a trace of a guest that sets its operations off by
//! marks (`suite:marks=1`).
//!
//! A mark is reads of the GPU's clock and nothing else, with silence around them. Before and behind each
//! operation is one; several stand together where an operation touches no register, or nothing lies between
//! two.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use gpuvmk_chip::Face;
use gpuvmk_lab::chip::Chip;
use serde_json::{Value, json};

use crate::bench::access::{self, Access, Entry, Place};
use crate::bench::{median, round3};

/// Accesses this far apart do not belong together; the silence around marks is longer.
const SILENCE_NS: u64 = 3_000_000;
/// Accesses of a mark: 41 readings of the clock, of three accesses each, of which the first goes before the
/// silence.
const MARK: u64 = 123;
/// An interrupt's accesses, which may come in the middle of a mark. A loop that waits, with the clock as its
/// limit, has more between so many reads of the clock.
const INTERRUPT: u64 = 30;
/// Accesses of that first reading, which end an operation's.
const LAST: u64 = 3;
/// The clock as the kernel reads it: PTIMER, and a GH100's usermode page.
const CLOCK: [u64; 4] = [0x9400, 0x9410, 0xbb_0080, 0xbb_0084];
/// The window onto VRAM in BAR0.
const VRAM_WINDOW: std::ops::Range<u64> = 0x70_0000..0x80_0000;

/// What one operation does.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// Reads of registers: the guest's processor stands still until each is answered.
    pub reads: f64,
    /// Writes of registers, which are posted.
    pub writes: f64,
    /// Accesses to VRAM through a window or a BAR, where page tables are written and rings are rung.
    pub memory: f64,
    /// Writes, among those above, that flush the GPU's TLBs.
    pub flushes: f64,
    /// Runs of pages that the mediator changed in shadow page tables.
    pub runs: f64,
}

/// A count of all.
type Field = fn(&mut Counts) -> &mut f64;

impl Counts {
    const FIELDS: [(&str, Field); 5] = [
        ("reads", |counts| &mut counts.reads),
        ("writes", |counts| &mut counts.writes),
        ("memory", |counts| &mut counts.memory),
        ("flushes", |counts| &mut counts.flushes),
        ("runs", |counts| &mut counts.runs),
    ];

    pub fn to_json(mut self) -> Value {
        Self::FIELDS.into_iter().map(|(name, of)| (name, json!(round3(*of(&mut self))))).collect()
    }

    fn note(&mut self, access: &Access, flush: u64) {
        let counter = match access.place {
            Place::Bar0 if !VRAM_WINDOW.contains(&access.offset) => {
                if access.write && access.offset == flush {
                    self.flushes += 1.0;
                }
                if access.write { &mut self.writes } else { &mut self.reads }
            }
            _ => &mut self.memory,
        };
        *counter += 1.0;
    }

    fn add(&mut self, mut other: Self) {
        for (_, of) in Self::FIELDS {
            *of(self) += *of(&mut other);
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reads, writes, memory, flushes, runs } = self;
        write!(f, "{reads:.1}/{writes:.1}/{memory:.0}")?;
        if *flushes > 0.0 {
            write!(f, " {flushes:.1} flushes")?;
        }
        if *runs > 0.0 {
            write!(f, " {runs:.1} runs")?;
        }
        Ok(())
    }
}

/// The register whose writes flush TLBs.
fn flush_register(chip: Chip) -> u64 {
    match chip.face {
        Face::Registers => 0x10_0cbc,
        Face::Gsp => 0xb8_30b0,
    }
}

/// Counts of each operation of `stages` (its name, and of how many alike it consists), the median where there
/// are several.
pub fn of_trace(gpuvmk: &Path, trace: &Path, chip: Chip, stages: &Value) -> Result<BTreeMap<String, Counts>> {
    let stages: Vec<(String, f64)> =
        serde_json::from_value(stages.clone()).context("The guest's stages are not as expected")?;
    let mut reader = Reader::new(flush_register(chip));
    access::each(gpuvmk, trace, |entry| reader.take(entry))?;
    let operations = reader.operations();
    ensure!(
        operations.marks == 2 * stages.len() as u64,
        "{} marks were found for {} operations: their counts cannot be told apart",
        operations.marks,
        stages.len()
    );
    let mut found: BTreeMap<String, Vec<Counts>> = BTreeMap::new();
    for (index, (name, pieces)) in (0..).zip(stages) {
        let mut counts = operations.counts.get(&index).copied().unwrap_or_default();
        Counts::FIELDS.iter().for_each(|(_, of)| *of(&mut counts) /= pieces.max(1.0));
        found.entry(name).or_default().push(counts);
    }
    Ok(found.into_iter().map(|(name, counts)| (name, middle(&counts))).collect())
}

fn middle(all: &[Counts]) -> Counts {
    let mut found = Counts::default();
    for (_, of) in Counts::FIELDS {
        let values: Vec<f64> = all.iter().map(|counts| *of(&mut counts.clone())).collect();
        *of(&mut found) = median(&values);
    }
    found
}

/// Accesses between two silences.
#[derive(Debug, Clone, Copy, Default)]
struct Cluster {
    counts: Counts,
    all: u64,
    clock: u64,
    /// Reads of the clock since something else.
    clock_at_end: u64,
}

impl Cluster {
    fn is_of_marks(&self) -> bool {
        let interrupted =
            (MARK - 2 * LAST..=MARK).contains(&self.clock) && self.all - self.clock <= INTERRUPT;
        self.all == self.clock || interrupted
    }
}

/// What lies between marks.
#[derive(Debug, Default)]
struct Operations {
    marks: u64,
    counts: BTreeMap<u64, Counts>,
}

/// Reads a trace from its beginning.
#[derive(Debug)]
struct Reader {
    flush: u64,
    last: Option<u64>,
    clusters: Vec<Cluster>,
}

impl Reader {
    fn new(flush: u64) -> Self {
        Self { flush, last: None, clusters: vec![Cluster::default()] }
    }

    fn take(&mut self, entry: Entry) {
        if let Entry::Access(access) = entry {
            if self.last.is_some_and(|last| access.nanos.saturating_sub(last) > SILENCE_NS) {
                self.clusters.push(Cluster::default());
            }
            self.last = Some(access.nanos);
        }
        let Some(cluster) = self.clusters.last_mut() else { return };
        match entry {
            Entry::Access(access) => {
                let clock = !access.write && access.place == Place::Bar0 && CLOCK.contains(&access.offset);
                cluster.all += 1;
                cluster.clock += u64::from(clock);
                cluster.clock_at_end = if clock { cluster.clock_at_end + 1 } else { 0 };
                cluster.counts.note(&access, self.flush);
            }
            Entry::Runs(runs) => cluster.counts.runs += runs as f64,
        }
    }

    fn operations(&self) -> Operations {
        let mut found = Operations::default();
        // Reads of the clock that nothing interrupted: several marks have several silences between them.
        let mut clock = 0;
        for cluster in &self.clusters {
            if cluster.is_of_marks() {
                let mut others = cluster.counts;
                others.reads -= cluster.clock as f64;
                if cluster.all > cluster.clock && (found.marks + marks(clock)) % 2 == 1 {
                    found.counts.entry((found.marks + marks(clock)) / 2).or_default().add(others);
                }
                clock += cluster.clock;
                continue;
            }
            found.marks += marks(clock);
            clock = 0;
            if found.marks % 2 == 1 {
                let mut counts = cluster.counts;
                if cluster.clock_at_end >= LAST {
                    counts.reads -= LAST as f64;
                }
                found.counts.entry(found.marks / 2).or_default().add(counts);
            }
        }
        found.marks += marks(clock);
        found
    }
}

/// Marks in so many reads of the clock. A mark's first reading may be with what was before it.
fn marks(reads: u64) -> u64 {
    (reads + MARK / 2) / MARK
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A trace in the making.
    struct Guest {
        reader: Reader,
        now: u64,
    }

    impl Guest {
        fn new() -> Self {
            Self { reader: Reader::new(flush_register(Chip::GF100)), now: 0 }
        }

        fn access(&mut self, place: Place, write: bool, offset: u64) {
            self.now += 20_000;
            self.reader.take(Entry::Access(Access { nanos: self.now, place, write, offset }));
        }

        fn clock(&mut self, readings: u32) {
            for _ in 0..readings {
                [0x9410, 0x9400, 0x9410]
                    .into_iter()
                    .for_each(|offset| self.access(Place::Bar0, false, offset));
            }
        }

        fn mark(&mut self) {
            self.clock(1);
            self.now += 5 * MS;
            self.clock(40);
            self.now += 5 * MS;
        }
    }

    #[test]
    fn accesses_between_two_marks_are_an_operation_s() {
        let mut guest = Guest::new();
        guest.access(Place::Bar0, true, 0x200);
        guest.mark();
        guest.access(Place::Bar0, false, 0x100);
        guest.access(Place::Bar0, true, 0x10_0cbc);
        guest.access(Place::Bar1, true, 0x1000);
        guest.access(Place::Bar0, true, 0x70_0010);
        guest.reader.take(Entry::Runs(4));
        guest.mark();
        guest.access(Place::Bar0, false, 0x140);
        let operations = guest.reader.operations();
        let wanted = Counts { reads: 1.0, writes: 1.0, memory: 2.0, flushes: 1.0, runs: 4.0 };
        assert_eq!((operations.marks, operations.counts.get(&0)), (2, Some(&wanted)));
    }

    #[test]
    fn silence_inside_of_an_operation_does_not_end_it() {
        let mut guest = Guest::new();
        guest.mark();
        guest.access(Place::Bar0, false, 0x100);
        guest.now += 50 * MS;
        guest.access(Place::Bar0, false, 0x100);
        guest.mark();
        let operations = guest.reader.operations();
        assert_eq!(operations.counts.get(&0).map(|counts| counts.reads), Some(2.0));
    }

    #[test]
    fn operations_without_accesses_keep_their_places() {
        let mut guest = Guest::new();
        for _ in 0..9 {
            guest.mark();
            guest.mark();
        }
        guest.mark();
        guest.access(Place::Bar0, true, 0x100);
        guest.mark();
        let operations = guest.reader.operations();
        assert_eq!((operations.marks, operations.counts.len()), (20, 1));
        assert_eq!(operations.counts.get(&9).map(|counts| counts.writes), Some(1.0));
    }

    #[test]
    fn interrupt_in_the_middle_of_a_mark_is_the_operation_s_before_it() {
        let mut guest = Guest::new();
        guest.mark();
        guest.access(Place::Bar0, true, 0x2500);
        guest.clock(1);
        guest.now += 5 * MS;
        guest.clock(10);
        (0..5).for_each(|_| guest.access(Place::Bar0, false, 0x100));
        guest.access(Place::Bar0, true, 0x140);
        guest.clock(30);
        guest.now += 5 * MS;
        guest.mark();
        let operations = guest.reader.operations();
        let wanted = Counts { reads: 5.0, writes: 2.0, ..Counts::default() };
        assert_eq!((operations.marks, operations.counts.get(&0)), (3, Some(&wanted)));
        assert_eq!(operations.counts.get(&1), None);
    }

    #[test]
    fn polls_of_the_clock_at_work_are_no_mark() {
        let mut guest = Guest::new();
        guest.mark();
        for _ in 0..100 {
            guest.clock(1);
            guest.access(Place::Bar0, false, 0x10_0c80);
        }
        guest.mark();
        let operations = guest.reader.operations();
        assert_eq!(
            (operations.marks, operations.counts.get(&0).map(|counts| counts.reads)),
            (2, Some(400.0))
        );
    }

    #[test]
    fn figure_of_several_is_the_middle_one() {
        let of = |reads| Counts { reads, ..Counts::default() };
        assert_eq!(middle(&[of(90.0), of(4.0), of(5.0)]), of(5.0));
    }
}
