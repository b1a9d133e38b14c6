//! Windows of GH100: page tables of version 3, whose beginning GSP firmware decides.
//!
//! BAR1's root directory lies where the firmware says, and the driver fills it in. Of BAR2's root the driver tells
//! the firmware one entry, that of the lower half of the address range. Sparse pages count as not mapped here.

use super::{Mapping, Translation};
use crate::chip::gh100::mmu::{Directory, DualPde, Level, Pde, Pte, PteDefect, VA_MAX};
use crate::chip::{FaultReason, PhysicalAddress};
use crate::mmio_trap::PhysicalMemory;

/// A window's tables in Hopper's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HopperTables {
    /// Offsets are VRAM addresses.
    #[default]
    Physical,
    /// Offsets are virtual addresses below this root directory.
    Root(PhysicalAddress),
    /// Offsets are virtual addresses below this entry of a root directory, its first one.
    RootEntry(u64),
}

impl HopperTables {
    /// The table that the first entry of the root directory names, where that entry is known.
    pub fn first_table(&self) -> Option<PhysicalAddress> {
        let Self::RootEntry(raw) = *self else { return None };
        match Directory::decode(raw) {
            Directory::Pde(Pde::Table(table)) => Some(table),
            Directory::Pde(_) | Directory::Page(_) => None,
        }
    }
}

impl Translation for HopperTables {
    fn walk(&self, page: u64, memory: &impl PhysicalMemory) -> Result<Mapping, FaultReason> {
        let root = match *self {
            Self::Physical => return Ok(Mapping::identity(page)),
            _ if page > VA_MAX => return Err(FaultReason::VmLimitExceeded),
            Self::Root(table) => entry(table, Level::Pd4, page, memory)?,
            Self::RootEntry(raw) if Level::Pd4.index(page) == 0 => raw,
            Self::RootEntry(_) => return Err(FaultReason::VmLimitExceeded),
        };
        let mut table = match Directory::decode(root) {
            Directory::Pde(Pde::Table(table)) => table,
            Directory::Pde(_) | Directory::Page(_) => return Err(FaultReason::PageTableNotPresent),
        };
        for level in [Level::Pd3, Level::Pd2, Level::Pd1] {
            table = match Directory::decode(entry(table, level, page, memory)?) {
                Directory::Pde(Pde::Table(table)) => table,
                Directory::Page(pte) if level.has_pages() => return mapping(pte, level, page),
                Directory::Pde(_) | Directory::Page(_) => return Err(FaultReason::PageTableNotPresent),
            };
        }
        match DualPde::decode(u128::from_le_bytes(raw(table, Level::Pd0, page, memory)?)) {
            DualPde::Page(pte) => mapping(pte, Level::Pd0, page),
            DualPde::Tables { big, small } => {
                let mut reason = FaultReason::PageTableNotPresent;
                if let Some(big) = big.table() {
                    match Pte::decode(entry(big, Level::Big, page, memory)?) {
                        Err(PteDefect::NotValid) => reason = FaultReason::PageNotPresent,
                        pte => return mapping(pte, Level::Big, page),
                    }
                }
                let small = small.table().ok_or(reason)?;
                mapping(Pte::decode(entry(small, Level::Small, page, memory)?), Level::Small, page)
            }
        }
    }
}

/// The 4 KiB at `page` of the page that an entry of `level` maps.
fn mapping(pte: Result<Pte, PteDefect>, level: Level, page: u64) -> Result<Mapping, FaultReason> {
    match pte {
        Ok(Pte { target, read_only, .. }) => {
            // Hardware ignores address bits below the page size.
            let inside = (1u64 << level.shift()) - 1;
            let address = target.address & !inside | page & inside;
            Ok(Mapping { target: PhysicalAddress { address, ..target }, read_only })
        }
        Err(PteDefect::Peer(_)) => Err(FaultReason::UnsupportedAperture),
        Err(PteDefect::NotValid | PteDefect::Sparse | PteDefect::Nowhere | PteDefect::NoSmallPages) => {
            Err(FaultReason::PageNotPresent)
        }
    }
}

/// The entry of 8 bytes for `page` of a table.
fn entry(
    table: PhysicalAddress,
    level: Level,
    page: u64,
    memory: &impl PhysicalMemory,
) -> Result<u64, FaultReason> {
    raw(table, level, page, memory).map(u64::from_le_bytes)
}

fn raw<const SIZE: usize>(
    table: PhysicalAddress,
    level: Level,
    page: u64,
    memory: &impl PhysicalMemory,
) -> Result<[u8; SIZE], FaultReason> {
    // Indices are below 512 and entries have at most 16 bytes.
    let offset = level.index(page) * level.entry_size();
    let address = table.address.checked_add(offset).ok_or(FaultReason::PageTableTooShort)?;
    let mut raw = [0; SIZE];
    if memory.read_tables(PhysicalAddress { address, ..table }, &mut raw) {
        Ok(raw)
    } else {
        Err(FaultReason::UnsupportedAperture)
    }
}

#[cfg(test)]
mod tests;
