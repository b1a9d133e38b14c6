//! BAR1 and BAR3 (BAR2 in the vendor's counting): windows through which the CPU reaches GPU memory.
//!
//! After reset a window shows VRAM directly. A driver then gives it an instance block, and the window becomes
//! an address space of its own, walked through the driver's page tables. Translations are kept in a TLB that
//! goes stale when the driver changes its tables, until it says so by an MMU invalidation: as in hardware. The
//! TLB has a fixed number of entries; failed walks are not kept. The instance block itself is read when it is
//! bound.
//!
//! Not modelled: storage kinds (block-linear pages are shown as they lie in memory) and compression.

use super::PhysicalMemory;
use crate::chip::gf100::mmu::{ENTRY_SIZE, LargePages, Pde, Pte, PteDefect, SMALL_PAGE_SHIFT, VA_MAX};
use crate::chip::gf100::ramin;
use crate::chip::{AccessKind, Aperture as Memory, FaultReason, PhysicalAddress};

/// Entries of the TLB, a power of two: 8 MiB in pages of 4 KiB.
const TLB_ENTRIES: usize = 2048;

/// Bytes that one TLB entry covers, also in large pages.
const GRANULE: u64 = 1 << SMALL_PAGE_SHIFT;

/// An access that no translation allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowFault {
    /// Where in the window (its virtual address).
    pub address: u64,
    /// Load or store.
    pub access: AccessKind,
    /// Why.
    pub reason: FaultReason,
}

/// How a window finds memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Offsets are VRAM addresses.
    Physical,
    /// Offsets are virtual addresses below this page directory.
    Virtual {
        /// Root of the tables; none when the instance block could not be read.
        directory: Option<PhysicalAddress>,
        /// Last address of the space.
        limit: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct TlbEntry {
    /// Generation that the entry belongs to; others are empty.
    generation: u64,
    /// Virtual page number.
    page: u64,
    /// First byte of the page.
    target: PhysicalAddress,
    read_only: bool,
}

const EMPTY: TlbEntry = TlbEntry {
    generation: 0,
    page: 0,
    target: PhysicalAddress { aperture: Memory::Vram, address: 0 },
    read_only: true,
};

/// One window.
#[derive(Debug)]
pub struct Window {
    mode: Mode,
    large_pages: LargePages,
    tlb: Box<[TlbEntry]>,
    /// Entries of older generations are gone; counting up empties the TLB at once.
    generation: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            mode: Mode::Physical,
            large_pages: LargePages::default(),
            tlb: vec![EMPTY; TLB_ENTRIES].into_boxed_slice(),
            generation: 1,
        }
    }
}

impl Window {
    /// Back to the state after reset.
    pub fn reset(&mut self) {
        self.mode = Mode::Physical;
        self.large_pages = LargePages::default();
        self.flush_all();
    }

    /// Shows VRAM directly.
    pub fn bind_physical(&mut self) {
        self.mode = Mode::Physical;
        self.flush_all();
    }

    /// Goes through the page tables that the instance block names.
    pub fn bind_instance(&mut self, instance: PhysicalAddress, memory: &impl PhysicalMemory) {
        self.mode = read_instance(instance, memory);
        self.flush_all();
    }

    /// Sets the size of large pages; old translations go.
    pub fn set_large_pages(&mut self, large_pages: LargePages) {
        if self.large_pages != large_pages {
            self.large_pages = large_pages;
            self.flush_all();
        }
    }

    /// Drops translations of that page directory.
    pub fn flush(&mut self, directory: PhysicalAddress) {
        if matches!(self.mode, Mode::Virtual { directory: Some(mine), .. } if mine == directory) {
            self.flush_all();
        }
    }

    /// Drops all translations.
    pub fn flush_all(&mut self) {
        // 2^64 invalidations do not happen; wrapping is defined all the same.
        self.generation = self.generation.wrapping_add(1).max(1);
    }

    /// Reads memory through the window.
    ///
    /// # Errors
    /// A page of the range has no translation or no memory behind it. What comes before it has been read.
    pub fn read(
        &mut self,
        address: u64,
        data: &mut [u8],
        memory: &impl PhysicalMemory,
    ) -> Result<(), WindowFault> {
        let mut at = address;
        let mut rest = data;
        while !rest.is_empty() {
            let (part, later) = rest.split_at_mut(in_granule(at, rest.len()));
            let target = self.translate(at, AccessKind::Read, memory)?;
            if !memory.read(target, part) {
                return Err(no_memory(at, AccessKind::Read));
            }
            at = at.saturating_add(part.len() as u64);
            rest = later;
        }
        Ok(())
    }

