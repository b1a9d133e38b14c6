//! The ranges of system memory that a guest's machine announced, with their files: they must be told to the
//! aggregator, and told again to a new one.
//!
//! Machines announce the same file for many ranges (RAM around its holes); one descriptor is kept for each file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

use crate::pci::{DmaBacking, DmaError};

/// Device and inode: the identity of a file.
type FileId = (u64, u64);

/// One range.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub iova: u64,
    /// Bytes, at least a page.
    pub size: u64,
    pub writable: bool,
    /// File and offset of the first byte. `None`: nothing is behind it.
    pub file: Option<(Arc<OwnedFd>, u64)>,
}

impl Range {
    fn last(&self) -> u64 {
        self.iova.saturating_add(self.size.saturating_sub(1))
    }
}

/// All ranges.
#[derive(Debug, Default)]
pub(super) struct GuestRam {
    ranges: BTreeMap<u64, Range>,
    files: BTreeMap<FileId, Weak<OwnedFd>>,
}

impl GuestRam {
    /// A descriptor to keep for the file of a range.
    pub fn keep(&mut self, backing: &DmaBacking) -> io::Result<Arc<OwnedFd>> {
        let fd = backing.fd.as_fd();
        let id = file_id(fd)?;
        if let Some(kept) = self.files.get(&id).and_then(Weak::upgrade) {
            return Ok(kept);
        }
        let kept = Arc::new(fd.try_clone_to_owned()?);
        self.files.retain(|_, file| file.strong_count() > 0);
        self.files.insert(id, Arc::downgrade(&kept));
        Ok(kept)
    }

    pub fn insert(&mut self, range: Range) {
        self.ranges.insert(range.iova, range);
    }

    pub fn remove(&mut self, iova: u64) {
        self.ranges.remove(&iova);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Range> {
        self.ranges.values()
    }

    /// The ranges that `[iova, iova + size)` takes away.
    ///
    /// # Errors
    /// There are none, or one would be split.
    pub fn inside(&self, iova: u64, size: u64) -> Result<Vec<Range>, DmaError> {
        let why = "it is empty or wraps";
        let last = size.checked_sub(1).and_then(|rest| iova.checked_add(rest));
        let last = last.ok_or(DmaError::Invalid { iova, size, why })?;
        let below = self.ranges.range(..iova).next_back().filter(|(_, range)| range.last() >= iova);
        let inside: Vec<Range> = self.ranges.range(iova..=last).map(|(_, range)| range.clone()).collect();
        if below.is_some() || inside.last().is_some_and(|range| range.last() > last) {
            return Err(DmaError::Invalid { iova, size, why: "it would split a mapping" });
        }
        if inside.is_empty() { Err(DmaError::NotMapped { iova, size }) } else { Ok(inside) }
    }
}

fn file_id(fd: BorrowedFd<'_>) -> io::Result<FileId> {
    let facts = File::from(fd.try_clone_to_owned()?).metadata()?;
    Ok((facts.dev(), facts.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::mapping::create_memory_file;

    fn range(iova: u64, size: u64) -> Range {
        Range { iova, size, writable: true, file: None }
    }

    #[test]
    fn one_descriptor_is_kept_for_each_file() {
        let mut ram = GuestRam::default();
        let first = create_memory_file(c"first", 4096).unwrap();
        let again = first.try_clone().unwrap();
        let other = create_memory_file(c"other", 4096).unwrap();

        let kept: Vec<_> = [first, again, other]
            .into_iter()
            .map(|fd| ram.keep(&DmaBacking { fd, offset: 0 }).unwrap())
            .collect();

        assert!(Arc::ptr_eq(&kept[0], &kept[1]) && !Arc::ptr_eq(&kept[0], &kept[2]));
    }

    #[test]
    fn ranges_go_whole_or_not_at_all() {
        let mut ram = GuestRam::default();
        ram.insert(range(0x1000, 0x2000));
        ram.insert(range(0x3000, 0x1000));
        ram.insert(range(u64::MAX - 0xfff, 0x1000));

        let found = |iova, size| ram.inside(iova, size).map(|ranges| ranges.len());

        assert_eq!(found(0, 0x4000).unwrap(), 2);
        assert_eq!(found(0x3000, 0x1000).unwrap(), 1);
        assert_eq!(found(0x1000, u64::MAX - 0xfff).unwrap(), 3);
        for (iova, size) in [(0x2000, 0x2000), (0x1000, 0x1000), (0x8000, 0x1000), (0x1000, u64::MAX), (0, 0)]
        {
            assert!(found(iova, size).is_err(), "{iova:#x} {size:#x}");
        }
    }
}
