//! System memory that the GPU may reach: ranges of bus addresses over tenants' files.
//!
//! Bus addresses are numbers of our own; the NVIDIA driver knows memory objects. A file's memory becomes
//! objects in pieces of [`PIECE`], each when something is first mapped from it, and stays until no range
//! shows it any more. So the many announcements and withdrawals of a machine's firmware cost nothing, no call
//! takes long because a VM is large, and memory is held in place only where the GPU uses it. A [`Pinner`]
//! does what takes long. Partitions in system memory are such ranges of the aggregator's own files, above all
//! tenants'.
//!
//! Not handled: memory that a device may only read (its pages stay faults), and ranges without a file behind
//! them.

mod withdrawal;

use std::ops::RangeInclusive;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use super::abi::Handle;
use super::abi::classes::NV01_MEMORY_SYSTEM_OS_DESCRIPTOR;
use super::device::Device;
use super::pinner::{Answer, FileId, Key, OWN, Order, PIECE, Pinned, Pinner};
use crate::space_map::Run;
use crate::{GpuError, HostTarget};
use gpuvmk_chip::addr::{Iova, PAGE_SIZE};
use gpuvmk_host::reaper;
use gpuvmk_ordered::{OrderedMap, OrderedSet};
use gpuvmk_pci::dma::MemoryOwner;
use gpuvmk_pci::mapping::{self, MapError, Mapping};
use gpuvmk_pci::{DmaBacking, DmaError, DmaMapping};

/// Bits of tenants' bus addresses. Those of partitions have one more.
pub const SYSTEM_BITS: u8 = 47;

/// First bus address given out.
pub const FIRST_IOVA: u64 = 1 << 32;

#[derive(Debug)]
struct Range {
    size: u64,
    file: Option<(FileId, u64)>,
    writable: bool,
    /// Bytes that are mapped from it, in all address spaces together.
    mapped: u64,
    /// Keeps the first number of [`FileId`] its own.
    owner: Option<MemoryOwner>,
}

impl Range {
    /// A part of it, of which nothing is known to be mapped.
    fn part(&self, into: u64, size: u64) -> Self {
        let file = self.file.map(|(file, offset)| (file, offset.saturating_add(into)));
        Self { size, file, writable: self.writable, mapped: 0, owner: self.owner.clone() }
    }

    /// Pieces of its file that it shows a part of.
    fn pieces(&self) -> Option<(FileId, RangeInclusive<u64>)> {
        let (file, offset) = self.file?;
        let last = offset.checked_add(self.size)?.checked_sub(1)?;
        Some((file, offset / PIECE..=last / PIECE))
    }
}

#[derive(Debug)]
enum Piece {
    /// The pinner is at it.
    Ordered,
    /// Mappings may name it.
    Held { object: Handle, size: u64, memory: Mapping },
    /// Pinning failed. The next request gets the error, and a later one tries again.
    Refused(String),
    /// The pinner frees it.
    Going,
}

#[derive(Debug)]
struct File {
    fd: Arc<OwnedFd>,
    /// First bus addresses of the ranges that show it.
    ranges: OrderedSet<u64>,
}

/// A range that was withdrawn. Pieces that no other range shows are freed with it.
#[derive(Debug)]
struct Withdrawn {
    pieces: Option<(FileId, RangeInclusive<u64>)>,
    /// The next piece to look at.
    next: u64,
}

/// Where a bus address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Handle of the memory object.
    pub object: Handle,
    /// Offset in it.
    pub offset: u64,
    /// Bytes from there that are one piece.
    pub size: u64,
}

/// The memory behind a bus address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// It leads there.
    At(Place),
    /// Its memory is being made an object.
    Waits,
}

/// All ranges of system memory, with the pieces of their files.
pub struct SystemMemory {
    ranges: OrderedMap<u64, Range>,
    files: OrderedMap<FileId, File>,
    pieces: OrderedMap<Key, Piece>,
    withdrawn: OrderedMap<u64, Withdrawn>,
    /// Errors of unpinning pieces, by file, until its owner's caller gets them.
    failed: OrderedMap<FileId, GpuError>,
    pinner: Box<dyn Pinner>,
}

