//! Blocks: entries in pieces of a file that can be checked, and read without each other.
//!
//! | bytes | content, little-endian |
//! | --- | --- |
//! | 0..4 | `GVB1` |
//! | 4..8 | bytes of entries |
//! | 8..12 | number of entries |
//! | 12..16 | CRC-32 (IEEE) of bytes 0 to 11, 16 to 23 and the entries |
//! | 16..24 | time that the first entry's time counts from |

use super::codec::{Encoder, MOST_ENTRY};
use super::event::{Access, Entry};

/// First bytes of a block.
pub const BLOCK_MAGIC: [u8; 4] = *b"GVB1";

/// Bytes before the entries.
pub const BLOCK_HEAD: usize = 24;

/// Most bytes of entries that a block has.
pub const MOST_BLOCK: usize = 64 << 10;

/// The bytes before a block's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHead {
    /// Bytes of entries.
    pub length: u32,
    /// Number of entries.
    pub entries: u32,
    /// Checksum of the entries.
    pub checksum: u32,
    /// Time that the first entry's time counts from.
    pub base: u64,
}

impl BlockHead {
    /// Reads it; `None` if it is none, or of no block that was ever written.
    pub fn decode(bytes: &[u8; BLOCK_HEAD]) -> Option<Self> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            u32::from_le_bytes(bytes.unwrap_or_default())
        };
        let head = Self {
            length: word(4),
            entries: word(8),
            checksum: word(12),
            base: u64::from(word(16)) | u64::from(word(20)) << 32,
        };
        let fits = usize::try_from(head.length).is_ok_and(|length| length <= MOST_BLOCK);
        (bytes.starts_with(&BLOCK_MAGIC) && fits).then_some(head)
    }

    /// Encodes the head.
    pub fn encode(self) -> [u8; BLOCK_HEAD] {
        let mut bytes = [0; BLOCK_HEAD];
        let words = [u32::from_le_bytes(BLOCK_MAGIC), self.length, self.entries, self.checksum];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        if let Some(place) = bytes.last_chunk_mut::<8>() {
            *place = self.base.to_le_bytes();
        }
        bytes
    }

    /// The checksum that entries must have under this head.
    pub fn expected(self, entries: &[u8]) -> u32 {
        let bytes = self.encode();
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytes.get(..12).unwrap_or_default());
        hasher.update(bytes.get(16..).unwrap_or_default());
        hasher.update(entries);
        hasher.finalize()
    }
}

/// A block that is being filled.
#[derive(Debug)]
pub struct Block {
    bytes: Vec<u8>,
    encoder: Encoder,
    base: u64,
    entries: u32,
}

impl Default for Block {
    fn default() -> Self {
        Self { bytes: vec![0; BLOCK_HEAD], encoder: Encoder::new(0), base: 0, entries: 0 }
    }
}

impl Block {
    /// Makes it empty, and keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.truncate(BLOCK_HEAD);
        self.entries = 0;
    }

    /// True if nothing is in it.
    pub const fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// True if one more entry might not fit.
    pub fn is_full(&self) -> bool {
        self.bytes.len() + MOST_ENTRY > BLOCK_HEAD + MOST_BLOCK
    }

    /// Adds an entry. The caller sees to it that the block is not full.
    pub fn push(&mut self, entry: &Entry) {
        self.begin(entry.nanos);
        self.encoder.push(entry, &mut self.bytes);
    }

    /// Adds an access. The caller sees to it that the block is not full.
    pub fn access(&mut self, nanos: u64, access: &Access) {
        self.begin(nanos);
        self.encoder.access(nanos, access, &mut self.bytes);
    }

    fn begin(&mut self, nanos: u64) {
        if self.entries == 0 {
            self.base = nanos;
            self.encoder = Encoder::new(nanos);
        }
        self.entries += 1;
    }

    /// The block as it is in a file.
    pub fn finish(&mut self) -> &[u8] {
        let entries = self.bytes.get(BLOCK_HEAD..).unwrap_or_default();
        let length = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let mut head = BlockHead { length, entries: self.entries, checksum: 0, base: self.base };
        head.checksum = head.expected(entries);
        if let Some(place) = self.bytes.first_chunk_mut::<BLOCK_HEAD>() {
            *place = head.encode();
        }
        &self.bytes
    }
}
