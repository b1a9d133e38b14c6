//! The binary log: a header, then records of 24 bytes, little-endian.

use std::io::Read;

use crate::pci::Region;

/// First bytes of a log.
pub const MAGIC: [u8; 8] = *b"GPUVMKT1";

/// Bytes of one record.
pub const RECORD_SIZE: usize = 24;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A register or memory read.
    Read,
    /// A register or memory write.
    Write,
    /// Function reset.
    Reset,
    /// Records that did not fit the queue: the value is their number.
    Lost,
}

/// One entry of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds since the trace began.
    pub nanos: u64,
    /// What happened.
    pub operation: Operation,
    /// Where (`None` for entries that are no access).
    pub region: Option<Region>,
    /// Bytes of the access: 1, 2, 4 or 8.
    pub size: u8,
    /// Offset in the region; bits above 40 are not kept.
    pub offset: u64,
    /// Value read or written.
    pub value: u64,
}

/// Why a log cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file is no trace.
    #[error("Not a gpuvmk trace: it begins with {0:02x?}")]
    Magic([u8; 8]),
    /// A record makes no sense.
    #[error("Invalid record at byte {offset}: {what}")]
    Invalid {
        /// Where in the file.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The file ends inside a record; everything before it was read.
    #[error("The trace is cut off at byte {offset}")]
    CutOff {
        /// Where the incomplete record begins.
        offset: u64,
    },
    /// Reading failed.
    #[error("Cannot read the trace")]
    Io(#[from] std::io::Error),
}

const NO_REGION: u8 = 0xff;

impl Record {
    /// The record as bytes: time, value, then offset (40 bits), region, operation and size.
    pub fn encode(&self) -> [u8; RECORD_SIZE] {
        let operation: u8 = match self.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Reset => 2,
            Operation::Lost => 3,
        };
        let region = self.region.and_then(|r| u8::try_from(r.index()).ok()).unwrap_or(NO_REGION);
        let place = self.offset & 0xff_ffff_ffff
            | u64::from(region) << 40
            | u64::from(operation) << 48
            | u64::from(self.size) << 56;
        let mut bytes = [0; RECORD_SIZE];
        let (time, rest) = bytes.split_at_mut(8);
        time.copy_from_slice(&self.nanos.to_le_bytes());
        let (value, position) = rest.split_at_mut(8);
        value.copy_from_slice(&self.value.to_le_bytes());
        position.copy_from_slice(&place.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; RECORD_SIZE]) -> Result<Self, &'static str> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(bytes.get(at..at + 8).unwrap_or(&[0; 8]));
            u64::from_le_bytes(word)
        };
        let place = word(16);
        let operation = match (place >> 48) & 0xff {
            0 => Operation::Read,
            1 => Operation::Write,
            2 => Operation::Reset,
            3 => Operation::Lost,
            _ => return Err("unknown operation"),
        };
        let region = match bytes[21] {
            NO_REGION => None,
            index => Some(Region::from_index(index.into()).ok_or("unknown region")?),
        };
        let size = bytes[23];
        if size > 8 {
            return Err("access wider than 8 bytes");
        }
        Ok(Self { nanos: word(0), value: word(8), operation, region, size, offset: place & 0xff_ffff_ffff })
    }
}

/// Reads a log record by record.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    offset: u64,
}

impl<R: Read> Reader<R> {
    /// Checks the header.
    ///
    /// # Errors
    /// It is no trace, or reading failed.
    pub fn new(mut source: R) -> Result<Self, TraceError> {
        let mut magic = [0; 8];
        let filled = fill(&mut source, &mut magic)?;
        if filled < magic.len() || magic != MAGIC {
            return Err(TraceError::Magic(magic));
        }
        Ok(Self { source, offset: MAGIC.len() as u64 })
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut bytes = [0; RECORD_SIZE];
        let offset = self.offset;
        match fill(&mut self.source, &mut bytes) {
            Err(error) => Some(Err(error.into())),
            Ok(0) => None,
            Ok(RECORD_SIZE) => {
                self.offset += RECORD_SIZE as u64;
                Some(Record::decode(&bytes).map_err(|what| TraceError::Invalid { offset, what }))
            }
            Ok(_) => Some(Err(TraceError::CutOff { offset })),
        }
    }
}

/// Reads until `bytes` is full or the source ends; says how much it got.
fn fill(source: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Record {
        Record {
            nanos: 123_456_789,
            operation: Operation::Write,
            region: Some(Region::Bar(3)),
            size: 8,
            offset: 0x3f_ffff8,
            value: u64::MAX - 5,
        }
    }

    #[test]
    fn encoded_record_reads_back() {
        let mut log = MAGIC.to_vec();
        log.extend(sample().encode());
        let lost = Record { operation: Operation::Lost, region: None, size: 0, ..sample() };
        log.extend(lost.encode());
        let read: Vec<Record> =
            Reader::new(log.as_slice()).expect("a trace").map(|r| r.expect("valid")).collect();
        assert_eq!(read, [sample(), lost]);
    }

    #[test]
    fn cut_off_record_is_named_and_what_precedes_is_kept() {
        let mut log = MAGIC.to_vec();
        log.extend(sample().encode());
        log.extend(&sample().encode()[..10]);
        let read: Vec<_> = Reader::new(log.as_slice()).expect("a trace").collect();
        assert!(matches!(read[0], Ok(record) if record == sample()));
        assert!(matches!(read[1], Err(TraceError::CutOff { offset: 32 })));
        assert_eq!(read.len(), 2);
    }

    #[test]
    fn foreign_file_is_refused() {
        assert!(matches!(Reader::new(&b"not a trace at all"[..]), Err(TraceError::Magic(_))));
        assert!(matches!(Reader::new(&b""[..]), Err(TraceError::Magic(_))));
    }
}
