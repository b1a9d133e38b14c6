//! Reads `newc` cpio archives, member by member.

use std::io::{Error, ErrorKind, Read, Result, Write, copy};

use super::{FILE, FOLDER, HEADER, KIND, MAGIC, TRAILER};

/// The longest name that is taken.
const LONGEST_NAME: u32 = 4096;

/// What an archive says of a member before its contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its kind and permissions, as in `st_mode`.
    pub mode: u32,
}

impl Member {
    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.mode & KIND == FOLDER
    }

    /// Whether it is a file.
    pub fn is_file(&self) -> bool {
        self.mode & KIND == FILE
    }
}

/// An archive that is being read.
#[derive(Debug)]
pub struct Reader<R: Read> {
    input: R,
    /// Bytes of the last member's contents that were not taken, and the padding behind them.
    left: u64,
    padding: u64,
}

impl<R: Read> Reader<R> {
    /// Reads an archive from its beginning.
    pub fn new(input: R) -> Self {
        Self { input, left: 0, padding: 0 }
    }

    /// The next member; `None` at the archive's end. Contents that were not copied are passed over.
    #[allow(clippy::should_implement_trait, reason = "an iterator's items would have to hold their contents")]
    pub fn next(&mut self) -> Result<Option<Member>> {
        skip(&mut self.input, self.left + self.padding)?;
        let mut header = [0; HEADER];
        self.input.read_exact(&mut header)?;
        let (magic, fields) = header.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(bad("a member does not begin as one"));
        }
        let field = |index: usize| -> Result<u32> {
            let text = fields.get(index * 8..index * 8 + 8).and_then(|text| str::from_utf8(text).ok());
            text.and_then(|text| u32::from_str_radix(text, 16).ok()).ok_or_else(|| bad("a number is none"))
        };
        let (mode, size, name_size) = (field(1)?, field(6)?, field(11)?);
        if !(1..=LONGEST_NAME).contains(&name_size) {
            return Err(bad("a name is too long"));
        }
        let mut name = vec![0; name_size as usize];
        self.input.read_exact(&mut name)?;
        skip(&mut self.input, padding(HEADER as u64 + u64::from(name_size)))?;
        // The zero at its end.
        name.pop();
        let name = String::from_utf8(name).map_err(|_| bad("a name is no text"))?;
        (self.left, self.padding) = (size.into(), padding(size.into()));
        Ok((name != TRAILER).then_some(Member { name, mode }))
    }

    /// Copies the contents of the member that [`Reader::next`] returned last.
    pub fn copy_contents(&mut self, out: &mut impl Write) -> Result<()> {
        let size = std::mem::take(&mut self.left);
        let copied = copy(&mut self.input.by_ref().take(size), out)?;
        if copied == size { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }
}

fn skip(input: &mut impl Read, count: u64) -> Result<()> {
    let skipped = copy(&mut input.take(count), &mut std::io::sink())?;
    if skipped == count { Ok(()) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

fn padding(written: u64) -> u64 {
    written.next_multiple_of(4) - written
}

fn bad(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("this is no newc archive: {why}"))
}

#[cfg(test)]
mod tests {
    use super::super::Writer;
    use super::*;

    #[test]
    fn members_are_read_as_they_were_written() {
        let mut writer = Writer::new(Vec::new());
        writer.folder("bin").unwrap();
        writer.program("bin/tool", b"12345").unwrap();
        writer.file("skipped", b"abc").unwrap();
        writer.file("last", b"").unwrap();
        let archive = writer.finish().unwrap();

        let mut reader = Reader::new(archive.as_slice());
        let folder = reader.next().unwrap().unwrap();
        let tool = reader.next().unwrap().unwrap();
        let mut contents = Vec::new();
        reader.copy_contents(&mut contents).unwrap();
        let others: Vec<String> =
            std::iter::from_fn(|| reader.next().unwrap()).map(|member| member.name).collect();

        assert!(folder.is_folder() && folder.name == "bin");
        assert!(tool.is_file() && tool.mode & 0o111 == 0o111);
        assert_eq!(contents, b"12345");
        assert_eq!(others, ["skipped", "last"]);
    }

    #[test]
    fn other_bytes_and_cut_archives_are_errors() {
        assert_eq!(Reader::new([b'x'; 200].as_slice()).next().unwrap_err().kind(), ErrorKind::InvalidData);
        let mut writer = Writer::new(Vec::new());
        writer.file("file", &[1; 100]).unwrap();
        let archive = writer.finish().unwrap();
        let mut reader = Reader::new(&archive[..150]);
        reader.next().unwrap();
        assert_eq!(reader.next().unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
