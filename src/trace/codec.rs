//! Entries as bytes: what an entry has in common with those before it in its block is left out.
//!
//! | part | form |
//! | --- | --- |
//! | tag | kind in bits 0 to 3; of accesses the size less one in bits 4 to 6, and bit 7 if the place is that of the access before |
//! | time | since the entry before, as a varint (LEB128) |
//! | place | of accesses, unless bit 7 says so: a byte, VFIO's region index, or 15 for physical addresses |
//! | offset | of accesses: the distance from the end of the last access to that place, signed (zigzag), as a varint |
//! | value, took | of accesses: varints |
//! | rest | the event's numbers as varints, strings with their length before them |
//!
//! A block's first entry has everything before it zero, so blocks can be read without each other.

use super::event::{Access, ChannelChange, Direction, Entry, Event, Kind, Origin, Place};
use gpuvmk_pci::Region;

/// The longest string of an entry; what is longer is cut when written.
pub const MOST_TEXT: usize = 1024;

/// More bytes than any entry has.
pub const MOST_ENTRY: usize = 64 + 2 * MOST_TEXT;

const PHYSICAL: u8 = 15;
const PLACES: usize = 9;

/// What entries refer to: the one before.
#[derive(Clone, Debug)]
struct Past {
    nanos: u64,
    place: u8,
    /// Behind the last access, for each place.
    ends: [u64; PLACES],
}

impl Past {
    const fn at(nanos: u64) -> Self {
        Self { nanos, place: 0, ends: [0; PLACES] }
    }

    fn end(&mut self, place: u8) -> &mut u64 {
        // Physical addresses come behind the eight regions.
        let [ends @ .., physical] = &mut self.ends;
        ends.get_mut(usize::from(place)).unwrap_or(physical)
    }
}

/// Turns entries into bytes.
#[derive(Clone, Debug)]
pub struct Encoder {
    past: Past,
}

impl Encoder {
    /// For a block that begins at a time.
    pub const fn new(nanos: u64) -> Self {
        Self { past: Past::at(nanos) }
    }

    /// Adds an entry.
    pub fn push(&mut self, entry: &Entry, to: &mut Vec<u8>) {
        match &entry.event {
            Event::Access(access) => self.access(entry.nanos, access, to),
            event => {
                to.push(event.kind() as u8);
                self.time(entry.nanos, to);
                rest(event, to);
            }
        }
    }

    /// Adds an access: the one kind that must be fast.
    pub fn access(&mut self, nanos: u64, access: &Access, to: &mut Vec<u8>) {
        let place = number(access.place);
        let same = place == self.past.place;
        to.push(access.kind() as u8 | (access.size.saturating_sub(1) & 7) << 4 | u8::from(same) << 7);
        self.time(nanos, to);
        if !same {
            self.past.place = place;
            to.push(place);
        }
        let end = self.past.end(place);
        varint(zigzag(access.offset.wrapping_sub(*end)), to);
        *end = access.offset.wrapping_add(access.size.into());
        numbers(&[access.value, access.took], to);
    }

    fn time(&mut self, nanos: u64, to: &mut Vec<u8>) {
        varint(nanos.wrapping_sub(self.past.nanos), to);
        self.past.nanos = nanos;
    }
}

/// Encodes the part after the time of an entry that is no access.
fn rest(event: &Event, to: &mut Vec<u8>) {
    match event {
        Event::Access(_) | Event::Reset => {}
        Event::Doorbell { channel, gp_put } => numbers(&[(*channel).into(), (*gp_put).into()], to),
        Event::Flush { directory } => varint(*directory, to),
        Event::Shadow { space, mapped, unmapped } => {
            numbers(&[(*space).into(), (*mapped).into(), (*unmapped).into()], to);
        }
        Event::Channel { channel, change } => {
            let change = ChannelChange::ALL.iter().position(|known| known == change).unwrap_or_default();
            numbers(&[(*channel).into(), change as u64], to);
        }
        Event::Interrupt { vector } => varint((*vector).into(), to),
        Event::Switch { engine, to: whom } => {
            text(engine, to);
            text(whom, to);
        }
        Event::Depth { engine, vm, entries } => {
            text(engine, to);
            text(vm, to);
            varint(*entries, to);
        }
        Event::Refusal { reason, place } => {
            text(reason, to);
            varint(*place, to);
        }
        Event::Lost { count } => varint(*count, to),
        Event::Note(note) => text(note, to),
        Event::Origin(origin) => {
            numbers(&[zigzag(origin.map.cast_unsigned()), origin.pc, zigzag(origin.pid.cast_unsigned())], to);
        }
    }
}

const fn number(place: Place) -> u8 {
    match place {
        Place::Region(Region::Bar(bar)) => bar,
        Place::Region(Region::Rom) => 6,
        Place::Region(Region::Config) => 7,
        Place::Physical => PHYSICAL,
    }
}

