//! The ranges of system memory that a guest's machine announced, with their files. They are announced to the
//! aggregator, and again to a new one.
//!
//! Machines announce the same file for many ranges (RAM around its holes, or page by page with an IOMMU). One
//! descriptor is kept for each file and access right, and adjacent ranges of one file are joined.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::mapping;
use gpuvmk_pci::{DmaBacking, DmaError};

/// Device and inode, and whether the descriptor may write.
type FileId = ((u64, u64), bool);

/// A range of guest memory.
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
    /// One past its last byte; a range ends below 2^64, or one page before that.
    pub fn end(&self) -> u64 {
        self.iova.saturating_add(self.size)
    }

    /// A part of it.
    fn part(&self, iova: u64, end: u64) -> Self {
        let into = iova.saturating_sub(self.iova);
        let file = self.file.clone().map(|(file, offset)| (file, offset.saturating_add(into)));
        Self { iova, size: end.saturating_sub(iova), writable: self.writable, file }
    }

    /// True when `next` follows, at its addresses and in its file, with the same rights.
    fn goes_on_in(&self, next: &Self) -> bool {
        let file = match (&self.file, &next.file) {
            (None, None) => true,
            (Some((mine, offset)), Some((theirs, next_offset))) => {
                Arc::ptr_eq(mine, theirs) && offset.checked_add(self.size) == Some(*next_offset)
            }
            _ => false,
        };
        file && self.end() == next.iova && self.writable == next.writable
    }
}

/// All ranges of guest memory, with their files.
#[derive(Debug, Default)]
pub(super) struct GuestRam {
    ranges: OrderedMap<u64, Range>,
    files: OrderedMap<FileId, Weak<OwnedFd>>,
}

impl GuestRam {
    /// A descriptor to keep for the file of a range.
    pub fn keep(&mut self, backing: &DmaBacking) -> io::Result<Arc<OwnedFd>> {
        let fd = backing.fd.as_fd();
        let facts = mapping::check_file(fd).map_err(io::Error::other)?;
        let id = (facts.identity, facts.writable);
        if let Some(kept) = self.files.get(&id).and_then(Weak::upgrade) {
            return Ok(kept);
        }
        let kept = Arc::new(fd.try_clone_to_owned()?);
        self.files.retain(|_, file| file.strong_count() > 0);
        self.files.insert(id, Arc::downgrade(&kept));
        Ok(kept)
    }

    /// Adds a range, as one with those that it continues.
    pub fn insert(&mut self, range: Range) {
        let mut whole = range;
        if let Some((_, before)) = self.ranges.range(..whole.iova).next_back()
            && before.goes_on_in(&whole)
        {
            whole = Range { size: before.size.saturating_add(whole.size), ..before.clone() };
        }
        if let Some(after) = self.ranges.get(&whole.end())
            && whole.goes_on_in(after)
        {
            let after = whole.end();
            let size = self.ranges.remove(&after).map_or(0, |after| after.size);
            whole.size = whole.size.saturating_add(size);
        }
        self.ranges.insert(whole.iova, whole);
    }

    /// Removes a part of a range, as returned by [`GuestRam::inside`].
    pub fn remove(&mut self, part: &Range) {
        let Some((&start, range)) = self.ranges.range(..=part.iova).next_back() else { return };
        let range = range.clone();
        self.ranges.remove(&start);
        for rest in [range.part(start, part.iova), range.part(part.end(), range.end())] {
            if rest.size > 0 {
                self.ranges.insert(rest.iova, rest);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Range> {
        self.ranges.values()
    }

    /// The ranges, and parts of ranges, in `[iova, iova + size)`.
    ///
    /// # Errors
    /// It is empty, not made of whole pages, or wraps.
    pub fn inside(&self, iova: u64, size: u64) -> Result<Vec<Range>, DmaError> {
        let invalid = |why| DmaError::Invalid { iova, size, why };
        if size == 0 || !size.is_multiple_of(PAGE_SIZE) || !iova.is_multiple_of(PAGE_SIZE) {
            return Err(invalid("address and size must be multiples of 4096, and the size not 0"));
        }
        let last = iova.checked_add(size.saturating_sub(1)).ok_or(invalid("it wraps"))?;
        let below = self.ranges.range(..iova).next_back().filter(|(_, range)| range.end() > iova);
        let inside = below.into_iter().chain(self.ranges.range(iova..=last));
        let part = |(_, range): (&u64, &Range)| {
            range.part(range.iova.max(iova), range.end().min(last.saturating_add(1)))
        };
        Ok(inside.map(part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_pci::mapping::create_memory_file;

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
    fn ranges_go_in_parts_and_what_is_not_there_is_no_error() {
        let mut ram = GuestRam::default();
        ram.insert(range(0x1000, 0x2000));
        ram.insert(range(0x8000, 0x4000));
        ram.insert(range(u64::MAX - 0x1fff, 0x1000));
        let found = |ram: &GuestRam, iova, size| -> Vec<(u64, u64)> {
            ram.inside(iova, size).unwrap().iter().map(|range| (range.iova, range.size)).collect()
        };

        assert_eq!(found(&ram, 0x2000, 0x7000), [(0x2000, 0x1000), (0x8000, 0x1000)]);
        assert_eq!(found(&ram, 0x4000, 0x1000), []);
        assert_eq!(found(&ram, 0x1000, u64::MAX - 0xfff).len(), 3);
        for (iova, size) in [(0x1000, 0), (0x1800, 0x1000), (0x1000, 0x800), (0x2000, u64::MAX - 0xfff)] {
            assert!(ram.inside(iova, size).is_err(), "{iova:#x} {size:#x}");
        }
        for part in ram.inside(0x9000, 0x1000).unwrap() {
            ram.remove(&part);
        }
        assert_eq!(found(&ram, 0x8000, 0x4000), [(0x8000, 0x1000), (0xa000, 0x2000)]);
    }

    #[test]
    fn ranges_that_follow_each_other_in_one_file_are_one() {
        let mut ram = GuestRam::default();
        let fd = create_memory_file(c"ram", 0x10000).unwrap();
        let file = ram.keep(&DmaBacking { fd, offset: 0 }).unwrap();
        let page = |at: u64| Range { file: Some((file.clone(), at)), ..range(0x5_0000 + at, 0x1000) };
        for number in [3, 1, 2, 0, 5] {
            ram.insert(page(number * 0x1000));
        }

        assert_eq!(ram.iter().map(|range| range.size).collect::<Vec<_>>(), [0x4000, 0x1000]);
    }
}
