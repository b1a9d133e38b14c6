//! The backing of a disk: a raw image or a block device of the host.

use std::fs::{File, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

/// Bytes of a sector, in which virtio counts whatever the disk's own blocks are.
pub const SECTOR: u64 = SECTOR_BYTES as u64;
pub(super) const SECTOR_BYTES: u16 = 512;

/// Beginnings of images that are not raw, and what they are.
const OTHER_FORMATS: [(&[u8], &str); 4] =
    [(b"QFI\xfb", "qcow2"), (b"KDMV", "VMDK"), (b"vhdxfile", "VHDX"), (b"conectix", "VHD")];

/// Why a disk cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The file cannot be opened, read or measured.
    #[error("Cannot open the disk {}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// It is no raw image.
    #[error("{} is no disk: {why}", path.display())]
    NotRaw {
        /// Path of the file.
        path: PathBuf,
        /// The problem, and the remedy.
        why: String,
    },
    /// Another machine has it.
    #[error(
        "The disk {} is in use by another process that writes, or to which this one's writing would matter; a disk that is only read may be shared: --disk-read-only",
        path.display()
    )]
    InUse {
        /// Path of the file.
        path: PathBuf,
    },
}

/// A disk. It locks its file: other lockers are kept out while it lives, unless all only read.
#[derive(Debug)]
pub struct Disk {
    file: File,
    sectors: u64,
    read_only: bool,
}

impl Disk {
    /// Opens a raw image or a block device.
    ///
    /// # Errors
    /// It is something else, is not a whole number of sectors, or is in use.
    pub fn open(path: &Path, read_only: bool) -> Result<Self, DiskError> {
        let failed = |source| DiskError::File { path: path.to_owned(), source };
        let not_raw = |why: String| DiskError::NotRaw { path: path.to_owned(), why };
        let mut file = File::options().read(true).write(!read_only).open(path).map_err(failed)?;
        let kind = file.metadata().map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(not_raw("it is neither a file nor a block device".to_owned()));
        }
        let locked = if read_only { file.try_lock_shared() } else { file.try_lock() };
        locked.map_err(|error| match error {
            TryLockError::WouldBlock => DiskError::InUse { path: path.to_owned() },
            TryLockError::Error(source) => failed(source),
        })?;
        // A block device's metadata says nothing of its size.
        let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
        if size == 0 || !size.is_multiple_of(SECTOR) {
            return Err(not_raw(format!("it has {size} bytes, and a disk has a multiple of {SECTOR}")));
        }
        let mut beginning = [0; 8];
        file.read_exact_at(&mut beginning, 0).map_err(failed)?;
        if let Some((_, format)) = OTHER_FORMATS.iter().find(|(magic, _)| beginning.starts_with(magic)) {
            return Err(not_raw(format!(
                "it is a {format} image, and only raw ones are taken: qemu-img convert -O raw makes one of it"
            )));
        }
        Ok(Self { file, sectors: size / SECTOR, read_only })
    }

    /// Size in sectors of 512 bytes.
    pub const fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Nothing may be written to it.
    pub const fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Where `bytes` bytes from a sector on begin, if all of them are sectors of the disk.
    pub(super) fn place(&self, sector: u64, bytes: u64) -> Option<u64> {
        let bytes = Some(bytes).filter(|bytes| bytes.is_multiple_of(SECTOR))?;
        let end = sector.checked_add(bytes / SECTOR)?;
        (end <= self.sectors).then_some(sector * SECTOR)
    }

    pub(super) fn read(&self, at: u64, data: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(data, at)
    }

    pub(super) fn write(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(data, at)
    }

    /// The bytes read as zeros from now on. With `free`, the host may have the room for others.
    pub(super) fn clear(&self, at: u64, bytes: u64, free: bool) -> io::Result<()> {
        let how = if free { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        Ok(fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, at, bytes)?)
    }

    /// All that was written is on the host's disk when this returns.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    #[test]
    fn only_whole_sectors_of_the_disk_have_a_place() {
        let file = image(&[0; 4096]);
        let disk = Disk::open(file.path(), false).unwrap();
        assert_eq!((disk.sectors(), disk.is_read_only()), (8, false));
        assert_eq!(
            (disk.place(0, 4096), disk.place(7, 512), disk.place(8, 0)),
            (Some(0), Some(3584), Some(4096))
        );
        for (sector, bytes) in
            [(0, 4608), (8, 512), (0, 511), (u64::MAX, 512), (u64::MAX / 512, 1024), (9, 0)]
        {
            assert_eq!(disk.place(sector, bytes), None, "{bytes} bytes from sector {sector}");
        }
    }

    #[test]
    fn what_is_no_raw_disk_is_refused_with_the_reason() {
        let refused = |path: &Path| Disk::open(path, true).unwrap_err().to_string();
        assert!(refused(image(&[0; 1000]).path()).contains("1000 bytes"));
        assert!(refused(image(&[]).path()).contains("0 bytes"));
        let mut qcow = vec![0; 1024];
        qcow[..4].copy_from_slice(b"QFI\xfb");
        assert!(refused(image(&qcow).path()).contains("qemu-img convert -O raw"));
        assert!(refused(Path::new("/")).contains("neither"));
        assert!(refused(Path::new("/nonexistent/disk")).contains("/nonexistent/disk"));
    }

    #[test]
    fn who_writes_has_a_disk_alone() {
        let file = image(&[0; 512]);
        let readers = [Disk::open(file.path(), true).unwrap(), Disk::open(file.path(), true).unwrap()];
        assert!(matches!(Disk::open(file.path(), false), Err(DiskError::InUse { .. })));
        drop(readers);
        let writer = Disk::open(file.path(), false).unwrap();
        assert!(matches!(Disk::open(file.path(), true), Err(DiskError::InUse { .. })));
        drop(writer);
        Disk::open(file.path(), true).unwrap();
    }
}
