//! The memory that driver and GSP share: pages of the guest's, named by a page table that is its first page.
//!
//! Drivers allocate it in one piece today, but nothing promises that: the page table is what counts. It is
//! copied once, at boot; what the guest writes to it later has no effect.

use crate::abi::values::QueueArguments;
use crate::model::error::BootError;
use gpuvmk_backend::{GspBackend, NoTarget};
use gpuvmk_chip::addr::PAGE_SIZE;
use gpuvmk_chip::{Aperture, PhysicalAddress};

/// Pages of shared memory at most: as many as one page of table names. Drivers use 129.
const MAX_PAGES: u32 = 512;

/// The shared memory.
#[derive(Debug)]
pub(super) struct SharedMemory {
    /// Bus addresses, in order.
    pages: Vec<u64>,
}

/// A bus address of the guest's memory.
pub(super) const fn bus(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::SystemCoherent, address }
}

impl SharedMemory {
    /// Reads the page table.
    pub(super) fn open(back: &dyn GspBackend, arguments: QueueArguments) -> Result<Self, BootError> {
        if arguments.pages == 0 || arguments.pages > MAX_PAGES {
            return Err(BootError::Arguments("the queues' page table must have 1 to 512 entries"));
        }
        if !arguments.shared_memory.is_multiple_of(PAGE_SIZE) {
            return Err(BootError::Arguments("the queues' page table must begin at a page"));
        }
        // CAST: at most 512.
        let mut raw = vec![0; arguments.pages as usize * 8];
        back.read_memory(bus(arguments.shared_memory), &mut raw)
            .map_err(|_| BootError::NoMemory(arguments.shared_memory))?;
        let pages: Vec<_> = raw.as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry)).collect();
        if pages.iter().any(|page| !page.is_multiple_of(PAGE_SIZE)) {
            return Err(BootError::Arguments("an entry of the queues' page table is not a page address"));
        }
        Ok(Self { pages })
    }

    /// Memory of these pages; none if no page table can name them.
    pub(super) fn of(pages: Vec<u64>) -> Option<Self> {
        let count = u32::try_from(pages.len()).ok().filter(|count| (1..=MAX_PAGES).contains(count));
        count.filter(|_| pages.iter().all(|page| page.is_multiple_of(PAGE_SIZE)))?;
        Some(Self { pages })
    }

    /// Bus addresses of its pages.
    pub(super) fn pages(&self) -> &[u64] {
        &self.pages
    }

    /// Size in bytes.
    pub(super) fn size(&self) -> u64 {
        // CAST: widening.
        (self.pages.len() as u64).saturating_mul(PAGE_SIZE)
    }

    /// Reads `data.len()` bytes at `offset`.
    pub(super) fn read(&self, back: &dyn GspBackend, offset: u64, data: &mut [u8]) -> Result<(), NoTarget> {
        let size = data.len();
        let mut offset = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (address, room) = self.locate(offset).ok_or(NoTarget { address: bus(offset), size })?;
            let (part, later) = rest.split_at_mut(room.min(rest.len()));
            back.read_memory(bus(address), part)?;
            // CAST: widening.
            offset = offset.saturating_add(part.len() as u64);
            rest = later;
        }
        Ok(())
    }

    /// Writes `data` at `offset`.
    pub(super) fn write(&self, back: &dyn GspBackend, offset: u64, data: &[u8]) -> Result<(), NoTarget> {
        let mut offset = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (address, room) =
                self.locate(offset).ok_or(NoTarget { address: bus(offset), size: data.len() })?;
            let (part, later) = rest.split_at(room.min(rest.len()));
            back.write_memory(bus(address), part)?;
            // CAST: widening.
            offset = offset.saturating_add(part.len() as u64);
            rest = later;
        }
        Ok(())
    }

    /// Bus address of an offset, and the bytes up to the end of its page.
    fn locate(&self, offset: u64) -> Option<(u64, usize)> {
        let page = self.pages.get(usize::try_from(offset / PAGE_SIZE).ok()?)?;
        let within = offset % PAGE_SIZE;
        // CAST: at most a page.
        #[allow(clippy::cast_possible_truncation, reason = "at most a page")]
        let room = (PAGE_SIZE - within) as usize;
        Some((page.checked_add(within)?, room))
    }
}
