//! Reads a trace entry by entry; damage is named with its place, and what comes before it is kept.

use std::io::{ErrorKind, Read};

use super::block::{BLOCK_HEAD, BlockHead};
use super::codec::{CodecError, Decoder};
use super::event::Entry;
use super::header::{Header, MAGIC, MOST_HEAD};

/// Why a trace cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file is no trace.
    #[error("Not a gpuvmk trace: it begins with {0:02x?}")]
    Magic(Vec<u8>),
    /// The head makes no sense.
    #[error("Invalid head of the trace: {0}")]
    Head(String),
    /// A block or an entry makes no sense.
    #[error("Invalid trace at byte {offset}: {what}")]
    Invalid {
        /// Where in the file.
        offset: u64,
        /// The mistake.
        what: &'static str,
    },
    /// The file ends inside a block; every whole entry before that was read.
    #[error("The trace is cut off at byte {offset}")]
    CutOff {
        /// Where the last whole entry ends.
        offset: u64,
    },
    /// Reading failed.
    #[error("Cannot read the trace")]
    Io(#[from] std::io::Error),
}

/// Reads a trace.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    header: Header,
    /// Where in the file the present block's entries begin.
    offset: u64,
    block: Vec<u8>,
    decoder: Decoder,
    /// Entries that the block should still have.
    left: u32,
    /// The file ends inside the block.
    cut: bool,
    ended: bool,
}

impl<R: Read> Reader<R> {
    /// Checks the head.
    ///
    /// # Errors
    /// It is no trace, or reading failed.
    pub fn new(mut source: R) -> Result<Self, TraceError> {
        let mut magic = [0; MAGIC.len()];
        let filled = fill(&mut source, &mut magic)?;
        if magic != MAGIC {
            return Err(TraceError::Magic(magic.into_iter().take(filled).collect()));
        }
        let mut length = [0; 4];
        let filled = fill(&mut source, &mut length)?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if filled < 4 || length > MOST_HEAD {
            return Err(TraceError::Head("its length is missing, or is too large".to_owned()));
        }
        let mut json = vec![0; length];
        if fill(&mut source, &mut json)? < length {
            return Err(TraceError::Head("it is cut off".to_owned()));
        }
        let header = serde_json::from_slice(&json).map_err(|error| TraceError::Head(error.to_string()))?;
        let offset = (MAGIC.len() + 4 + length) as u64;
        let decoder = Decoder::new(0);
        Ok(Self { source, header, offset, block: Vec::new(), decoder, left: 0, cut: false, ended: false })
    }

    /// The trace's head.
    pub const fn header(&self) -> &Header {
        &self.header
    }
}

impl<R: Read> Reader<R> {
    /// The next entry; `None` at the end of the file.
    fn entry(&mut self) -> Result<Option<Entry>, TraceError> {
        loop {
            let place = |at: usize| self.offset.saturating_add(at as u64);
            match self.decoder.next(&self.block) {
                Ok(Some(entry)) if self.left > 0 => {
                    self.left -= 1;
                    return Ok(Some(entry));
                }
                Ok(Some(_)) => return Err(invalid(place(0), "more entries than their block says")),
                Ok(None) | Err(CodecError::CutOff) if self.cut => {
                    return Err(TraceError::CutOff { offset: place(self.decoder.at()) });
                }
                Ok(None) if self.left > 0 => {
                    return Err(invalid(place(0), "fewer entries than their block says"));
                }
                Ok(None) => {}
                Err(CodecError::CutOff) => {
                    return Err(invalid(place(self.decoder.at()), "an entry that leaves its block"));
                }
                Err(CodecError::Invalid(what)) => return Err(invalid(place(self.decoder.at()), what)),
            }
            if !self.open_block()? {
                return Ok(None);
            }
        }
    }

    /// Goes on to the next block. False at the end of the file.
    fn open_block(&mut self) -> Result<bool, TraceError> {
        let begin = self.offset.saturating_add(self.block.len() as u64);
        let mut head = [0; BLOCK_HEAD];
        let filled = fill(&mut self.source, &mut head)?;
        if filled == 0 {
            return Ok(false);
        }
        if filled < BLOCK_HEAD {
            return Err(TraceError::CutOff { offset: begin });
        }
        let head =
            BlockHead::decode(&head).ok_or_else(|| invalid(begin, "no block where one should begin"))?;
        // No more than the largest block: its head was checked.
        self.block.resize(usize::try_from(head.length).unwrap_or(0), 0);
        let filled = fill(&mut self.source, &mut self.block)?;
        self.cut = filled < self.block.len();
        self.block.truncate(filled);
        if !self.cut && head.expected(&self.block) != head.checksum {
            return Err(invalid(begin, "a block whose checksum is wrong"));
        }
        self.offset = begin.saturating_add(BLOCK_HEAD as u64);
        self.decoder = Decoder::new(head.base);
        self.left = head.entries;
        Ok(true)
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Entry, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let entry = self.entry().transpose();
        self.ended = !matches!(entry, Some(Ok(_)));
        entry
    }
}

