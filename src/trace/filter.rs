//! Selects entries of a trace by conditions that an operator writes.
//!
//! `bar=0,3`, `range=0x2000-0x2fff`, `unit=PFIFO` and `op=write,doorbell`; several values of a key are
//! alternatives, several keys must all hold. `bar`, `range` and `unit` are about accesses, and leave other
//! events alone. Losses and notes are never left out, nor what accesses of an imported trace have in common:
//! without its device and its mappings it cannot be exported.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use super::event::{Access, Event, Kind, Place};
use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_pci::Region;

/// The conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Kinds, by bit; empty: all.
    kinds: u16,
    places: Vec<Place>,
    ranges: Vec<RangeInclusive<u64>>,
    /// Registers of the units, in BAR0.
    registers: Vec<RangeInclusive<u64>>,
    units: bool,
}

/// Why words are no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is no filter: {allowed}")]
pub struct FilterError {
    /// The text that is wrong.
    pub word: String,
    /// The allowed values.
    pub allowed: String,
}

const KEYS: &str = "allowed are bar=0 to 5, rom, config or physical; range=FIRST-LAST; unit=NAME; op=KIND";

impl Filter {
    /// Understands an operator's words, with the units of a chip.
    ///
    /// # Errors
    /// A word is no condition; the error says what is allowed.
    pub fn parse<'a>(
        words: impl IntoIterator<Item = &'a str>,
        set: Option<&RegisterSet>,
    ) -> Result<Self, FilterError> {
        let mut filter = Self::default();
        for word in words {
            let wrong = |allowed: String| FilterError { word: word.to_owned(), allowed };
            let (key, values) = word.split_once('=').ok_or_else(|| wrong(KEYS.to_owned()))?;
            for value in values.split(',') {
                match key {
                    "bar" => filter.places.push(place(value).ok_or_else(|| wrong(KEYS.to_owned()))?),
                    "range" => {
                        let range = range(value).ok_or_else(|| {
                            wrong("a range is FIRST-LAST, or one offset, in hexadecimal with 0x".to_owned())
                        })?;
                        filter.ranges.push(range);
                    }
                    "unit" => {
                        filter.units = true;
                        filter.registers.extend(unit(value, set).map_err(wrong)?);
                    }
                    "op" => {
                        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == value);
                        let kind = kind.ok_or_else(|| wrong(format!("kinds are {}", kinds())))?;
                        filter.kinds |= 1 << kind as u16;
                    }
                    _ => return Err(wrong(KEYS.to_owned())),
                }
            }
        }
        Ok(filter)
    }

    /// True if an event is wanted.
    pub fn wants(&self, event: &Event) -> bool {
        match event {
            Event::Lost { .. } | Event::Note(_) | Event::Origin(_) => true,
            Event::Access(access) => self.wants_access(access),
            event => self.wants_kind(event.kind()),
        }
    }

    /// True if an access is wanted.
    pub fn wants_access(&self, access: &Access) -> bool {
        let within =
            |ranges: &[RangeInclusive<u64>]| ranges.iter().any(|range| range.contains(&access.offset));
        self.wants_kind(access.kind())
            && (self.places.is_empty() || self.places.contains(&access.place))
            && (self.ranges.is_empty() || within(&self.ranges))
            && (!self.units || (access.place == Place::Region(Region::Bar(0)) && within(&self.registers)))
    }

    /// True if an access to a region may be wanted.
    pub fn wants_region(&self, region: Region) -> bool {
        (self.wants_kind(Kind::Read) || self.wants_kind(Kind::Write))
            && (self.places.is_empty() || self.places.contains(&Place::Region(region)))
            && (!self.units || region == Region::Bar(0))
    }

    /// True if events of a kind may be wanted.
    pub const fn wants_kind(&self, kind: Kind) -> bool {
        self.kinds == 0 || self.kinds & (1 << kind as u16) != 0
    }
}

fn kinds() -> String {
    Kind::ALL.map(Kind::word).join(", ")
}

fn place(value: &str) -> Option<Place> {
    match value {
        "rom" => Some(Place::Region(Region::Rom)),
        "config" => Some(Place::Region(Region::Config)),
        "physical" => Some(Place::Physical),
        number => number.parse().ok().filter(|bar| *bar < 6).map(|bar| Place::Region(Region::Bar(bar))),
    }
}

fn range(value: &str) -> Option<RangeInclusive<u64>> {
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    match value.split_once('-') {
        Some((first, last)) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(first..=last)
        }
        None => number(value).map(|offset| offset..=offset),
    }
}

/// The registers of a unit.
fn unit(name: &str, set: Option<&RegisterSet>) -> Result<Vec<RangeInclusive<u64>>, String> {
    let set = set.ok_or("units are known only where the trace's chip is".to_owned())?;
    let units = set.units();
    let of_unit = units.iter().filter(|(unit, _)| unit.eq_ignore_ascii_case(name));
    let ranges: Vec<_> = of_unit.map(|(_, range)| range.clone()).collect();
    if ranges.is_empty() {
        let names: BTreeSet<_> = units.iter().map(|(unit, _)| *unit).collect();
        let names: Vec<_> = names.into_iter().collect();
        return Err(format!("units of {} are {}", set.chip, names.join(", ")));
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::super::event::{Direction, Origin};
    use super::*;

    fn filter(words: &[&str]) -> Result<Filter, FilterError> {
        Filter::parse(words.iter().copied(), RegisterSet::by_name("GF100"))
    }

    fn write(place: Place, offset: u64) -> Event {
        Event::Access(Access { direction: Direction::Write, place, size: 4, offset, value: 0, took: 0 })
    }

    const BAR0: Place = Place::Region(Region::Bar(0));

    #[test]
    fn all_keys_must_hold_and_one_of_their_values() {
        let filter = filter(&["bar=0,3", "range=0x2000-0x2fff", "op=write,doorbell"]).unwrap();

        assert!(filter.wants(&write(BAR0, 0x2000)) && filter.wants(&write(BAR0, 0x2fff)));
        assert!(filter.wants(&write(Place::Region(Region::Bar(3)), 0x2abc)));
        assert!(!filter.wants(&write(Place::Region(Region::Bar(1)), 0x2abc)));
        assert!(!filter.wants(&write(BAR0, 0x3000)));
        assert!(filter.wants(&Event::Doorbell { channel: 1, gp_put: 2 }));
        assert!(!filter.wants(&Event::Interrupt { vector: 0 }));
    }

    #[test]
    fn losses_and_context_are_never_left_out() {
        let filter = filter(&["op=read"]).unwrap();
        assert!(filter.wants(&Event::Lost { count: 3 }));
        assert!(
            filter.wants(&Event::Note("PCIDEV".into())) && filter.wants(&Event::Origin(Origin::default()))
        );
    }

    #[test]
    fn unit_means_its_registers() {
        let filter = filter(&["unit=PFIFO"]).unwrap();

        assert!(filter.wants(&write(BAR0, 0x2140)));
        assert!(!filter.wants(&write(BAR0, 0x0)));
        assert!(!filter.wants(&write(Place::Region(Region::Bar(1)), 0x2140)));
    }

    #[test]
    fn mistakes_are_told_with_what_is_allowed() {
        let said = |word| filter(&[word]).unwrap_err().to_string();

        assert!(said("op=reed").contains("read, write, reset, doorbell"));
        assert!(said("unit=FIFO").contains("PFIFO"));
        assert!(said("bar=6").contains("bar=0 to 5"));
        assert!(said("range=0x20-0x10").contains("FIRST-LAST"));
        assert!(said("colour=red").contains("allowed are"));
    }
}
