//! How the MMU walks page tables for a page that it does not remember. Chips differ in this.

use super::tlb::Page;
use crate::vram::memory::Memory;
use gpuvmk_chip::{FaultReason, PhysicalAddress};

/// Finds pages.
pub(crate) trait Walker: Send + Sync + std::fmt::Debug {
    /// The page that `va` lies in, in the address space of `directory`, as it is now.
    fn walk(&self, memory: &Memory, directory: PhysicalAddress, va: u64) -> Result<Page, FaultReason>;

    /// The storage kind that names no layout.
    fn invalid_kind(&self) -> u8;

    /// The driver chose the size of large pages. True when that changes what is found.
    fn set_large_pages(&self, is_64k: bool) -> bool {
        // Most chips have all sizes at once.
        let _ = is_64k;
        false
    }
}
