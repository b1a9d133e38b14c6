//! Follows a text file that another process writes, line by line.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A file and how far it was read.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    read: u64,
    /// The beginning of a line whose end is not there yet.
    rest: Vec<u8>,
}

impl Tail {
    /// Follows the file at `path` from its beginning.
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), read: 0, rest: Vec::new() }
    }

    /// The lines that were finished since the last call.
    pub fn lines(&mut self) -> Result<Vec<String>> {
        let mut file =
            File::open(&self.path).with_context(|| format!("Cannot open {}", self.path.display()))?;
        file.seek(SeekFrom::Start(self.read))
            .with_context(|| format!("Cannot seek {}", self.path.display()))?;
        let before = self.rest.len();
        file.read_to_end(&mut self.rest).with_context(|| format!("Cannot read {}", self.path.display()))?;
        self.read += (self.rest.len() - before) as u64;
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else { return Ok(Vec::new()) };
        let finished: Vec<u8> = self.rest.drain(..=end).collect();
        Ok(String::from_utf8_lossy(&finished)
            .lines()
            .map(|line| line.trim_end_matches('\r').to_owned())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn unfinished_line_comes_once_it_is_finished() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut tail = Tail::of(file.path());
        file.write_all(b"one\r\ntw").unwrap();
        assert_eq!(tail.lines().unwrap(), ["one"]);
        assert_eq!(tail.lines().unwrap(), Vec::<String>::new());
        file.write_all(b"o\nthree\n").unwrap();
        assert_eq!(tail.lines().unwrap(), ["two", "three"]);
    }

    #[test]
    fn bytes_that_are_no_text_do_not_stop_the_tail() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut tail = Tail::of(file.path());
        file.write_all(b"\xff\xfe bad\ngood\n").unwrap();
        assert_eq!(tail.lines().unwrap().len(), 2);
    }
}