impl std::fmt::Debug for SystemMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SystemMemory")
            .field("ranges", &self.ranges)
            .field("pieces", &self.pieces)
            .finish_non_exhaustive()
    }
}

impl SystemMemory {
    /// No ranges yet.
    pub fn new(pinner: Box<dyn Pinner>) -> Self {
        Self {
            ranges: OrderedMap::new(),
            files: OrderedMap::new(),
            pieces: OrderedMap::new(),
            withdrawn: OrderedMap::new(),
            failed: OrderedMap::new(),
            pinner,
        }
    }

    /// Announces a range.
    ///
    /// # Errors
    /// See [`DmaError`].
    pub fn map(&mut self, mapping: DmaMapping) -> Result<(), DmaError> {
        let DmaMapping { iova, size, .. } = mapping;
        if size == 0 || iova.checked_add(size).is_none_or(|end| end > 1 << SYSTEM_BITS) {
            return Err(DmaError::Invalid { iova, size, why: "it is empty or beyond 47 address bits" });
        }
        let owner = mapping.owner.as_ref().map_or(0, MemoryOwner::id);
        self.announce(mapping, owner)
    }

    /// Announces a file of the aggregator's own, from its first byte on.
    ///
    /// # Errors
    /// See [`DmaError`].
    pub fn map_own(&mut self, iova: Iova, size: u64, file: OwnedFd) -> Result<(), DmaError> {
        let backing = Some(DmaBacking { fd: file, offset: 0 });
        self.announce(DmaMapping { iova: iova.0, size, writable: true, backing, owner: None }, OWN)
    }

    fn announce(&mut self, mapping: DmaMapping, id: usize) -> Result<(), DmaError> {
        let DmaMapping { iova, size, writable, backing, owner } = mapping;
        let invalid = |why| DmaError::Invalid { iova, size, why };
        let end = iova.checked_add(size).ok_or(invalid("it wraps"))?;
        if !iova.is_multiple_of(PAGE_SIZE) || !size.is_multiple_of(PAGE_SIZE) {
            return Err(invalid("it is not made of whole pages"));
        }
        let before = self.ranges.range(..end).next_back();
        if before.is_some_and(|(start, range)| start.saturating_add(range.size) > iova) {
            return Err(DmaError::Overlap { iova, size });
        }
        let file = match backing {
            None => None,
            Some(backing) => {
                let cannot = |source| DmaError::Backing { iova, size, source };
                let facts = mapping::check_file(backing.fd.as_fd())
                    .map_err(|error| cannot(std::io::Error::other(error)))?;
                let inside = backing.offset.checked_add(size).is_some_and(|end| end <= facts.size);
                if !inside || !backing.offset.is_multiple_of(PAGE_SIZE) {
                    return Err(invalid(
                        "its file is smaller, or the offset is not a multiple of the page size",
                    ));
                }
                // Each announcement proves the right to write by its own descriptor.
                if writable && !facts.writable {
                    return Err(cannot(std::io::Error::other(MapError::NotWritable)));
                }
                let (device, inode) = facts.identity;
                let id = (id, device, inode);
                match self.files.entry(id) {
                    gpuvmk_ordered::Entry::Occupied(mut known) => {
                        let known = known.get_mut();
                        known.ranges.insert(iova);
                        let fd = Arc::new(backing.fd);
                        // The first one may have been one that may only read.
                        let spare = if writable { std::mem::replace(&mut known.fd, fd) } else { fd };
                        reaper::give_up(spare);
                    }
                    gpuvmk_ordered::Entry::Vacant(new) => {
                        let ranges = OrderedSet::from([iova]);
                        new.insert(File { fd: Arc::new(backing.fd), ranges });
                    }
                }
                Some((id, backing.offset))
            }
        };
        self.ranges.insert(iova, Range { size, file, writable, mapped: 0, owner });
        Ok(())
    }

