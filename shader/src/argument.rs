//! Arguments of kernels, as words on the command line.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context as _, Result};

/// What a kernel is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A value, as its bytes.
    Value(Vec<u8>),
    /// A buffer: the kernel is given its address.
    Buffer {
        /// What it holds at first.
        source: Source,
        /// The file that it is written to afterwards.
        to: Option<PathBuf>,
    },
}

/// What a buffer holds at first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file's bytes.
    File(PathBuf),
    /// So many zeros.
    Zeros(usize),
    /// So many bytes that nobody has written.
    New(usize),
}

/// Most bytes of a buffer.
const MOST: usize = 1 << 30;

fn value<T: FromStr, const N: usize>(text: &str, bytes: impl Fn(T) -> [u8; N]) -> Option<Argument> {
    Some(Argument::Value(bytes(text.parse().ok()?).to_vec()))
}

fn size(text: &str) -> Option<usize> {
    let size = match text.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    (size <= MOST).then_some(size)
}

fn source(kind: &str, text: &str) -> Option<Source> {
    Some(match kind {
        "file" if !text.is_empty() => Source::File(text.into()),
        "zero" => Source::Zeros(size(text)?),
        "new" => Source::New(size(text)?),
        _ => return None,
    })
}

impl FromStr for Argument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let found = match kind {
            "u32" => value(rest, u32::to_le_bytes),
            "i32" => value(rest, i32::to_le_bytes),
            "u64" => value(rest, u64::to_le_bytes),
            "i64" => value(rest, i64::to_le_bytes),
            "f32" => value(rest, f32::to_le_bytes),
            "f64" => value(rest, f64::to_le_bytes),
            _ => {
                let (rest, to) = match rest.split_once('>') {
                    Some((rest, to)) => (rest, Some(PathBuf::from(to))),
                    None => (rest, None),
                };
                source(kind, rest).map(|source| Self::Buffer { source, to })
            }
        };
        found.ok_or_else(|| {
            format!(
                "{text:?} is neither a value (u32:5, i32:-1, u64:7, i64:-7, f32:0.5, f64:0.5) nor a buffer \
                 (file:PATH, zero:BYTES or new:BYTES, of 1 GiB at most, with >PATH for where it is written to)"
            )
        })
    }
}

impl Source {
    /// The buffer's bytes, and whether they are values that may be read.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(&self) -> Result<(Vec<u8>, bool)> {
        Ok(match self {
            Self::File(path) => {
                (fs::read(path).with_context(|| format!("Cannot read {}", path.display()))?, true)
            }
            Self::Zeros(size) => (vec![0; *size], true),
            Self::New(size) => (vec![0; *size], false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_buffers() {
        let read = |text: &str| text.parse::<Argument>();
        assert_eq!(read("u32:5"), Ok(Argument::Value(vec![5, 0, 0, 0])));
        assert_eq!(read("i64:-1"), Ok(Argument::Value(vec![0xff; 8])));
        assert_eq!(read("f32:1"), Ok(Argument::Value(vec![0, 0, 0x80, 0x3f])));
        let buffer = |source, to: Option<&str>| Ok(Argument::Buffer { source, to: to.map(PathBuf::from) });
        assert_eq!(read("zero:0x10>out"), buffer(Source::Zeros(16), Some("out")));
        assert_eq!(read("new:8"), buffer(Source::New(8), None));
        assert_eq!(read("file:a.bin"), buffer(Source::File("a.bin".into()), None));
        for wrong in ["u32:-1", "u32", "zero:", "zero:99999999999", "file:", "5", "f32:x"] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("neither a value"), "{error}");
        }
    }
}
