//! Windows of GF100 to GM107: an instance block names the page directory and the last address. The instance block
//! itself is read when it is bound.

use super::{Mapping, Translation, Window};
use crate::chip::gf100::mmu::{ENTRY_SIZE, LargePages, Pde, Pte, PteDefect, SMALL_PAGE_SHIFT, VA_MAX};
use crate::chip::gf100::ramin;
use crate::chip::{Aperture as Memory, FaultReason, PhysicalAddress};
use crate::mmio_trap::PhysicalMemory;

/// Where a window's tables begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Root {
    /// Offsets are VRAM addresses.
    #[default]
    Physical,
    /// Offsets are virtual addresses below this page directory.
    Virtual {
        /// Root of the tables; none when the instance block could not be read.
        directory: Option<PhysicalAddress>,
        /// Last address of the space.
        limit: u64,
    },
}

/// A window's tables in the Fermi format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FermiTables {
    root: Root,
    large_pages: LargePages,
}

impl Translation for FermiTables {
    fn walk(&self, page: u64, memory: &impl PhysicalMemory) -> Result<Mapping, FaultReason> {
        match self.root {
            Root::Physical => Ok(Mapping::identity(page)),
            Root::Virtual { directory, limit } => {
                let directory = directory.ok_or(FaultReason::NoChannel)?;
                walk(directory, limit, self.large_pages, page, memory)
            }
        }
    }
}

impl FermiTables {
    /// The page directory and the last address, where there are tables.
    pub const fn root(&self) -> Option<(PhysicalAddress, u64)> {
        match self.root {
            Root::Virtual { directory: Some(directory), limit } => Some((directory, limit)),
            Root::Physical | Root::Virtual { directory: None, .. } => None,
        }
    }
}

impl Window<FermiTables> {
    /// Shows VRAM directly.
    pub fn bind_physical(&mut self) {
        self.set_tables(FermiTables { root: Root::Physical, ..self.tables });
    }

    /// Goes through the page tables that the instance block names.
    pub fn bind_instance(&mut self, instance: PhysicalAddress, memory: &impl PhysicalMemory) {
        self.set_tables(FermiTables { root: read_instance(instance, memory), ..self.tables });
    }

    /// Sets the size of large pages; old translations go. True when it was another one.
    pub fn set_large_pages(&mut self, large_pages: LargePages) -> bool {
        let is_new = self.tables.large_pages != large_pages;
        if is_new {
            self.set_tables(FermiTables { large_pages, ..self.tables });
        }
        is_new
    }

    /// Drops translations of that page directory. True when the window goes through it.
    pub fn flush(&mut self, directory: PhysicalAddress) -> bool {
        let mine =
            matches!(self.tables.root, Root::Virtual { directory: Some(mine), .. } if mine == directory);
        if mine {
            self.flush_all();
        }
        mine
    }
}

fn read_instance(instance: PhysicalAddress, memory: &impl PhysicalMemory) -> Root {
    let word = |offset| {
        let address = instance.address.checked_add(offset)?;
        let mut raw = [0; 8];
        memory.read_tables(PhysicalAddress { address, ..instance }, &mut raw).then(|| u64::from_le_bytes(raw))
    };
    let directory = word(ramin::PAGE_DIRECTORY_LO).and_then(decode_directory);
    let limit = word(ramin::VA_LIMIT_LO).unwrap_or(0);
    Root::Virtual { directory, limit: limit.min(VA_MAX) }
}

/// The page directory that an instance block's field names.
pub fn decode_directory(raw: u64) -> Option<PhysicalAddress> {
    let aperture = match raw & 3 {
        0 => Memory::Vram,
        2 => Memory::SystemCoherent,
        3 => Memory::SystemNonCoherent,
        _ => return None,
    };
    Some(PhysicalAddress { aperture, address: raw & VA_MAX & !0xfff })
}

/// Walks the tables for the 4 KiB at `address`.
fn walk(
    directory: PhysicalAddress,
    limit: u64,
    large_pages: LargePages,
    address: u64,
    memory: &impl PhysicalMemory,
) -> Result<Mapping, FaultReason> {
    if address > limit || address > VA_MAX {
        return Err(FaultReason::VmLimitExceeded);
    }
    let entry = |table: PhysicalAddress, index: u64| {
        let offset = index.checked_mul(ENTRY_SIZE).and_then(|offset| table.address.checked_add(offset));
        let address = offset.ok_or(FaultReason::PageTableTooShort)?;
        let mut raw = [0; 8];
        if memory.read_tables(PhysicalAddress { address, ..table }, &mut raw) {
            Ok(u64::from_le_bytes(raw))
        } else {
            Err(FaultReason::UnsupportedAperture)
        }
    };
    let pde = Pde::decode(entry(directory, large_pages.directory_index(address))?);
    let tables = [(pde.small, SMALL_PAGE_SHIFT), (pde.large, large_pages.page_shift())];
    let mut reason = FaultReason::PageTableNotPresent;
    for (table, shift) in tables {
        let Some(table) = table else { continue };
        match Pte::decode(entry(table, large_pages.table_index(address, shift))?) {
            Ok(pte) => {
                let inside = (1 << shift) - 1;
                let first = pte.target.address & !inside | address & inside;
                return Ok(Mapping {
                    target: PhysicalAddress { address: first, ..pte.target },
                    read_only: pte.read_only,
                });
            }
            Err(PteDefect::NotValid) => reason = FaultReason::PageNotPresent,
            Err(PteDefect::Aperture) => reason = FaultReason::UnsupportedAperture,
        }
    }
    Err(reason)
}

#[cfg(test)]
mod tests;
