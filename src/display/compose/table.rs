//! Tables of colours, read from memory.

use super::half::fraction;
use crate::scanout::{Lut, LutEncoding, LutEntries, LutTable, ReadBytes};

/// Bytes before a table's entries.
const HEADER: usize = 0x20;

/// Bytes of an entry.
const ENTRY: usize = 8;

/// A table that was read. All fractions are of 65536.
#[derive(Clone, Debug)]
pub(super) struct Table {
    entries: LutEntries,
    interpolate: bool,
    /// Red, green and blue of each entry, and of one more.
    words: Vec<[u16; 3]>,
}

impl Table {
    /// The table that a head or window has; nothing where colours stay as they are. The flag says whether
    /// one was named that cannot be read.
    pub(super) fn of(lut: Lut, memory: &dyn ReadBytes) -> (Option<Self>, bool) {
        match lut {
            Lut::Identity => (None, false),
            Lut::Table(table) => {
                let read = Self::read(table, memory);
                let missing = read.is_none();
                (read.filter(|table| !table.is_identity()), missing)
            }
        }
    }

    fn read(table: LutTable, memory: &dyn ReadBytes) -> Option<Self> {
        let count = usize::from(table.entries.count()) + 1;
        // 8,232 bytes at most.
        let mut bytes = vec![0; HEADER + count * ENTRY];
        memory.read(table.address, &mut bytes).ok()?;
        let word = |entry: &[u8], at: usize| {
            let word =
                entry.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |two| u16::from_le_bytes(*two));
            match table.encoding {
                LutEncoding::Half => fraction(word),
                LutEncoding::Fraction => word,
            }
        };
        let entries = bytes.get(HEADER..).unwrap_or_default().chunks_exact(ENTRY);
        let words = entries.map(|entry| [0, 2, 4].map(|at| word(entry, at))).collect();
        Some(Self { entries: table.entries, interpolate: table.interpolate, words })
    }

    /// Whether every colour of 10 bits stays what it is. Drivers always name a table, and mostly this one.
    fn is_identity(&self) -> bool {
        let same = |(at, entry): (u16, &[u16; 3])| entry.iter().all(|word| *word == at << 6);
        self.entries == LutEntries::Direct10 && (0..1024).zip(&self.words).all(same)
    }

    /// What becomes of a colour.
    pub(super) fn apply(&self, rgb: [u16; 3]) -> [u16; 3] {
        let mut result = rgb;
        for (channel, value) in result.iter_mut().enumerate() {
            *value = self.word(channel, *value);
        }
        result
    }

    fn word(&self, channel: usize, value: u16) -> u16 {
        let shift = match self.entries {
            LutEntries::Direct8 => 8,
            LutEntries::Direct10 => 6,
        };
        let entry =
            |at: usize| self.words.get(at).and_then(|words| words.get(channel)).copied().unwrap_or(value);
        let at = usize::from(value >> shift);
        let first = entry(at);
        if !self.interpolate {
            return first;
        }
        let (part, whole) = (i64::from(value & ((1 << shift) - 1)), 1 << shift);
        let (from, to) = (i64::from(first), i64::from(entry(at + 1)));
        u16::try_from(from + (to - from) * part / whole).unwrap_or(first)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scanout::{Address, ReadError};

    struct Bytes(Vec<u8>);

    impl ReadBytes for Bytes {
        fn read(&self, address: Address, bytes: &mut [u8]) -> Result<(), ReadError> {
            let from = usize::try_from(address.offset).unwrap();
            let found = self.0.get(from..from + bytes.len());
            bytes.copy_from_slice(found.ok_or(ReadError { address, length: bytes.len() })?);
            Ok(())
        }
    }

    /// A table's bytes, of words for the three colours alike.
    fn bytes(words: impl Iterator<Item = u16>) -> Bytes {
        let mut bytes = vec![0xaa; HEADER];
        for word in words {
            bytes.extend([word, word, word, 0x5555].into_iter().flat_map(u16::to_le_bytes));
        }
        Bytes(bytes)
    }

    fn table(entries: LutEntries, encoding: LutEncoding, interpolate: bool) -> Lut {
        Lut::Table(LutTable { address: Address::default(), entries, encoding, interpolate })
    }

    #[test]
    fn identity_is_no_table() {
        let words = || (0..1024).map(|at| at << 6);
        let memory = bytes(words().chain([1023 << 6]));
        let (found, missing) = Table::of(table(LutEntries::Direct10, LutEncoding::Fraction, true), &memory);
        assert!(found.is_none() && !missing);
        // As half floats: all are exact.
        let half = |at: u16| (0..0x7c00).find(|half| fraction(*half) == at << 6).unwrap();
        let memory = bytes((0..1024).chain([1023]).map(half));
        let (found, missing) = Table::of(table(LutEntries::Direct10, LutEncoding::Half, false), &memory);
        assert!(found.is_none() && !missing);
    }

    #[test]
    fn table_that_cannot_be_read_is_told() {
        let memory = bytes((0..1024).map(|at| at << 6));
        let (found, missing) = Table::of(table(LutEntries::Direct10, LutEncoding::Fraction, true), &memory);
        assert!(found.is_none() && missing);
    }

    #[test]
    fn colours_between_entries_are_interpolated_if_the_table_says_so() {
        let words = || (0..1025_u16).map(|at| 0xffff - (at.min(1023) << 6));
        let one = |interpolate| {
            Table::of(table(LutEntries::Direct10, LutEncoding::Fraction, interpolate), &bytes(words()))
                .0
                .unwrap()
        };
        assert_eq!(one(true).apply([0, 0x40, 0x60]), [0xffff, 0xffbf, 0xff9f]);
        assert_eq!(one(false).apply([0, 0x40, 0x60]), [0xffff, 0xffbf, 0xffbf]);
        // The last entry is interpolated to the one behind it, which says the same.
        assert_eq!(one(true).apply([0xffff; 3]), [0x3f; 3]);
    }

    #[test]
    fn palette_is_indexed_by_bytes() {
        let words = (0..257_u16).map(|at| at << 7);
        let lut = table(LutEntries::Direct8, LutEncoding::Fraction, false);
        let palette = Table::of(lut, &bytes(words)).0.unwrap();
        assert_eq!(palette.apply([0x0100, 0xff00, 0x80ff]), [0x0080, 0x7f80, 0x4000]);
    }
}
