//! Fermi's page tables, in memory.

use std::sync::atomic::{AtomicBool, Ordering};

use super::tlb::Page;
use super::walker::Walker;
use crate::vram::memory::Memory;
use gpuvmk_chip::gf100::mmu::{ENTRY_SIZE, LargePages, Pde, Pte, PteDefect, SMALL_PAGE_SHIFT};
use gpuvmk_chip::{FaultReason, PhysicalAddress};

/// Page tables of Fermi in memory.
#[derive(Debug, Default)]
pub(crate) struct FermiTables {
    large_pages_64k: AtomicBool,
}

impl Walker for FermiTables {
    /// Reads the tables: the small page first, then the large one.
    fn walk(&self, memory: &Memory, directory: PhysicalAddress, va: u64) -> Result<Page, FaultReason> {
        let large = LargePages::from_64k(self.large_pages_64k.load(Ordering::Acquire));
        let pde = Pde::decode(entry(memory, directory, large.directory_index(va))?);
        let tables = [(pde.small, SMALL_PAGE_SHIFT), (pde.large, large.page_shift())];
        let mut reason = FaultReason::PageTableNotPresent;
        for (table, shift) in tables {
            let Some(table) = table else { continue };
            match Pte::decode(entry(memory, table, large.table_index(va, shift))?) {
                Ok(pte) => return Ok(page(va, shift, &pte)),
                Err(PteDefect::NotValid) => reason = FaultReason::PageNotPresent,
                Err(PteDefect::Aperture) => return Err(FaultReason::UnsupportedAperture),
            }
        }
        Err(reason)
    }

    fn invalid_kind(&self) -> u8 {
        0xff
    }

    fn set_large_pages(&self, is_64k: bool) -> bool {
        self.large_pages_64k.swap(is_64k, Ordering::AcqRel) != is_64k
    }
}

fn page(va: u64, shift: u8, pte: &Pte) -> Page {
    let bytes = 1u64 << shift;
    // Hardware ignores the address bits below the page size.
    let address = pte.target.address & !(bytes - 1);
    Page {
        va: va & !(bytes - 1),
        shift,
        target: PhysicalAddress { address, ..pte.target },
        read_only: pte.read_only,
        privileged: pte.privileged,
        kind: pte.kind,
    }
}

fn entry(memory: &Memory, table: PhysicalAddress, index: u64) -> Result<u64, FaultReason> {
    // Tables lie below 2^40 and indices are below 2^14, so that this does not overflow.
    let address = table.address + index * ENTRY_SIZE;
    memory.read_u64(PhysicalAddress { address, ..table }).map_err(|_| FaultReason::UnsupportedAperture)
}
