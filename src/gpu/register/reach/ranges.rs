//! The memory that page tables of a card may name: ranges of bus addresses over files.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::GpuError;
use gpuvmk_chip::addr::{Iova, PAGE_SIZE};
use gpuvmk_host::reaper;
use gpuvmk_ordered::OrderedMap;
use gpuvmk_pci::dma::MemoryOwner;
use gpuvmk_pci::mapping::{MapError, check_file};
use gpuvmk_pci::{DmaBacking, DmaError, DmaMapping};

/// Whose memory it is, which decides who makes its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::register) enum Memory {
    /// A guest's, of which its device back end has filled what the guest's page tables name.
    Guest,
    /// The host's own, in place of VRAM.
    Host,
}

/// A range of one file.
#[derive(Clone, Debug)]
struct Range {
    size: u64,
    file: Arc<OwnedFd>,
    offset: u64,
    owner: Option<MemoryOwner>,
    memory: Memory,
}

/// By first bus address; they do not overlap.
#[derive(Debug, Default)]
pub(super) struct Ranges(OrderedMap<u64, Range>);

impl Ranges {
    /// Adds one.
    pub(super) fn add(&mut self, mapping: DmaMapping, memory: Memory) -> Result<(), DmaError> {
        let DmaMapping { iova, size, writable, backing, owner } = mapping;
        let invalid = |why| DmaError::Invalid { iova, size, why };
        if size == 0 || !iova.is_multiple_of(PAGE_SIZE) || !size.is_multiple_of(PAGE_SIZE) {
            return Err(invalid("address and size must be multiples of 4096, and the size not 0"));
        }
        let end = iova.checked_add(size).ok_or(invalid("it wraps"))?;
        let before = self.0.range(..end).next_back();
        if before.is_some_and(|(start, range)| start.saturating_add(range.size) > iova) {
            return Err(DmaError::Overlap { iova, size });
        }
        if !writable {
            return Err(invalid("memory that the card may only read is not supported"));
        }
        let DmaBacking { fd, offset } = backing.ok_or(invalid("there is no file behind it"))?;
        let cannot = |error: MapError| DmaError::Backing { iova, size, source: std::io::Error::other(error) };
        let facts = check_file(fd.as_fd()).map_err(cannot)?;
        if !facts.writable {
            return Err(cannot(MapError::NotWritable));
        }
        if offset.checked_add(size).is_none_or(|end| end > facts.size) || !offset.is_multiple_of(PAGE_SIZE) {
            return Err(invalid("its file is smaller, or the offset is not a multiple of the page size"));
        }
        self.0.insert(iova, Range { size, file: Arc::new(fd), offset, owner, memory });
        Ok(())
    }

    /// Removes ranges, and parts of them.
    pub(super) fn remove(&mut self, iova: u64, size: u64) {
        let end = iova.saturating_add(size);
        let below = self.0.range(..iova).next_back();
        let below = below.filter(|(start, range)| start.saturating_add(range.size) > iova);
        let inside: Vec<u64> =
            below.into_iter().chain(self.0.range(iova..end.max(iova))).map(|(start, _)| *start).collect();
        for start in inside {
            let Some(range) = self.0.remove(&start) else { continue };
            let last = start.saturating_add(range.size);
            let mut keep = |from: u64, to: u64| {
                if from < to {
                    let offset = range.offset.saturating_add(from.saturating_sub(start));
                    self.0.insert(from, Range { size: to.saturating_sub(from), offset, ..range.clone() });
                }
            };
            keep(start, iova.max(start));
            keep(end.min(last), last);
            reaper::give_up(range.file);
        }
    }

    /// First and last bus address (exclusive) of the range that an address lies in.
    pub(super) fn around(&self, at: u64) -> Result<(u64, u64), GpuError> {
        self.find(at).map(|(start, range)| (start, start.saturating_add(range.size)))
    }

    /// A part of a range, for the kernel.
    pub(super) fn part(&self, iova: u64, size: u64) -> Result<(DmaMapping, Memory), GpuError> {
        let (start, range) = self.find(iova)?;
        let offset = range.offset.saturating_add(iova.saturating_sub(start));
        let backing = Some(DmaBacking { fd: range.file.try_clone()?, offset });
        let owner = range.owner.clone();
        Ok((DmaMapping { iova, size, writable: true, backing, owner }, range.memory))
    }

    fn find(&self, at: u64) -> Result<(u64, &Range), GpuError> {
        let found = self.0.range(..=at).next_back();
        let found = found.filter(|(start, range)| at.saturating_sub(**start) < range.size);
        found.map(|(start, range)| (*start, range)).ok_or_else(|| nothing(at))
    }
}

fn nothing(at: u64) -> GpuError {
    GpuError::Invalid(format!("there is no memory at bus address {:#x}", Iova(at).0))
}
