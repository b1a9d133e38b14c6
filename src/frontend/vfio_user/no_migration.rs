//! A disk image with which QEMU refuses to migrate a machine.
//!
//! QEMU's vfio-user client neither moves a device's state nor stops a migration for want of it: a machine
//! would come out of `migrate` or `savevm` with a GPU that knows nothing of it. But QEMU refuses both while
//! it has a block node of a format that it cannot migrate, and its message names the node. So there is an
//! image of such a format, VDI, of one empty megabyte, for a node that is attached to nothing: guests see
//! nothing of it.

use std::fs::{self, File, Permissions};
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Bytes of the head, and of the map of the image's only block behind it, which begins a sector.
const HEAD: usize = 512;
const MAP: usize = 512;

/// The image's size, and that of a block.
const BLOCK: u32 = 1 << 20;

/// The image: the head of VirtualBox's format, version 1.1, and one block that is not there.
pub fn image() -> [u8; HEAD + MAP] {
    let mut image = [0; HEAD + MAP];
    let mut put = |offset: usize, bytes: &[u8]| {
        if let Some(place) = image.get_mut(offset..offset.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, b"<<< gpuvmk: this machine's GPU cannot migrate >>>\n");
    let (head, data) = (512_u32, 1024_u32);
    for (offset, word) in [
        // Signature, version, bytes of the head behind these, a dynamic image.
        (0x40, 0xbeda_107f),
        (0x44, 0x0001_0001),
        (0x48, 0x180),
        (0x4c, 1),
        // Where the map and the data begin, and bytes of a sector.
        (0x154, head),
        (0x158, data),
        (0x168, 512),
        // The disk's size, of a block, and the number of blocks.
        (0x170, BLOCK),
        (0x178, BLOCK),
        (0x180, 1),
        // The block is not there.
        (HEAD, u32::MAX),
    ] {
        put(offset, &word.to_le_bytes());
    }
    // An image has a number, and this one is no snapshot of another.
    put(0x188, b"gpuvmk-nomigrate");
    image
}

/// The image as a file beside a socket; it is removed when this goes.
#[derive(Debug)]
pub struct NoMigration {
    path: PathBuf,
    /// Device and inode: what is removed must be what was made.
    identity: (u64, u64),
}

impl NoMigration {
    /// Where it is for a socket at this path: `vm1.no-migration` for `vm1.sock`.
    pub fn path(socket: &Path) -> PathBuf {
        socket.with_extension("no-migration")
    }

    /// Writes it for QEMU to read, whatever user that is. One that is there already, as a process leaves it
    /// that was killed, is taken over.
    ///
    /// # Errors
    /// Something else is there, or the file cannot be written.
    pub fn beside(socket: &Path) -> Result<Self> {
        let path = Self::path(socket);
        let image = image();
        match File::options().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(&image)?;
                file.set_permissions(Permissions::from_mode(0o644))?;
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let facts = fs::symlink_metadata(&path)?;
                let same = facts.is_file() && facts.len() == image.len() as u64 && fs::read(&path)? == image;
                if !same {
                    return Err(Error::new(ErrorKind::AlreadyExists, "something else is there"));
                }
            }
            Err(error) => return Err(error),
        }
        let facts = fs::symlink_metadata(&path)?;
        Ok(Self { identity: (facts.dev(), facts.ino()), path })
    }
}

impl Drop for NoMigration {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|facts| (facts.dev(), facts.ino()) == self.identity);
        if ours && let Err(error) = fs::remove_file(&self.path) {
            log::debug!("{} stays behind: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_comes_and_goes_and_what_a_killed_process_left_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("vm1.sock");
        let path = folder.path().join("vm1.no-migration");
        let first = NoMigration::beside(&socket).unwrap();
        assert_eq!(fs::read(&path).unwrap(), image());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o644);
        std::mem::forget(first);

        drop(NoMigration::beside(&socket).unwrap());

        assert!(!path.exists());
    }

    #[test]
    fn what_others_have_there_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("vm1.sock");
        let path = folder.path().join("vm1.no-migration");
        fs::write(&path, "mine").unwrap();
        assert!(NoMigration::beside(&socket).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
        fs::remove_file(&path).unwrap();
        fs::write(folder.path().join("elsewhere"), image()).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(NoMigration::beside(&socket).is_err(), "links are not followed");
    }
}
