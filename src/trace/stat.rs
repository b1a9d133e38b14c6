//! Statistics of a trace: which registers were used how often, how long accesses took, and in which phases.

use std::collections::HashMap;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::event::{Direction, Entry, Event, Kind, Place};
use super::text::{self, RegisterNames};
use gpuvmk_pci::Region;

/// Memory windows are counted in pieces of this size, so that statistics do not grow with them.
const PIECE: u64 = 64 << 10;

/// Reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
}

impl Count {
    const fn add(&mut self, direction: Direction) {
        match direction {
            Direction::Read => self.reads += 1,
            Direction::Write => self.writes += 1,
        }
    }

    /// Reads and writes together.
    pub const fn sum(self) -> u64 {
        self.reads + self.writes
    }
}

/// A stretch of a trace without a long pause or a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Time of its first entry.
    pub first: u64,
    /// Time of its last entry.
    pub last: u64,
    /// Its accesses.
    pub accesses: Count,
    /// Accesses by unit.
    units: HashMap<&'static str, u64>,
}

/// The counts.
#[derive(Debug)]
pub struct Statistics {
    /// Number of entries.
    pub entries: u64,
    /// Time of the first and the last entry.
    pub span: Option<(u64, u64)>,
    /// Entries that came with an earlier time than the one before.
    pub disordered: u64,
    /// Entries by kind.
    kinds: [u64; Kind::ALL.len()],
    /// Entries that were lost when the trace was recorded.
    pub lost: u64,
    places: HashMap<Place, Count>,
    /// Registers of BAR0 by offset, other places in pieces.
    spots: HashMap<(Place, u64), Count>,
    /// Nanoseconds of reads and of writes, where they were measured.
    took: [Histogram<u64>; 2],
    /// The phases, in order.
    pub phases: Vec<Phase>,
    pause: u64,
}

/// Limit of phases; all later ones count as one.
const MOST_PHASES: usize = 4096;

impl Statistics {
    /// Nothing yet. A phase ends with a pause of so many nanoseconds.
    pub fn new(pause: u64) -> Self {
        // Two digits are enough for looking at; the largest value is an hour.
        let histogram = || {
            let mut histogram = Histogram::new_with_max(3_600_000_000_000, 2)
                .unwrap_or_else(|_| unreachable!("bounds and digits are constants"));
            histogram.auto(false);
            histogram
        };
        Self {
            entries: 0,
            span: None,
            disordered: 0,
            kinds: [0; Kind::ALL.len()],
            lost: 0,
            places: HashMap::new(),
            spots: HashMap::new(),
            took: [histogram(), histogram()],
            phases: Vec::new(),
            pause,
        }
    }

    /// Counts an entry.
    pub fn add(&mut self, entry: &Entry, names: &impl RegisterNames) {
        let last = self.span.map_or(entry.nanos, |(_, last)| last);
        let paused = entry.nanos.saturating_sub(last) >= self.pause;
        self.disordered += u64::from(entry.nanos < last);
        self.span = Some((self.span.map_or(entry.nanos, |(first, _)| first), entry.nanos.max(last)));
        self.entries += 1;
        if let Some(kind) = self.kinds.get_mut(entry.event.kind() as usize) {
            *kind += 1;
        }
        match &entry.event {
            Event::Lost { count } => self.lost = self.lost.saturating_add(*count),
            Event::Reset => self.phase(entry.nanos, true),
            Event::Access(access) => {
                self.phase(entry.nanos, paused);
                let named = text::register(access, names);
                let offset = match (named, access.place) {
                    (Some(_), _) | (None, Place::Region(Region::Bar(0) | Region::Config)) => {
                        access.offset & !3
                    }
                    (None, _) => access.offset & !(PIECE - 1),
                };
                self.places.entry(access.place).or_default().add(access.direction);
                self.spots.entry((access.place, offset)).or_default().add(access.direction);
                if access.took > 0
                    && let Some(took) = self.took.get_mut(usize::from(access.direction == Direction::Write))
                {
                    took.saturating_record(access.took);
                }
                if let Some(phase) = self.phases.last_mut() {
                    phase.accesses.add(access.direction);
                    let unit = named.map_or(text::place(access.place), |(definition, _)| definition.unit);
                    *phase.units.entry(unit).or_default() += 1;
                    phase.last = entry.nanos;
                }
            }
            _ => {}
        }
    }

