//! The guest's memory that a driver hands over for GSP's state over a suspension: the driver's pages, named
//! by three levels of tables. Nothing of it is trusted: addresses must lie in the guest's memory, and sizes
//! are bounded.

use zerocopy::FromBytes;

use crate::abi::common::suspend::{
    GSP_FW_SR_META_MAGIC, GSP_FW_SR_META_REVISION, GspFwSRMeta, RADIX3_ENTRIES,
};
use crate::model::error::SavedError;
use crate::model::shared::bus;
use gpuvmk_backend::GspBackend;
use gpuvmk_chip::addr::PAGE_SIZE;

/// The memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct SavedMemory {
    /// Bus address of the second level of tables.
    directory: u64,
    /// Bytes, as the driver says.
    size: u64,
}

/// True when what lies at that bus address says that it names such memory.
pub(in super::super) fn is_named_at(back: &dyn GspBackend, address: u64) -> bool {
    let mut magic = [0; 8];
    address != 0
        && back.read_memory(bus(address), &mut magic).is_ok()
        && u64::from_le_bytes(magic) == GSP_FW_SR_META_MAGIC
}

impl SavedMemory {
    /// The memory that a `GspFwSRMeta` at a bus address names.
    pub(super) fn open(back: &dyn GspBackend, address: u64) -> Result<Self, SavedError> {
        let mut raw = [0; size_of::<GspFwSRMeta>()];
        back.read_memory(bus(address), &mut raw).map_err(|_| SavedError::NoMemory(address))?;
        let meta = GspFwSRMeta::read_from_bytes(&raw).map_err(|_| SavedError::NoMemory(address))?;
        if meta.magic != GSP_FW_SR_META_MAGIC || meta.revision != GSP_FW_SR_META_REVISION {
            return Err(SavedError::Unnamed { magic: meta.magic, revision: meta.revision });
        }
        let first = page_address(meta.sysmemAddrOfSuspendResumeData)?;
        let [directory] = table(back, first, 0, 1)?[..] else { return Err(SavedError::NoMemory(first)) };
        Ok(Self { directory: page_address(directory)?, size: meta.sizeOfSuspendResumeData })
    }

    /// Size in bytes.
    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// Reads the first bytes.
    pub(super) fn read(&self, back: &dyn GspBackend, data: &mut [u8]) -> Result<(), SavedError> {
        let pages = self.pages(back, data.len())?;
        for (page, part) in pages.into_iter().zip(data.chunks_mut(PAGE)) {
            back.read_memory(bus(page), part).map_err(|_| SavedError::NoMemory(page))?;
        }
        Ok(())
    }

    /// Writes the first bytes.
    pub(super) fn write(&self, back: &dyn GspBackend, data: &[u8]) -> Result<(), SavedError> {
        let pages = self.pages(back, data.len())?;
        for (page, part) in pages.into_iter().zip(data.chunks(PAGE)) {
            back.write_memory(bus(page), part).map_err(|_| SavedError::NoMemory(page))?;
        }
        Ok(())
    }

    /// Addresses of the pages that hold the first `bytes` bytes.
    fn pages(&self, back: &dyn GspBackend, bytes: usize) -> Result<Vec<u64>, SavedError> {
        // CAST: widening.
        if bytes as u64 > self.size {
            return Err(SavedError::TooSmall { room: self.size, needed: bytes as u64 });
        }
        let mut left = bytes.div_ceil(PAGE);
        let mut pages = Vec::with_capacity(left);
        let mut index = 0;
        while left > 0 {
            let count = left.min(RADIX3_ENTRIES);
            let [last] = table(back, self.directory, index, 1)?[..] else {
                return Err(SavedError::NoMemory(self.directory));
            };
            pages.extend(table(back, page_address(last)?, 0, count)?);
            left = left.saturating_sub(count);
            index = index.saturating_add(1);
        }
        pages.iter().try_for_each(|page| page_address(*page).map(drop))?;
        Ok(pages)
    }
}

/// Bytes of a page.
// CAST: 4096.
#[allow(clippy::cast_possible_truncation, reason = "4096")]
const PAGE: usize = PAGE_SIZE as usize;

/// Some entries of a table at a bus address.
fn table(back: &dyn GspBackend, address: u64, first: usize, count: usize) -> Result<Vec<u64>, SavedError> {
    let gone = SavedError::NoMemory(address);
    if first.saturating_add(count) > RADIX3_ENTRIES {
        return Err(SavedError::TooLarge);
    }
    let mut raw = vec![0; count.saturating_mul(8)];
    // CAST: below a page.
    let at = address.checked_add(first.saturating_mul(8) as u64).ok_or(gone)?;
    back.read_memory(bus(at), &mut raw).map_err(|_| gone)?;
    Ok(raw.as_chunks::<8>().0.iter().map(|entry| u64::from_le_bytes(*entry)).collect())
}

/// An address that must be a page's.
const fn page_address(address: u64) -> Result<u64, SavedError> {
    if address == 0 || !address.is_multiple_of(PAGE_SIZE) {
        return Err(SavedError::NoPage(address));
    }
    Ok(address)
}
