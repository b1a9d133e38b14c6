//! A piece of the host's memory that a card reaches as system memory, in place of a piece of its VRAM.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use crate::{GpuError, scrub};
use gpuvmk_chip::addr::Iova;
use gpuvmk_ordered::OrderedSet;
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk_pci::{DmaBacking, DmaMapping, PciFunction, SharedMemory};

/// Bytes that are mapped for the card's DMA at a time.
pub(in crate::register) const GRANULE: u64 = 2 << 20;
/// Bus address of the memory in place of the first byte of VRAM. Low addresses stay free, so that a truncated
/// address never reaches memory.
pub(super) const FIRST_IOVA: u64 = 1 << 32;
const NAME: &CStr = c"gpuvmk-vram";

/// A file of shared memory. The card reaches only granules that were mapped for its DMA, and these are locked
/// in RAM.
///
/// Offsets are from its first byte.
pub(in crate::register) struct HostBacked {
    /// Its place in VRAM.
    first: u64,
    file: OwnedFd,
    memory: Mapping,
    mapped: OrderedSet<u64>,
}

impl HostBacked {
    /// Zeros, in place of VRAM `[first, first + size)`, whole granules.
    pub(in crate::register) fn new(first: u64, size: u64) -> Result<Self, GpuError> {
        let file = create_memory_file(NAME, size)?;
        let memory = Mapping::of_file(file.as_fd(), 0, size, Access::ReadWrite)
            .map_err(|error| GpuError::Io(std::io::Error::other(error)))?;
        Ok(Self { first, file, memory, mapped: OrderedSet::new() })
    }

    pub(in crate::register) fn memory(&self) -> &Mapping {
        &self.memory
    }

    pub(super) fn size(&self) -> u64 {
        self.memory.size()
    }

    /// Bus address of a byte; valid once its granule was mapped for the card's DMA.
    pub(in crate::register) fn iova(&self, offset: u64) -> Iova {
        iova(self.first.saturating_add(offset))
    }

    /// The whole of it, for another process.
    pub(super) fn shared(&self) -> Result<SharedMemory, GpuError> {
        Ok(SharedMemory { fd: self.file.try_clone()?, offset: 0, size: self.size() })
    }

    /// Tells the card of the granules of `[from, to)`.
    pub(in crate::register) fn map_for_dma(
        &mut self,
        function: &dyn PciFunction,
        from: u64,
        to: u64,
    ) -> Result<(), GpuError> {
        for offset in (from / GRANULE..to.div_ceil(GRANULE)).map(|index| index.saturating_mul(GRANULE)) {
            if self.mapped.contains(&offset) {
                continue;
            }
            let backing = Some(DmaBacking { fd: self.file.try_clone()?, offset });
            let iova = self.iova(offset).0;
            function.dma_map(DmaMapping { iova, size: GRANULE, writable: true, backing, owner: None })?;
            self.mapped.insert(offset);
        }
        Ok(())
    }

    /// Fills `[from, to)` with zeros; whole granules, which the card does not reach, are given back to the
    /// host's kernel.
    pub(super) fn zero(&mut self, from: u64, to: u64) -> Result<(), GpuError> {
        let Some((inner, outer)) = granules(from, to) else { return self.fill(from, to) };
        scrub::give_back(&[self.shared()?], inner, outer)?;
        self.fill(from, inner)?;
        self.fill(outer, to)
    }

    fn fill(&self, from: u64, to: u64) -> Result<(), GpuError> {
        if from >= to {
            return Ok(());
        }
        let filled = self.memory.fill(from, to.saturating_sub(from), 0);
        filled.map_err(|error| GpuError::Invalid(error.to_string()))
    }
}

/// The whole granules in `[from, to)`.
pub(super) fn granules(from: u64, to: u64) -> Option<(u64, u64)> {
    let (inner, outer) = (from.next_multiple_of(GRANULE), to / GRANULE * GRANULE);
    (inner < outer).then_some((inner, outer))
}

/// Where the card finds what is in place of an address in VRAM.
pub(super) fn iova(vram: u64) -> Iova {
    Iova(FIRST_IOVA.saturating_add(vram))
}
