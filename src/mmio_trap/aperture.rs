//! BAR1 and BAR3 (BAR2 in the vendor's counting): windows through which the CPU reaches GPU memory.
//!
//! After reset a window shows VRAM directly. A driver then gives it an address space, walked through the
//! driver's page tables; where they begin, and their format, differ by chip ([`fermi`], [`gmmu`]).
//! Translations are kept in a TLB that is stale after the driver changes its tables, until the driver makes
//! an MMU invalidation: as in hardware. The TLB has a fixed number of entries; failed walks are not kept. It
//! may lose any of them at any time: a saved state has the tables only.
//!
//! Not modelled: storage kinds (block-linear pages are shown as they lie in memory) and compression.

pub mod fermi;
pub mod gmmu;

use super::PhysicalMemory;
use gpuvmk_chip::{AccessKind, Aperture as Memory, FaultReason, PhysicalAddress};

/// log2 of the smallest page of every format.
const GRANULE_SHIFT: u8 = 12;

/// Entries of the TLB, a power of two: 8 MiB in pages of 4 KiB.
const TLB_ENTRIES: usize = 2048;

/// Bytes that one TLB entry covers, also in large pages.
const GRANULE: u64 = 1 << GRANULE_SHIFT;

/// An access that no translation allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowFault {
    /// Where in the window (its virtual address).
    pub address: u64,
    /// Load or store.
    pub access: AccessKind,
    /// The reason.
    pub reason: FaultReason,
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

/// The memory that a window shows at a page of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First byte of the 4 KiB.
    pub target: PhysicalAddress,
    /// True when stores fault.
    pub read_only: bool,
}

impl Mapping {
    /// VRAM at the window's own offset, as a window shows it before a driver sets it up.
    pub const fn identity(page: u64) -> Self {
        Self { target: PhysicalAddress { aperture: Memory::Vram, address: page }, read_only: false }
    }
}

/// Consecutive pages of a window that show consecutive memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where in the window.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
    /// First byte of the memory.
    pub target: PhysicalAddress,
    /// True when stores fault.
    pub read_only: bool,
}

/// Result of a walk of page tables for a page of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// The memory that it shows, or why it shows none.
    pub found: Result<Mapping, FaultReason>,
    /// log2 of the bytes around it, naturally aligned, of which the same entry says the same: what they show
    /// lies as they do.
    pub shift: u8,
}

/// How a window finds memory: a chip's page tables, and where those of this window begin.
pub trait Translation {
    /// Walks the tables for the 4 KiB at `page`.
    fn walk(&self, page: u64, memory: &impl PhysicalMemory) -> Walk;

    /// Up to where, at most `end`, addresses behind `page` show what `walk` found there, or the memory that
    /// follows it: at least to the end of what its entry says.
    fn goes_on_to(&self, page: u64, walk: &Walk, end: u64, memory: &impl PhysicalMemory) -> u64 {
        let _ = memory;
        walk.behind(page).min(end)
    }
}

impl Walk {
    /// The first address behind `page` of which its entry says nothing.
    const fn behind(&self, page: u64) -> u64 {
        (page | ((1 << self.shift) - 1)).saturating_add(1)
    }
}

/// A window to memory.
#[derive(Debug)]
pub struct Window<T> {
    tables: T,
    tlb: Box<[TlbEntry]>,
    /// Entries of older generations are gone; counting up empties the TLB at once.
    generation: u64,
}

impl<T: Default> Default for Window<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: Default> Window<T> {
    /// Back to the state after reset.
    pub fn reset(&mut self) {
        self.set_tables(T::default());
    }
}

impl<T> Window<T> {
    /// A window that goes through these tables.
    pub fn new(tables: T) -> Self {
        Self { tables, tlb: vec![EMPTY; TLB_ENTRIES].into_boxed_slice(), generation: 1 }
    }

    /// The tables that the window goes through.
    pub const fn tables(&self) -> &T {
        &self.tables
    }

    /// Other tables; what was translated goes.
    pub fn set_tables(&mut self, tables: T) {
        self.tables = tables;
        self.flush_all();
    }

    /// Drops all translations.
    pub fn flush_all(&mut self) {
        // 2^64 invalidations do not happen; wrapping is defined all the same.
        self.generation = self.generation.wrapping_add(1).max(1);
    }
}