fn numbers(numbers: &[u64], to: &mut Vec<u8>) {
    for number in numbers {
        varint(*number, to);
    }
}

fn varint(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    to.push((value & 0x7f) as u8);
}

/// A signed distance with its sign in bit 0.
const fn zigzag(distance: u64) -> u64 {
    (distance << 1) ^ (distance.cast_signed() >> 63).cast_unsigned()
}

const fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ (coded & 1).wrapping_neg()
}

fn text(text: &str, to: &mut Vec<u8>) {
    // A character has four bytes at most.
    let text = (0..4).find_map(|less| text.get(..text.len().min(MOST_TEXT - less))).unwrap_or_default();
    varint(text.len() as u64, to);
    to.extend_from_slice(text.as_bytes());
}

/// Why bytes are no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes end inside the entry.
    #[error("the entry is cut off")]
    CutOff,
    /// It makes no sense.
    #[error("{0}")]
    Invalid(&'static str),
}

/// Reads entries out of a block.
#[derive(Clone, Debug)]
pub struct Decoder {
    at: usize,
    past: Past,
}

impl Decoder {
    /// Reads a block that begins at a time.
    pub const fn new(nanos: u64) -> Self {
        Self { at: 0, past: Past::at(nanos) }
    }

    /// Bytes read so far, in whole entries.
    pub const fn at(&self) -> usize {
        self.at
    }

    /// The next entry of `bytes`, the same block each time; `None` at its end. After an error there is
    /// nothing more.
    ///
    /// # Errors
    /// The bytes end inside an entry, or are none.
    pub fn next(&mut self, bytes: &[u8]) -> Result<Option<Entry>, CodecError> {
        if self.at >= bytes.len() {
            return Ok(None);
        }
        let mut cursor = Cursor { bytes, at: self.at };
        let entry = self.entry(&mut cursor)?;
        self.at = cursor.at;
        Ok(Some(entry))
    }

    fn entry(&mut self, from: &mut Cursor<'_>) -> Result<Entry, CodecError> {
        let tag = from.byte()?;
        let kind = Kind::ALL.get(usize::from(tag & 15)).copied();
        let kind = kind.ok_or(CodecError::Invalid("an entry of unknown kind"))?;
        let nanos = self.past.nanos.wrapping_add(from.varint()?);
        let event = match kind {
            Kind::Read | Kind::Write => Event::Access(self.access(kind, tag, from)?),
            Kind::Reset => Event::Reset,
            Kind::Doorbell => Event::Doorbell { channel: from.short()?, gp_put: from.short()? },
            Kind::Flush => Event::Flush { directory: from.varint()? },
            Kind::Shadow => {
                Event::Shadow { space: from.short()?, mapped: from.short()?, unmapped: from.short()? }
            }
            Kind::Channel => {
                let channel = from.short()?;
                let change = usize::try_from(from.varint()?).ok().and_then(|n| ChannelChange::ALL.get(n));
                let change = *change.ok_or(CodecError::Invalid("an unknown change of a channel"))?;
                Event::Channel { channel, change }
            }
            Kind::Interrupt => Event::Interrupt { vector: from.short()? },
            Kind::Switch => Event::Switch { engine: from.text()?, to: from.text()? },
            Kind::Depth => Event::Depth { engine: from.text()?, vm: from.text()?, entries: from.varint()? },
            Kind::Refusal => Event::Refusal { reason: from.text()?, place: from.varint()? },
            Kind::Lost => Event::Lost { count: from.varint()? },
            Kind::Note => Event::Note(from.text()?),
            Kind::Origin => Event::Origin(Origin {
                map: unzigzag(from.varint()?).cast_signed(),
                pc: from.varint()?,
                pid: unzigzag(from.varint()?).cast_signed(),
            }),
        };
        self.past.nanos = nanos;
        Ok(Entry { nanos, event })
    }

    fn access(&mut self, kind: Kind, tag: u8, from: &mut Cursor<'_>) -> Result<Access, CodecError> {
        let number = if tag & 0x80 != 0 { self.past.place } else { from.byte()? };
        let place = match Region::from_index(number.into()) {
            Some(region) => Place::Region(region),
            None if number == PHYSICAL => Place::Physical,
            None => return Err(CodecError::Invalid("an access to an unknown region")),
        };
        let distance = unzigzag(from.varint()?);
        let (value, took) = (from.varint()?, from.varint()?);
        let size = ((tag >> 4) & 7) + 1;
        self.past.place = number;
        let end = self.past.end(number);
        let offset = end.wrapping_add(distance);
        *end = offset.wrapping_add(size.into());
        let direction = if kind == Kind::Read { Direction::Read } else { Direction::Write };
        Ok(Access { direction, place, size, offset, value, took })
    }
}