    /// Writes memory through the window.
    ///
    /// # Errors
    /// A page of the range has no translation, is read-only, or has no memory behind it. What comes before it
    /// has been written.
    pub fn write(
        &mut self,
        address: u64,
        data: &[u8],
        memory: &impl PhysicalMemory,
    ) -> Result<(), WindowFault> {
        let mut at = address;
        let mut rest = data;
        while !rest.is_empty() {
            let (part, later) = rest.split_at(in_granule(at, rest.len()));
            let target = self.translate(at, AccessKind::Write, memory)?;
            if !memory.write(target, part) {
                return Err(no_memory(at, AccessKind::Write));
            }
            at = at.saturating_add(part.len() as u64);
            rest = later;
        }
        Ok(())
    }

    /// Finds the memory behind an address, from the TLB or by a walk.
    ///
    /// # Errors
    /// There is none for this kind of access.
    pub fn translate(
        &mut self,
        address: u64,
        access: AccessKind,
        memory: &impl PhysicalMemory,
    ) -> Result<PhysicalAddress, WindowFault> {
        let fault = |reason| WindowFault { address, access, reason };
        let Mode::Virtual { directory, limit } = self.mode else {
            return Ok(PhysicalAddress { aperture: Memory::Vram, address });
        };
        let page = address >> SMALL_PAGE_SHIFT;
        let generation = self.generation;
        let slot = usize::try_from(page).unwrap_or(0) % TLB_ENTRIES;
        let known = self.tlb.get(slot).copied().filter(|e| e.generation == generation && e.page == page);
        let entry = match known {
            Some(entry) => entry,
            None => {
                let directory = directory.ok_or(fault(FaultReason::NoChannel))?;
                let (target, read_only) =
                    walk(directory, limit, self.large_pages, page << SMALL_PAGE_SHIFT, memory)
                        .map_err(fault)?;
                let entry = TlbEntry { generation, page, target, read_only };
                if let Some(place) = self.tlb.get_mut(slot) {
                    *place = entry;
                }
                entry
            }
        };
        if entry.read_only && access == AccessKind::Write {
            return Err(fault(FaultReason::WriteToReadOnly));
        }
        let offset = address & (GRANULE - 1);
        Ok(PhysicalAddress { aperture: entry.target.aperture, address: entry.target.address + offset })
    }
}

/// Bytes of an access from `at` on that lie on one page.
fn in_granule(at: u64, len: usize) -> usize {
    usize::try_from(GRANULE - (at & (GRANULE - 1))).map_or(len, |left| left.min(len))
}

const fn no_memory(address: u64, access: AccessKind) -> WindowFault {
    WindowFault { address, access, reason: FaultReason::UnsupportedAperture }
}

fn read_instance(instance: PhysicalAddress, memory: &impl PhysicalMemory) -> Mode {
    let word = |offset| {
        let address = instance.address.checked_add(offset)?;
        let mut raw = [0; 8];
        memory.read(PhysicalAddress { address, ..instance }, &mut raw).then(|| u64::from_le_bytes(raw))
    };
    let directory = word(ramin::PAGE_DIRECTORY_LO).and_then(decode_directory);
    let limit = word(ramin::VA_LIMIT_LO).unwrap_or(0);
    Mode::Virtual { directory, limit: limit.min(VA_MAX) }
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

/// Walks the tables for the 4 KiB at `address`: first byte of its memory, and whether stores fault.
fn walk(
    directory: PhysicalAddress,
    limit: u64,
    large_pages: LargePages,
    address: u64,
    memory: &impl PhysicalMemory,
) -> Result<(PhysicalAddress, bool), FaultReason> {
    if address > limit || address > VA_MAX {
        return Err(FaultReason::VmLimitExceeded);
    }
    let entry = |table: PhysicalAddress, index: u64| {
        let offset = index.checked_mul(ENTRY_SIZE).and_then(|offset| table.address.checked_add(offset));
        let address = offset.ok_or(FaultReason::PageTableTooShort)?;
        let mut raw = [0; 8];
        if memory.read(PhysicalAddress { address, ..table }, &mut raw) {
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
                return Ok((PhysicalAddress { address: first, ..pte.target }, pte.read_only));
            }
            Err(PteDefect::NotValid) => reason = FaultReason::PageNotPresent,
            Err(PteDefect::Aperture) => reason = FaultReason::UnsupportedAperture,
        }
    }
    Err(reason)
}

#[cfg(test)]
mod tests;
