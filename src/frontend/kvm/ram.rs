//! The guest's main memory: one anonymous file, shown at one or more places of its physical address space,
//! and announced to functions for DMA.

use super::KvmError;
use super::slots::{HostMemory, Slot, Slots};
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk_pci::{DmaBacking, DmaMapping, PciFunction};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap};

/// Where a part of memory lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    gpa: u64,
    /// In the file.
    offset: u64,
    size: u64,
}

/// The guest's main memory.
#[derive(Debug)]
pub struct Ram {
    file: OwnedFd,
    memory: Arc<Mapping>,
    parts: Vec<Part>,
    _slots: Vec<Slot>,
}

impl Ram {
    /// Memory at the places `(first address, bytes)`, which must be in order and apart.
    pub(super) fn new(slots: &Arc<Slots>, places: &[(u64, u64)]) -> Result<Self, KvmError> {
        let size = places.iter().try_fold(0u64, |sum, (_, size)| sum.checked_add(*size)).unwrap_or(u64::MAX);
        let file = create_memory_file(c"gpuvmk-ram", size).map_err(KvmError::system("Creating memory"))?;
        let memory = Arc::new(Mapping::of_file(file.as_fd(), 0, size, Access::ReadWrite)?);
        let shared = HostMemory::Mapping(Arc::clone(&memory));
        let (mut parts, mut shown, mut offset) = (Vec::new(), Vec::new(), 0);
        for &(gpa, size) in places {
            shown.push(slots.insert(gpa, &shared, offset, size, true)?);
            parts.push(Part { gpa, offset, size });
            offset += size;
        }
        Ok(Self { file, memory, parts, _slots: shown })
    }

    /// The file of the memory.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.memory.size()
    }

    /// Where in the file `[gpa, gpa + size)` lies, if all of it is one part of memory.
    pub fn offset_of(&self, gpa: u64, size: u64) -> Option<u64> {
        self.parts.iter().find_map(|part| {
            let inside = gpa.checked_sub(part.gpa)?;
            (inside.checked_add(size)? <= part.size).then_some(part.offset + inside)
        })
    }

    /// The memory by guest-physical addresses, for loaders and virtio devices.
    ///
    /// # Errors
    /// It cannot be mapped once more.
    pub fn guest_memory(&self) -> anyhow::Result<GuestMemoryMmap> {
        let mut ranges = Vec::new();
        for part in &self.parts {
            let file = FileOffset::new(File::from(self.file.try_clone()?), part.offset);
            ranges.push((GuestAddress(part.gpa), usize::try_from(part.size)?, Some(file)));
        }
        Ok(GuestMemoryMmap::from_ranges_with_files(ranges)?)
    }

    /// The memory, by offsets in the file.
    pub fn memory(&self) -> &Arc<Mapping> {
        &self.memory
    }

    /// Announces all of it to a function.
    pub(super) fn announce(&self, function: &dyn PciFunction) -> Result<(), KvmError> {
        for part in &self.parts {
            let fd = self.file.try_clone().map_err(KvmError::system("Duplicating a descriptor"))?;
            let backing = Some(DmaBacking { fd, offset: part.offset });
            function.dma_map(DmaMapping {
                iova: part.gpa,
                size: part.size,
                writable: true,
                backing,
                owner: None,
            })?;
        }
        Ok(())
    }
}