    /// The range that a bus address lies in.
    fn range_of(&mut self, iova: Iova) -> Option<&mut Range> {
        let (start, range) = self.ranges.range_mut(..=iova.0).next_back()?;
        (iova.0.saturating_sub(*start) < range.size).then_some(range)
    }

    /// A run was mapped. Each lies in one range, as [`Self::locate`] gives no more.
    pub fn note_mapped(&mut self, run: &Run) {
        if let HostTarget::System { iova, .. } = run.target
            && let Some(range) = self.range_of(iova)
        {
            range.mapped = range.mapped.saturating_add(run.len);
        }
    }

    /// A run, or a part of one, was unmapped.
    pub fn note_unmapped(&mut self, run: &Run) {
        if let HostTarget::System { iova, .. } = run.target
            && let Some(range) = self.range_of(iova)
        {
            range.mapped = range.mapped.saturating_sub(run.len);
        }
    }

    /// True if anything is mapped from the ranges that begin here.
    pub fn is_mapped(&self, iova: Iova, size: u64) -> bool {
        let end = iova.0.saturating_add(size);
        // For a range that is removed in part, the mappings from that part are not known.
        let whole = |start: u64, range: &Range| start.saturating_add(range.size) <= end;
        self.ranges
            .range(iova.0..end.max(iova.0))
            .any(|(start, range)| whole(*start, range) && range.mapped > 0)
    }

    /// True while the pinner is at a piece of a range of the aggregator's own.
    ///
    /// # Errors
    /// The driver does not let go of one, or its memory cannot be given back.
    pub fn is_busy(&mut self, device: &mut Device, iova: Iova, size: u64) -> Result<bool, GpuError> {
        self.take_answers(device);
        let Some((id, span)) = self.own_pieces(iova, size) else { return Ok(false) };
        if let Some(error) = self.failed.remove(&id) {
            return Err(error);
        }
        let mut pieces = self.pieces.range((id, *span.start())..=(id, *span.end()));
        Ok(pieces.any(|(_, piece)| matches!(piece, Piece::Ordered | Piece::Going)))
    }

    /// Orders that the pieces of a range of the aggregator's own, none of which is busy or mapped, are let go
    /// of and their pages given back. Where the range is gone, so are its pages.
    ///
    /// # Errors
    /// It is not made of whole pieces.
    pub fn give_back(&mut self, iova: Iova, size: u64) -> Result<(), GpuError> {
        if !iova.is_aligned(PIECE) || !size.is_multiple_of(PIECE) {
            return Err(GpuError::Invalid(format!("{size:#x} bytes at {iova} are not made of whole pieces")));
        }
        let Some((id, span)) = self.own_pieces(iova, size) else { return Ok(()) };
        let Some(file) = self.files.get(&id).map(|file| Arc::clone(&file.fd)) else { return Ok(()) };
        for index in span {
            let key = (id, index);
            let held = match self.pieces.insert(key, Piece::Going) {
                Some(Piece::Held { object, memory, .. }) => Some((object, memory)),
                Some(Piece::Ordered | Piece::Refused(_) | Piece::Going) | None => None,
            };
            self.pinner.order(Order::GiveBack { key, file: Arc::clone(&file), held });
        }
        Ok(())
    }

    /// The pieces of a range of the aggregator's own that lies in one announced range.
    fn own_pieces(&self, iova: Iova, size: u64) -> Option<(FileId, RangeInclusive<u64>)> {
        let (start, range) = self.ranges.range(..=iova.0).next_back()?;
        let part = range.part(iova.0.checked_sub(*start)?, size);
        (iova.0.checked_add(size)? <= start.checked_add(range.size)?).then(|| part.pieces()).flatten()
    }

