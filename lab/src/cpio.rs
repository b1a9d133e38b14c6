//! Writes and reads `newc` cpio archives, the format of an initramfs.
//!
//! Each member is a header of hexadecimal fields, a name and the contents, padded to four bytes; a member
//! named `TRAILER!!!` ends the archive. Owner, times and link counts do not matter to a kernel that unpacks
//! it as root, and stay fixed so that equal contents give an equal archive.

mod reader;

use std::io::{Result, Write};

pub use reader::{Member, Reader};

const FILE: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
/// The bits of a mode that say what a member is.
const KIND: u32 = 0o170_000;

const MAGIC: &[u8] = b"070701";
const TRAILER: &str = "TRAILER!!!";
/// Bytes of a header: the magic, and 13 fields of eight digits.
const HEADER: usize = 6 + 13 * 8;

/// An archive that is being written.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    next_inode: u32,
}

impl<W: Write> Writer<W> {
    /// Starts an archive.
    pub fn new(out: W) -> Self {
        Self { out, next_inode: 1 }
    }

    /// Adds a folder; its parents must have been added before.
    pub fn folder(&mut self, name: &str) -> Result<()> {
        self.member(name, FOLDER | 0o755, (0, 0), &[])
    }

    /// Adds a file that can be executed by all.
    pub fn program(&mut self, name: &str, contents: &[u8]) -> Result<()> {
        self.member(name, FILE | 0o755, (0, 0), contents)
    }

    /// Adds a file.
    pub fn file(&mut self, name: &str, contents: &[u8]) -> Result<()> {
        self.member(name, FILE | 0o644, (0, 0), contents)
    }

    /// Adds a character device.
    pub fn character_device(&mut self, name: &str, major: u32, minor: u32) -> Result<()> {
        self.member(name, CHARACTER_DEVICE | 0o600, (major, minor), &[])
    }

    /// Ends the archive and hands the output back.
    pub fn finish(mut self) -> Result<W> {
        self.next_inode = 0;
        self.member(TRAILER, 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn member(&mut self, name: &str, mode: u32, device: (u32, u32), contents: &[u8]) -> Result<()> {
        let too_long = |_| std::io::Error::other(format!("'{name}' is too large for a newc archive"));
        let size = u32::try_from(contents.len()).map_err(too_long)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
        let fields = [self.next_inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.next_inode += 1;
        self.out.write_all(MAGIC)?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(HEADER + name.len() + 1)?;
        self.out.write_all(contents)?;
        self.pad(contents.len())
    }

    fn pad(&mut self, written: usize) -> Result<()> {
        self.out.write_all(&[0; 3][..written.next_multiple_of(4) - written])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_has_its_header_name_and_padded_contents() {
        let mut writer = Writer::new(Vec::new());
        writer.file("init", b"hello").unwrap();
        let archive = writer.finish().unwrap();
        assert_eq!(&archive[..6], b"070701");
        assert_eq!(&archive[14..22], b"000081a4", "mode");
        assert_eq!(&archive[54..62], b"00000005", "size");
        assert_eq!(&archive[94..102], b"00000005", "size of the name with its zero");
        assert_eq!(&archive[110..116], b"init\0\0");
        assert_eq!(&archive[116..124], b"hello\0\0\0");
    }

    #[test]
    fn archive_ends_with_the_trailer_and_is_a_multiple_of_four() {
        let mut writer = Writer::new(Vec::new());
        writer.folder("bin").unwrap();
        writer.character_device("dev/console", 5, 1).unwrap();
        let archive = writer.finish().unwrap();
        assert_eq!(archive.len() % 4, 0);
        assert!(archive.windows(11).any(|window| window == b"TRAILER!!!\0"));
    }
}
