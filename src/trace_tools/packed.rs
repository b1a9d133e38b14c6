//! Output that is compressed as its name says.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use liblzma::write::XzEncoder;

use super::input::create;

/// A file that is compressed as its name says.
pub(super) enum Packed {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
    Xz(XzEncoder<BufWriter<File>>),
}

impl Packed {
    /// Creates the file, which must be none of the inputs.
    pub fn create(path: &Path, inputs: &[PathBuf]) -> anyhow::Result<Self> {
        let file = BufWriter::with_capacity(1 << 18, create(path, inputs)?);
        Ok(match path.extension().and_then(|ending| ending.to_str()) {
            Some("gz") => Self::Gzip(GzEncoder::new(file, Compression::default())),
            Some("xz") => Self::Xz(XzEncoder::new(file, 6)),
            _ => Self::Plain(file),
        })
    }

    /// Completes the file.
    pub fn finish(self) -> std::io::Result<()> {
        match self {
            Self::Plain(file) => file,
            Self::Gzip(file) => file.finish()?,
            Self::Xz(file) => file.finish()?,
        }
        .flush()
    }
}

impl Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Plain(file) => file.write(bytes),
            Self::Gzip(file) => file.write(bytes),
            Self::Xz(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Plain(file) => file.flush(),
            Self::Gzip(file) => file.flush(),
            Self::Xz(file) => file.flush(),
        }
    }
}