    /// Objects of the aggregator's own memory.
    pub fn own_objects(&self) -> impl Iterator<Item = Handle> + '_ {
        self.pieces.range(((OWN, 0, 0), 0)..).filter_map(|(_, piece)| match piece {
            Piece::Held { object, .. } => Some(*object),
            Piece::Ordered | Piece::Refused(_) | Piece::Going => None,
        })
    }

    /// True if a range shows a part of a piece.
    fn is_shown(&self, (id, index): Key) -> bool {
        let Some(file) = self.files.get(&id) else { return false };
        let ranges = file.ranges.iter().filter_map(|start| self.ranges.get(start)?.pieces());
        ranges.into_iter().any(|(_, span)| span.contains(&index))
    }

    /// Takes what the pinner has done.
    pub fn take_answers(&mut self, device: &mut Device) {
        while let Some(answer) = self.pinner.answer() {
            match answer {
                Answer::Pinned(key, object, Ok(Pinned { size, memory })) => {
                    device.client.adopt(object, device.device, NV01_MEMORY_SYSTEM_OS_DESCRIPTOR);
                    if self.is_shown(key) {
                        self.pieces.insert(key, Piece::Held { object, size, memory });
                    } else {
                        // Its tenant left meanwhile.
                        self.pinner.order(Order::Free { key, object, memory });
                        self.pieces.insert(key, Piece::Going);
                    }
                }
                Answer::Pinned(key, _, Err(error)) => {
                    self.pieces.insert(key, Piece::Refused(GpuError::from(error).with_causes()));
                }
                Answer::Freed(key, object, Ok(())) => {
                    if let Some(object) = object {
                        device.client.forget(object);
                    }
                    self.pieces.remove(&key);
                }
                Answer::Freed(key, _, Err(error)) => {
                    // The handle stays in the books.
                    self.pieces.remove(&key);
                    self.failed.entry(key.0).or_insert(error.into());
                }
            }
        }
    }

    /// Where a bus address leads, at most `limit` bytes on; has its piece made an object when it is the first
    /// to be asked for.
    ///
    /// # Errors
    /// Nothing is there, a device may only read it, or it cannot be held in place.
    pub fn locate(&mut self, device: &mut Device, iova: Iova, limit: u64) -> Result<Located, GpuError> {
        let nothing = || GpuError::Invalid(format!("nothing can be mapped from bus address {iova}"));
        let (start, range) = self.ranges.range(..=iova.0).next_back().ok_or_else(nothing)?;
        let into = iova.0.saturating_sub(*start);
        let left = range.size.checked_sub(into).filter(|left| *left > 0).ok_or_else(nothing)?;
        if !range.writable {
            return Err(GpuError::Unmappable(format!(
                "memory at bus address {iova} may only be read by devices: its pages are left as faults"
            )));
        }
        let (file, base) = range.file.ok_or_else(nothing)?;
        let at = base.saturating_add(into);
        let key = (file, at / PIECE);
        let offset = at % PIECE;
        if matches!(self.pieces.get(&key), Some(Piece::Ordered | Piece::Going)) {
            self.take_answers(device);
        }
        match self.pieces.get(&key) {
            Some(Piece::Ordered | Piece::Going) => Ok(Located::Waits),
            Some(Piece::Held { object, size, .. }) => {
                let size = size.checked_sub(offset).filter(|size| *size > 0).ok_or_else(nothing)?;
                Ok(Located::At(Place { object: *object, offset, size: size.min(left).min(limit) }))
            }
            Some(Piece::Refused(why)) => {
                let why = GpuError::Unmappable(why.clone());
                self.pieces.remove(&key);
                Err(why)
            }
            None => {
                let file = Arc::clone(&self.files.get(&file).ok_or_else(nothing)?.fd);
                self.pieces.insert(key, Piece::Ordered);
                self.pinner.order(Order::Pin { key, file, object: device.client.reserve() });
                Ok(Located::Waits)
            }
        }
    }

    /// Pieces that are registered.
    #[cfg(test)]
    pub fn registered(&self) -> usize {
        self.pieces.values().filter(|piece| matches!(piece, Piece::Held { .. })).count()
    }
}
