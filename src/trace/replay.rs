//! Plays a trace into a function, and compares what it reads with what was read then.
//!
//! Time is not played: entries follow each other as fast as the function takes them. A register that was read
//! again and again until it changed is read until it has the last value that was seen, for a while;
//! everything else must agree at once, or soon. Memory of the guest is not in a trace, so whatever engines
//! read from there is not there either.

use std::time::{Duration, Instant};

use super::event::{Access, Direction, Entry, Event, Place};
use gpuvmk_pci::PciFunction;

/// How long a read may take to agree.
const PATIENCE: Duration = Duration::from_millis(200);

/// The same, once so many have not agreed: it is another device then, and long waits are useless.
const PATIENT_TIMES: u64 = 16;

/// A read that gave something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Its entry in the trace, from 1.
    pub number: u64,
    /// When it was, in the trace.
    pub nanos: u64,
    /// As it was.
    pub access: Access,
    /// What was read now; none if the access was refused.
    pub got: Option<u64>,
}

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of entries.
    pub entries: u64,
    /// Reads that were compared.
    pub reads: u64,
    /// Reads of the same register directly before another one, of which only the last is compared.
    pub polls: u64,
    /// Reads that were made and not compared, because they were left out.
    pub left_out: u64,
    /// Number of writes.
    pub writes: u64,
    /// Accesses that the function refused.
    pub refused: u64,
    /// Accesses that were in no region.
    pub unknown: u64,
    /// Reads that differed.
    pub differing: u64,
    /// The first of them.
    pub first: Vec<Difference>,
}

/// A replay under way.
pub struct Replay<'a> {
    function: &'a dyn PciFunction,
    /// What is not compared.
    left_out: &'a dyn Fn(&Access) -> bool,
    /// How many differences are kept.
    most: usize,
    pending: Option<(u64, u64, Access)>,
    outcome: Outcome,
}

impl std::fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replay").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl<'a> Replay<'a> {
    /// Into a function that is as after power-on; keeps the first `most` differences.
    pub fn new(function: &'a dyn PciFunction, left_out: &'a dyn Fn(&Access) -> bool, most: usize) -> Self {
        Self { function, left_out, most, pending: None, outcome: Outcome::default() }
    }

    /// The next entry.
    pub fn step(&mut self, entry: &Entry) {
        self.outcome.entries += 1;
        match &entry.event {
            Event::Access(access) if access.direction == Direction::Read && (self.left_out)(access) => {
                // Between two looks at a register that is waited for, drivers look at the clock.
                self.outcome.left_out += 1;
                self.read(access);
            }
            Event::Access(access) if access.direction == Direction::Read => {
                let same = |other: &Access| {
                    (other.place, other.offset, other.size) == (access.place, access.offset, access.size)
                };
                if self.pending.as_ref().is_some_and(|(_, _, other)| same(other)) {
                    self.outcome.polls += 1;
                    // Made all the same: some registers go on to the next word with each read.
                    self.read(access);
                } else {
                    self.settle();
                }
                self.pending = Some((self.outcome.entries, entry.nanos, *access));
            }
            Event::Access(access) => {
                self.settle();
                self.outcome.writes += 1;
                let bytes = access.value.to_le_bytes();
                let data = bytes.get(..usize::from(access.size)).unwrap_or_default();
                match access.place {
                    Place::Region(region) => {
                        let taken = self.function.write(region, access.offset, data);
                        self.outcome.refused += u64::from(taken.is_err());
                    }
                    Place::Physical => self.outcome.unknown += 1,
                }
            }
            Event::Reset => {
                self.settle();
                self.function.reset();
            }
            // Effects of the guest's accesses happen again by themselves.
            _ => {}
        }
    }

    /// How many entries it has had.
    pub const fn played(&self) -> u64 {
        self.outcome.entries
    }

    /// No more entries.
    pub fn finish(mut self) -> Outcome {
        self.settle();
        self.outcome
    }

    /// Makes the read that was put off.
    fn settle(&mut self) {
        let Some((number, nanos, access)) = self.pending.take() else { return };
        if access.place == Place::Physical {
            self.outcome.unknown += 1;
            return;
        }
        let mut got = self.read(&access);
        self.outcome.reads += 1;
        let patience = if self.outcome.differing < PATIENT_TIMES { PATIENCE } else { Duration::ZERO };
        let start = Instant::now();
        while got.is_some_and(|got| got != access.value) && start.elapsed() < patience {
            std::thread::yield_now();
            got = self.read(&access);
        }
        self.outcome.refused += u64::from(got.is_none());
        if got != Some(access.value) {
            self.outcome.differing += 1;
            if self.outcome.first.len() < self.most {
                self.outcome.first.push(Difference { number, nanos, access, got });
            }
        }
    }

    /// What a read gives; none if it is refused.
    fn read(&self, access: &Access) -> Option<u64> {
        let Place::Region(region) = access.place else { return None };
        let mut bytes = [0; 8];
        let data = bytes.get_mut(..usize::from(access.size))?;
        self.function.read(region, access.offset, data).ok()?;
        Some(u64::from_le_bytes(bytes))
    }
}
