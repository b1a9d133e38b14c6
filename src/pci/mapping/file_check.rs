//! Checks whether a file of another process is memory, and how much of it is allocated.
//!
//! An allow list of what the kernel itself serves: memfd, tmpfs (`/dev/shm`) and hugetlbfs. `F_GET_SEALS` is
//! answered for these alone, and before any file system is asked for anything, so a file whose server or disk
//! does not answer is refused without waiting for it.

use super::error::MapError;
use super::memory_file;
use gpuvmk_chip::addr::PAGE_SIZE;
use rustix::fs::{OFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// Facts about a file that is memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Identity of the file, whatever descriptor names it.
    pub identity: (u64, u64),
    /// Size in bytes.
    pub size: u64,
    /// Granule in which the kernel maps it (2 MiB or more on hugetlbfs).
    pub page: u64,
    /// True when *this descriptor* has the right to write.
    pub writable: bool,
    /// True when the file may become smaller: it is not sealed against that.
    pub may_shrink: bool,
}

/// Checks a file that another process claims to be memory. Never waits for a file system.
///
/// # Errors
/// It is no shared memory.
pub fn check_file(fd: BorrowedFd<'_>) -> Result<FileFacts, MapError> {
    let system = |step| move |errno: Errno| MapError::System { step, source: errno.into() };
    let seals = match rustix::fs::fcntl_get_seals(fd) {
        Ok(seals) => seals,
        Err(Errno::INVAL) => {
            return Err(MapError::Kind(
                "it is no shared memory; use memory-backend-memfd with share=on, or a file on tmpfs (/dev/shm) or hugetlbfs",
            ));
        }
        Err(errno) => return Err(system("Asking whether the file is memory")(errno)),
    };
    let flags = rustix::fs::fcntl_getfl(fd).map_err(system("Asking what the descriptor may do"))?;
    let stat = rustix::fs::fstat(fd).map_err(system("Reading the size of the file"))?;
    let file_system = memory_file::file_system_magic(fd)
        .map_err(|source| MapError::System { step: "Reading the kind of file system", source })?;
    let block = u64::try_from(stat.st_blksize).unwrap_or(PAGE_SIZE);
    Ok(FileFacts {
        identity: (stat.st_dev, stat.st_ino),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        page: if file_system == memory_file::HUGETLBFS_MAGIC { block.max(PAGE_SIZE) } else { PAGE_SIZE },
        writable: flags & OFlags::ACCMODE == OFlags::RDWR,
        may_shrink: !seals.contains(SealFlags::SHRINK),
    })
}

/// A search for the next hole goes over every page of the file behind it, a look at one page costs a call: as
/// many pages as a call costs.
const PAGES_PER_CALL: u64 = 16;

/// Bytes of `[offset, offset + size)` that are not allocated yet: the first access to them is charged for
/// them. Stops counting above `enough`. Takes some 15 ms a GiB, so it must not run on a thread that others
/// wait for.
///
/// Huge pages always count as there: the pool has them reserved.
///
/// # Errors
/// The kernel gives no answer.
pub fn unbacked(fd: BorrowedFd<'_>, offset: u64, size: u64, enough: u64) -> Result<u64, MapError> {
    let system =
        |errno: Errno| MapError::System { step: "AdaptivePoll for holes in the file", source: errno.into() };
    let end = offset.saturating_add(size);
    let file_end =
        rustix::fs::fstat(fd).map_err(system).map(|stat| u64::try_from(stat.st_size).unwrap_or(0))?;
    let mut at = offset;
    let mut holes = 0_u64;
    while at < end && holes <= enough {
        // Where the next memory is, from here on.
        let data = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
            Ok(data) => data.clamp(at, end),
            Err(Errno::NXIO) => end,
            Err(errno) => return Err(system(errno)),
        };
        holes = holes.saturating_add(data - at);
        if data >= end {
            break;
        }
        let whole_file =
            (file_end.saturating_sub(data)) / PAGE_SIZE <= (end - data) / PAGE_SIZE * PAGES_PER_CALL;
        at = if whole_file {
            rustix::fs::seek(fd, SeekFrom::Hole(data)).map_err(system)?.max(data.saturating_add(PAGE_SIZE))
        } else {
            data / PAGE_SIZE * PAGE_SIZE + PAGE_SIZE
        };
    }
    Ok(holes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Access, Mapping, create_memory_file};
    use std::fs::File;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::fs::FileExt;

    #[test]
    fn shared_memory_is_memory_and_files_of_disks_are_not() {
        let memfd = create_memory_file(c"ram", PAGE_SIZE).unwrap();
        let facts = check_file(memfd.as_fd()).unwrap();
        assert_eq!(
            (facts.size, facts.page, facts.writable, facts.may_shrink),
            (PAGE_SIZE, PAGE_SIZE, true, false)
        );

        let shm = tempfile::tempfile_in("/dev/shm").unwrap();
        shm.set_len(2 * PAGE_SIZE).unwrap();
        let facts = check_file(shm.as_fd()).unwrap();
        assert_eq!((facts.size, facts.writable, facts.may_shrink), (2 * PAGE_SIZE, true, true));

        let huge = rustix::fs::memfd_create(c"huge", rustix::fs::MemfdFlags::HUGETLB);
        if let Ok(huge) = huge {
            assert!(check_file(huge.as_fd()).unwrap().page > PAGE_SIZE);
        }
        let program = File::open(std::env::current_exe().unwrap()).unwrap();
        let error = check_file(program.as_fd()).unwrap_err().to_string();
        assert!(error.contains("memory-backend-memfd") && error.contains("hugetlbfs"), "{error}");
        for other in ["/dev/zero", "/proc/self/status", "/"] {
            assert!(check_file(File::open(other).unwrap().as_fd()).is_err(), "{other}");
        }
    }

    #[test]
    fn right_to_write_is_each_descriptors_own() {
        let memfd = create_memory_file(c"ram", PAGE_SIZE).unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memfd));
        let reader = OwnedFd::from(File::open(path).unwrap());

        let (own, theirs) = (check_file(memfd.as_fd()).unwrap(), check_file(reader.as_fd()).unwrap());

        assert_eq!(own.identity, theirs.identity);
        assert!(own.writable && !theirs.writable);
        assert!(Mapping::of_file(reader.as_fd(), 0, PAGE_SIZE, Access::ReadWrite).is_err());
    }

    #[test]
    fn holes_are_counted_in_the_range_alone() {
        let file = File::from(create_memory_file(c"ram", 64 * PAGE_SIZE).unwrap());
        for page in [3, 4, 5, 20] {
            file.write_all_at(&[1], page * PAGE_SIZE).unwrap();
        }
        let holes = |first: u64, pages: u64, enough| {
            unbacked(file.as_fd(), first * PAGE_SIZE, pages * PAGE_SIZE, enough).unwrap() / PAGE_SIZE
        };

        assert_eq!(holes(0, 64, u64::MAX), 60);
        assert_eq!(holes(3, 3, u64::MAX), 0);
        assert_eq!(holes(4, 2, u64::MAX), 0);
        assert_eq!(holes(5, 2, u64::MAX), 1);
        assert_eq!(holes(20, 1, u64::MAX), 0);
        assert_eq!(holes(21, 43, u64::MAX), 43);
        assert!(holes(0, 64, 0) >= 1);
    }
}