impl<T: Translation> Window<T> {
    /// Reads memory through the window.
    ///
    /// # Errors
    /// A page of the range has no translation or no memory behind it. Bytes before it have been read.
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
    /// A page of the range has no translation, is read-only, or has no memory behind it. Bytes before it have
    /// been written.
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
        let Mapping { target, read_only } = self.page(address, memory).map_err(fault)?;
        if read_only && access == AccessKind::Write {
            return Err(fault(FaultReason::WriteToReadOnly));
        }
        let offset = address & (GRANULE - 1);
        Ok(PhysicalAddress { aperture: target.aperture, address: target.address | offset })
    }

    /// The memory that the page of 4 KiB around an address shows, from the TLB or by a walk.
    fn page(&mut self, address: u64, memory: &impl PhysicalMemory) -> Result<Mapping, FaultReason> {
        let page = address >> GRANULE_SHIFT;
        if let Some(known) = self.known(page) {
            return Ok(known);
        }
        let Mapping { target, read_only } = self.tables.walk(page << GRANULE_SHIFT, memory).found?;
        if let Some(place) = self.tlb.get_mut(slot(page)) {
            *place = TlbEntry { generation: self.generation, page, target, read_only };
        }
        Ok(Mapping { target, read_only })
    }

    /// The TLB's entry of a page.
    fn known(&self, page: u64) -> Option<Mapping> {
        let entry = self.tlb.get(slot(page))?;
        let is_it = entry.page == page && entry.generation == self.generation;
        is_it.then_some(Mapping { target: entry.target, read_only: entry.read_only })
    }

    /// The first page of `[page, end)` that the TLB has, or else `end`.
    fn first_known(&self, page: u64, end: u64) -> u64 {
        if end.saturating_sub(page) <= TLB_ENTRIES as u64 {
            return (page..end).find(|page| self.known(*page).is_some()).unwrap_or(end);
        }
        let known = self.tlb.iter().filter(|entry| entry.generation == self.generation);
        known.map(|entry| entry.page).filter(|known| (page..end).contains(known)).min().unwrap_or(end)
    }

    /// The memory that `[offset, offset + size)`, whole pages, shows: in pieces that each show consecutive
    /// memory, or none. Uses the TLB, and walks tables once for each of their entries, or for many at a time.
    fn pieces(
        &self,
        offset: u64,
        size: u64,
        memory: &impl PhysicalMemory,
    ) -> impl Iterator<Item = (u64, u64, Result<Mapping, FaultReason>)> {
        let end = offset.saturating_add(size);
        let mut at = offset;
        std::iter::from_fn(move || {
            let start = at;
            if start >= end {
                return None;
            }
            let page = start >> GRANULE_SHIFT;
            let (length, found) = match self.known(page) {
                Some(known) => (GRANULE, Ok(known)),
                None => {
                    let walk = self.tables.walk(start, memory);
                    let behind = self.tables.goes_on_to(start, &walk, end, memory);
                    let until = self.first_known(page.saturating_add(1), behind.div_ceil(GRANULE));
                    ((until << GRANULE_SHIFT).saturating_sub(start), walk.found)
                }
            };
            at = start.saturating_add(length.max(GRANULE));
            Some((start, length, found))
        })
    }

    /// The memory that the pages of `[offset, offset + size)` show, without pages that show none.
    pub fn runs(&self, offset: u64, size: u64, memory: &impl PhysicalMemory) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (at, length, found) in self.pieces(offset, size, memory) {
            let Ok(Mapping { target, read_only }) = found else { continue };
            match runs.last_mut() {
                Some(run)
                    if run.offset + run.size == at
                        && run.read_only == read_only
                        && run.target.aperture == target.aperture
                        && run.target.address.checked_add(run.size) == Some(target.address) =>
                {
                    run.size = run.size.saturating_add(length);
                }
                _ => runs.push(Run { offset: at, size: length, target, read_only }),
            }
        }
        runs
    }

    /// The VRAM behind `[offset, offset + size)`, whole pages: runs of first byte and length.
    ///
    /// # Errors
    /// A page is not mapped for stores, or lies in system memory (kind `Unsupported`).
    pub fn vram_runs(
        &self,
        offset: u64,
        size: u64,
        memory: &impl PhysicalMemory,
    ) -> std::io::Result<Vec<(u64, u64)>> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (address, length, found) in self.pieces(offset, size, memory) {
            let target = match found {
                Ok(Mapping { target, read_only: false }) => Ok(target),
                Ok(_) => Err(FaultReason::WriteToReadOnly),
                Err(reason) => Err(reason),
            };
            let target = target.map_err(|reason| {
                let fault = WindowFault { address, access: AccessKind::Write, reason };
                std::io::Error::other(format!("No memory to share: {fault:?}"))
            })?;
            if target.aperture != Memory::Vram {
                return Err(std::io::ErrorKind::Unsupported.into());
            }
            match runs.last_mut() {
                Some((start, run)) if start.checked_add(*run) == Some(target.address) => {
                    *run = run.saturating_add(length);
                }
                _ => runs.push((target.address, length)),
            }
        }
        Ok(runs)
    }
}

#[cfg(test)]
impl<T: Translation> Window<T> {
    /// That the runs of a range say what each page by itself says.
    fn check_runs(&mut self, offset: u64, size: u64, memory: &impl PhysicalMemory) {
        let (runs, vram) = (self.runs(offset, size, memory), self.vram_runs(offset, size, memory));
        let mut shown = runs.iter().flat_map(|run| {
            (0..run.size / GRANULE).map(move |page| (run.offset + page * GRANULE, page * GRANULE, run))
        });
        let mut behind: Vec<u64> = Vec::new();
        for at in (offset..offset + size).step_by(1 << GRANULE_SHIFT) {
            let Ok(target) = self.translate(at, AccessKind::Read, memory) else { continue };
            let (place, into, run) = shown.next().expect("a page is missing");
            let stores = self.translate(at, AccessKind::Write, memory).is_ok();
            assert_eq!(
                (place, run.target.aperture, run.target.address + into),
                (at, target.aperture, target.address)
            );
            assert_eq!(run.read_only, !stores, "{at:#x}");
            if stores && target.aperture == Memory::Vram {
                behind.push(target.address);
            }
        }
        assert!(shown.next().is_none(), "a page too many");
        let Ok(vram) = vram else {
            assert!((behind.len() as u64) < size / GRANULE, "all of it can be shared");
            return;
        };
        let shared: Vec<u64> = vram
            .iter()
            .flat_map(|(start, size)| (*start..*start + *size).step_by(1 << GRANULE_SHIFT))
            .collect();
        assert_eq!(shared, behind);
    }
}

/// Where the TLB has a page.
fn slot(page: u64) -> usize {
    usize::try_from(page).unwrap_or(0) % TLB_ENTRIES
}

/// Bytes of an access from `at` on that lie on one page.
fn in_granule(at: u64, len: usize) -> usize {
    usize::try_from(GRANULE - (at & (GRANULE - 1))).map_or(len, |left| left.min(len))
}

const fn no_memory(address: u64, access: AccessKind) -> WindowFault {
    WindowFault { address, access, reason: FaultReason::UnsupportedAperture }
}