/// Bytes and how far they are read.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Result<u8, CodecError> {
        let byte = self.bytes.get(self.at).copied().ok_or(CodecError::CutOff)?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, CodecError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(CodecError::Invalid("a number of more than 64 bits"))
    }

    fn short(&mut self) -> Result<u32, CodecError> {
        u32::try_from(self.varint()?).map_err(|_| CodecError::Invalid("a number of more than 32 bits"))
    }

    fn text(&mut self) -> Result<String, CodecError> {
        let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
        if length > MOST_TEXT {
            return Err(CodecError::Invalid("a text that is too long"));
        }
        let bytes = self.bytes.get(self.at..self.at + length).ok_or(CodecError::CutOff)?;
        self.at += length;
        let text = std::str::from_utf8(bytes).map_err(|_| CodecError::Invalid("a text that is not UTF-8"))?;
        Ok(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn access() -> impl Strategy<Value = Event> {
        let place = prop_oneof![
            (0..8u32).prop_map(|index| Place::Region(Region::from_index(index).unwrap())),
            Just(Place::Physical)
        ];
        (any::<bool>(), place, 1..=8u8, any::<(u64, u64, u64)>()).prop_map(
            |(read, place, size, (offset, value, took))| {
                let direction = if read { Direction::Read } else { Direction::Write };
                Event::Access(Access { direction, place, size, offset, value, took })
            },
        )
    }

    fn event() -> impl Strategy<Value = Event> {
        let word = "[a-z0-9-]{0,20}";
        prop_oneof![
            4 => access(),
            1 => Just(Event::Reset),
            1 => any::<(u32, u32)>().prop_map(|(channel, gp_put)| Event::Doorbell { channel, gp_put }),
            1 => any::<u64>().prop_map(|directory| Event::Flush { directory }),
            1 => any::<(u32, u32, u32)>()
                .prop_map(|(space, mapped, unmapped)| Event::Shadow { space, mapped, unmapped }),
            1 => (any::<u32>(), 0..ChannelChange::ALL.len())
                .prop_map(|(channel, n)| Event::Channel { channel, change: ChannelChange::ALL[n] }),
            1 => any::<u32>().prop_map(|vector| Event::Interrupt { vector }),
            1 => (word, word).prop_map(|(engine, to)| Event::Switch { engine, to }),
            1 => (word, word, any::<u64>()).prop_map(|(engine, vm, entries)| Event::Depth { engine, vm, entries }),
            1 => (word, any::<u64>()).prop_map(|(reason, place)| Event::Refusal { reason, place }),
            1 => any::<u64>().prop_map(|count| Event::Lost { count }),
            1 => ".{0,80}".prop_map(Event::Note),
            1 => any::<(i64, u64, i64)>().prop_map(|(map, pc, pid)| Event::Origin(Origin { map, pc, pid })),
        ]
    }

    fn encode(base: u64, entries: &[Entry]) -> Vec<u8> {
        let (mut encoder, mut bytes) = (Encoder::new(base), Vec::new());
        entries.iter().for_each(|entry| encoder.push(entry, &mut bytes));
        bytes
    }

    fn decode(base: u64, bytes: &[u8]) -> (Vec<Entry>, Option<CodecError>) {
        let (mut decoder, mut entries) = (Decoder::new(base), Vec::new());
        loop {
            match decoder.next(bytes) {
                Ok(Some(entry)) => entries.push(entry),
                Ok(None) => return (entries, None),
                Err(error) => return (entries, Some(error)),
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(
            base in any::<u64>(),
            list in prop::collection::vec((any::<u64>(), event()), 0..40),
        ) {
            let entries: Vec<_> = list.into_iter().map(|(nanos, event)| Entry { nanos, event }).collect();

            let (read, error) = decode(base, &encode(base, &entries));

            prop_assert_eq!(error, None);
            prop_assert_eq!(read, entries);
        }

        #[test]
        fn entries_before_a_cut_are_kept(
            list in prop::collection::vec((any::<u64>(), event()), 1..20),
            cut in any::<prop::sample::Index>(),
        ) {
            let entries: Vec<_> = list.into_iter().map(|(nanos, event)| Entry { nanos, event }).collect();
            let bytes = encode(0, &entries);
            let (read, error) = decode(0, &bytes[..cut.index(bytes.len())]);

            prop_assert!(matches!(error, None | Some(CodecError::CutOff)));
            prop_assert_eq!(&read[..], &entries[..read.len()]);
        }

        #[test]
        fn any_bytes_are_entries_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let (entries, _) = decode(0, &bytes);

            prop_assert!(entries.len() <= bytes.len());
        }
    }

    #[test]
    fn accesses_as_drivers_make_them_are_small() {
        let write = |i: u64| {
            Event::Access(Access {
                direction: Direction::Write,
                place: Place::Region(Region::Bar(0)),
                size: 4,
                offset: 0x70_0000 + 4 * i,
                value: 0x1234_5678,
                took: 3000,
            })
        };
        let entries: Vec<_> = (0..1000).map(|i| Entry { nanos: 20_000 * i, event: write(i) }).collect();

        assert!(encode(0, &entries).len() < 13 * entries.len());
    }
}
