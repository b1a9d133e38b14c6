//! Opens whatever holds a trace: ours or an mmiotrace, plain or compressed by gzip or xz.

use std::io::{BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;
use liblzma::read::XzDecoder;

use super::event::Entry;
use super::formats::mmiotrace::{self, ImportError};
use super::header::{Header, MAGIC};
use super::reader::{Reader, TraceError};

const GZIP: &[u8] = &[0x1f, 0x8b];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];

/// Bytes that are read at a time.
const PIECE: usize = 256 << 10;

/// Why a source cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A trace of ours.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// An mmiotrace.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Its first line is none of an mmiotrace.
    #[error("Not a gpuvmk trace, and no mmiotrace either")]
    Foreign(#[source] ImportError),
    /// The file cannot be read at all.
    #[error("Cannot read it")]
    Read(#[from] std::io::Error),
}

/// A trace that is being read.
pub struct Source {
    reader: Reader<Box<dyn Read>>,
    /// The error at an mmiotrace's end, if there is one.
    damage: Option<ImportError>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Source").field("header", self.reader.header()).finish_non_exhaustive()
    }
}

impl Source {
    /// Finds out what a file is. An mmiotrace is read at once; it takes about a sixth of its size in memory.
    ///
    /// # Errors
    /// It is neither, or reading failed.
    pub fn open(file: impl Read + 'static) -> Result<Self, SourceError> {
        let mut plain = unpacked(Box::new(BufReader::with_capacity(PIECE, file)))?;
        let begin = plain.fill_buf()?;
        // A trace of ours; also an empty file, which its reader refuses.
        if begin.is_empty() || begin.starts_with(&MAGIC) || !begin.iter().take(64).all(is_text) {
            return Ok(Self { reader: Reader::new(Box::new(plain) as Box<dyn Read>)?, damage: None });
        }
        let mut trace = Vec::new();
        let damage = mmiotrace::import(plain, &mut trace).err();
        // Nothing was understood: it is no mmiotrace with damage, but something else.
        if let Some(error @ (ImportError::Invalid { offset: 0, .. } | ImportError::CutOff { offset: 0 })) =
            damage
        {
            return Err(SourceError::Foreign(error));
        }
        let reader = Reader::new(Box::new(std::io::Cursor::new(trace)) as Box<dyn Read>)?;
        Ok(Self { reader, damage })
    }

    /// The trace's head.
    pub const fn header(&self) -> &Header {
        self.reader.header()
    }
}

const fn is_text(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\n' | b'\t')
}

/// The content of a file, decompressed if it is compressed.
fn unpacked(mut file: Box<dyn BufRead>) -> std::io::Result<Box<dyn BufRead>> {
    let begin = file.fill_buf()?;
    Ok(if begin.starts_with(GZIP) {
        Box::new(BufReader::with_capacity(PIECE, MultiGzDecoder::new(file)))
    } else if begin.starts_with(XZ) {
        Box::new(BufReader::with_capacity(PIECE, XzDecoder::new_multi_decoder(file)))
    } else {
        file
    })
}

impl Iterator for Source {
    type Item = Result<Entry, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.next() {
            Some(entry) => Some(entry.map_err(Into::into)),
            None => self.damage.take().map(|damage| Err(damage.into())),
        }
    }
}