const fn invalid(offset: u64, what: &'static str) -> TraceError {
    TraceError::Invalid { offset, what }
}

/// Reads until `bytes` is full or the source ends; returns the number of bytes.
fn fill(source: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::super::block::Block;
    use super::super::event::{Access, Direction, Event, Place};
    use super::*;
    use gpuvmk_pci::Region;

    fn write(i: u64) -> Entry {
        let access = Access {
            direction: Direction::Write,
            place: Place::Region(Region::Bar(0)),
            size: 4,
            offset: 0x1000 + 4 * i,
            value: i * i,
            took: 300,
        };
        Entry { nanos: 1_000_000 + 700 * i, event: Event::Access(access) }
    }

    /// A file with blocks of so many entries each.
    fn file(blocks: &[u64]) -> (Vec<u8>, Vec<Entry>) {
        let header = Header { source: "vm1".to_owned(), program: "test".to_owned(), ..Header::default() };
        let (mut bytes, mut entries) = (header.encode().unwrap(), Vec::new());
        let mut block = Block::default();
        for count in blocks {
            block.clear();
            for _ in 0..*count {
                let entry = write(entries.len() as u64);
                block.push(&entry);
                entries.push(entry);
            }
            bytes.extend_from_slice(block.finish());
        }
        (bytes, entries)
    }

    fn read(bytes: &[u8]) -> (Vec<Entry>, Option<TraceError>) {
        let (mut entries, mut error) = (Vec::new(), None);
        for entry in Reader::new(bytes).unwrap() {
            match entry {
                Ok(entry) => entries.push(entry),
                Err(found) => error = Some(found),
            }
        }
        (entries, error)
    }

    #[test]
    fn blocks_read_back() {
        let (bytes, entries) = file(&[3, 1, 500]);

        assert_eq!(Reader::new(bytes.as_slice()).unwrap().header().source, "vm1");
        let (found, error) = read(&bytes);
        assert_eq!((found, error.is_none()), (entries, true));
    }

    #[test]
    fn cut_anywhere_keeps_every_whole_entry_before_and_names_the_place() {
        let (bytes, entries) = file(&[3, 4]);
        let head = Header { source: "vm1".to_owned(), program: "test".to_owned(), ..Header::default() };
        let head = head.encode().unwrap().len();
        let mut kept = 0;
        for cut in head + 1..bytes.len() {
            let (found, error) = read(&bytes[..cut]);

            assert_eq!(found, entries[..found.len()]);
            assert!(found.len() >= kept, "less from more bytes");
            kept = found.len();
            match error {
                Some(TraceError::CutOff { offset }) => assert!(offset <= cut as u64),
                None => assert_eq!(found.len(), 3, "only between blocks a cut does not show"),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(kept, entries.len() - 1);
    }

    #[test]
    fn damaged_block_is_named_and_the_blocks_before_are_kept() {
        let (bytes, entries) = file(&[3, 4]);
        let (first, _) = file(&[3]);
        for at in first.len()..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            let (found, error) = read(&damaged);

            assert_eq!(found[..3], entries[..3], "at {at}");
            let offset = match error {
                Some(TraceError::Invalid { offset, .. } | TraceError::CutOff { offset }) => offset,
                other => panic!("at {at}: {other:?}"),
            };
            assert!(offset >= first.len() as u64);
        }
    }

    #[test]
    fn foreign_and_cut_heads_are_refused() {
        assert!(matches!(Reader::new(&b"not a trace at all"[..]), Err(TraceError::Magic(_))));
        assert!(matches!(Reader::new(&b""[..]), Err(TraceError::Magic(_))));
        let (bytes, _) = file(&[]);
        assert!(matches!(Reader::new(&bytes[..bytes.len() - 1]), Err(TraceError::Head(_))));
        let long = [&MAGIC[..], &u32::MAX.to_le_bytes()].concat();
        assert!(matches!(Reader::new(long.as_slice()), Err(TraceError::Head(_))));
    }
}