    fn phase(&mut self, nanos: u64, new: bool) {
        let full = self.phases.len() >= MOST_PHASES;
        if self.phases.is_empty() || (new && !full) {
            let units = HashMap::new();
            self.phases.push(Phase { first: nanos, last: nanos, accesses: Count::default(), units });
        }
    }

    /// Entries of a kind.
    pub fn kind(&self, kind: Kind) -> u64 {
        self.kinds.get(kind as usize).copied().unwrap_or(0)
    }

    /// Accesses by place, in order.
    pub fn places(&self) -> Vec<(Place, Count)> {
        let mut places: Vec<_> = self.places.iter().map(|(place, count)| (*place, *count)).collect();
        places.sort_unstable_by_key(|(place, _)| *place);
        places
    }

    /// The spots that were used most: a register, or a piece of a memory window, by its first byte.
    pub fn top(&self, most: usize) -> Vec<(Place, u64, Count)> {
        let mut spots: Vec<_> =
            self.spots.iter().map(|((place, offset), count)| (*place, *offset, *count)).collect();
        spots
            .sort_unstable_by_key(|(place, offset, count)| (std::cmp::Reverse(count.sum()), *place, *offset));
        spots.truncate(most);
        spots
    }

    /// How long accesses took.
    pub fn durations(&self, direction: Direction) -> &Histogram<u64> {
        let [reads, writes] = &self.took;
        if direction == Direction::Read { reads } else { writes }
    }
}

impl Phase {
    /// The units that were used most.
    pub fn top_units(&self, most: usize) -> Vec<(&'static str, u64)> {
        let mut units: Vec<_> = self.units.iter().map(|(unit, count)| (*unit, *count)).collect();
        units.sort_unstable_by_key(|(unit, count)| (std::cmp::Reverse(*count), *unit));
        units.truncate(most);
        units
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Access;
    use super::*;
    use gpuvmk_chip::register_sets::RegisterSet;

    fn access(nanos: u64, direction: Direction, bar: u8, offset: u64) -> Entry {
        let place = Place::Region(Region::Bar(bar));
        let took = 1000 + nanos;
        Entry { nanos, event: Event::Access(Access { direction, place, size: 4, offset, value: 0, took }) }
    }

    #[test]
    fn registers_windows_and_phases_are_counted() {
        let names = RegisterSet::by_name("GF100");
        let mut all = Statistics::new(1000);
        let entries = [
            access(10, Direction::Read, 0, 0),
            access(20, Direction::Write, 0, 0x2140),
            access(30, Direction::Write, 0, 0x2142),
            access(40, Direction::Write, 3, 0x1_2345),
            access(50, Direction::Write, 3, 0x1_fff0),
            Entry { nanos: 60, event: Event::Lost { count: 7 } },
            access(5000, Direction::Read, 0, 0),
            Entry { nanos: 5010, event: Event::Reset },
            access(5005, Direction::Read, 0, 0),
        ];
        entries.iter().for_each(|entry| all.add(entry, &names));

        assert_eq!((all.entries, all.lost, all.disordered), (9, 7, 1));
        assert_eq!(all.span, Some((10, 5010)));
        assert_eq!(all.kind(Kind::Read), 3);
        let bar = |n| Place::Region(Region::Bar(n));
        let count = |reads, writes| Count { reads, writes };
        assert_eq!(all.places(), [(bar(0), count(3, 2)), (bar(3), count(0, 2))]);
        assert_eq!(
            all.top(9),
            [(bar(0), 0, count(3, 0)), (bar(0), 0x2140, count(0, 2)), (bar(3), 0x1_0000, count(0, 2))]
        );
        let phases: Vec<_> = all.phases.iter().map(|phase| (phase.first, phase.accesses.sum())).collect();
        assert_eq!(phases, [(10, 5), (5000, 1), (5010, 1)]);
        assert_eq!(all.phases[0].top_units(1), [("BAR3", 2)]);
        assert_eq!(all.durations(Direction::Read).len(), 3);
    }
}
