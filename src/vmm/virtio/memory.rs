//! The guest's memory as a virtio function sees it.

use std::fs::File;
use std::io;
use std::sync::Arc;

use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion, GuestRegionMmap,
};

use gpuvmk_pci::{DmaBacking, DmaError, DmaMapping};

/// Most parts of the guest's memory.
pub(super) const MOST_MAPPINGS: usize = 64;

/// The memory with one part more.
pub(super) fn with(memory: &GuestMemoryMmap, mapping: DmaMapping) -> Result<GuestMemoryMmap, DmaError> {
    let DmaMapping { iova, size, backing, .. } = mapping;
    // Memory that cannot be reached is not there for queues.
    let Some(DmaBacking { fd, offset }) = backing else { return Ok(memory.clone()) };
    if memory.num_regions() >= MOST_MAPPINGS {
        return Err(DmaError::TooMany(MOST_MAPPINGS));
    }
    let unreachable = |error: String| DmaError::Backing { iova, size, source: io::Error::other(error) };
    let bytes = usize::try_from(size).map_err(|error| unreachable(error.to_string()))?;
    let file = File::from(fd);
    // Memory beyond a file's end can be mapped, and not reached.
    let length = file.metadata().map_err(|source| DmaError::Backing { iova, size, source })?.len();
    if offset.checked_add(size).is_none_or(|end| end > length) {
        return Err(unreachable(format!("the file has {length} bytes")));
    }
    let file = FileOffset::new(file, offset);
    let part = GuestRegionMmap::from_range(GuestAddress(iova), bytes, Some(file))
        .map_err(|error| unreachable(error.to_string()))?;
    memory.insert_region(Arc::new(part)).map_err(|_| DmaError::Overlap { iova, size })
}

/// The memory without the parts in `[iova, iova + size)`.
pub(super) fn without(memory: &GuestMemoryMmap, iova: u64, size: u64) -> Result<GuestMemoryMmap, DmaError> {
    let absent = DmaError::NotMapped { iova, size };
    let Some(end) = iova.checked_add(size) else { return Err(absent) };
    let mut memory = memory.clone();
    let inside: Vec<_> = memory
        .iter()
        .filter(|part| part.start_addr().0 < end && iova <= part.last_addr().0)
        .map(|part| (part.start_addr(), part.len()))
        .collect();
    if inside.is_empty() {
        return Err(absent);
    }
    for (start, length) in inside {
        if start.0 < iova || start.0 + (length - 1) >= end {
            return Err(DmaError::Invalid { iova, size, why: "a mapping would be split" });
        }
        (memory, _) = memory.remove_region(start, length).map_err(|_| DmaError::NotMapped { iova, size })?;
    }
    Ok(memory)
}
