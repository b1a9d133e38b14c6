//! Windows of GH100: page tables of version 3, whose beginning GSP firmware decides.
//!
//! BAR1's root directory lies where the firmware says, and the driver fills it in. Of BAR2's root the driver
//! tells the firmware one entry, that of the lower half of the address range. Sparse pages count as not
//! mapped here.

use super::{Mapping, Translation, Walk};
use crate::PhysicalMemory;
use gpuvmk_chip::gh100::mmu::{Directory, DualPde, Level, Pde, Pte, PteDefect, VA_MAX};
use gpuvmk_chip::{FaultReason, PhysicalAddress};

/// A window's tables in Hopper's format; also what is saved of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
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
    fn walk(&self, page: u64, memory: &impl PhysicalMemory) -> Walk {
        let (found, level) = self.look_up(page, memory);
        Walk { found, shift: level.shift() }
    }
}

impl HopperTables {
    /// The mapping of a page by the tables, and the level at which it was found.
    fn look_up(&self, page: u64, memory: &impl PhysicalMemory) -> (Result<Mapping, FaultReason>, Level) {
        let nothing = |reason, level| (Err(reason), level);
        let root = match *self {
            Self::Physical => return (Ok(Mapping::identity(page)), Level::Pd4),
            _ if page > VA_MAX => return nothing(FaultReason::VmLimitExceeded, Level::Small),
            Self::Root(table) => match entry(table, Level::Pd4, page, memory) {
                Ok(raw) => raw,
                Err(reason) => return nothing(reason, Level::Small),
            },
            Self::RootEntry(raw) if Level::Pd4.index(page) == 0 => raw,
            Self::RootEntry(_) => return nothing(FaultReason::VmLimitExceeded, Level::Pd4),
        };
        let mut table = match Directory::decode(root) {
            Directory::Pde(Pde::Table(table)) => table,
            Directory::Pde(_) | Directory::Page(_) => {
                return nothing(FaultReason::PageTableNotPresent, Level::Pd4);
            }
        };
        for level in [Level::Pd3, Level::Pd2, Level::Pd1] {
            table = match entry(table, level, page, memory).map(Directory::decode) {
                Ok(Directory::Pde(Pde::Table(table))) => table,
                Ok(Directory::Page(pte)) if level.has_pages() => return (mapping(pte, level, page), level),
                Ok(Directory::Pde(_) | Directory::Page(_)) => {
                    return nothing(FaultReason::PageTableNotPresent, level);
                }
                Err(reason) => return nothing(reason, Level::Small),
            };
        }
        let dual = match raw(table, Level::Pd0, page, memory) {
            Ok(raw) => DualPde::decode(u128::from_le_bytes(raw)),
            Err(reason) => return nothing(reason, Level::Small),
        };
        let (big, small) = match dual {
            DualPde::Page(pte) => return (mapping(pte, Level::Pd0, page), Level::Pd0),
            DualPde::Tables { big, small } => (big.table(), small.table()),
        };
        let mut missing = (FaultReason::PageTableNotPresent, Level::Pd0);
        if let Some(big) = big {
            match entry(big, Level::Big, page, memory).map(Pte::decode) {
                Ok(Err(PteDefect::NotValid)) => missing = (FaultReason::PageNotPresent, Level::Big),
                Ok(pte) => return (mapping(pte, Level::Big, page), Level::Big),
                Err(reason) => return nothing(reason, Level::Small),
            }
        }
        let Some(small) = small else { return nothing(missing.0, missing.1) };
        match entry(small, Level::Small, page, memory) {
            Ok(raw) => (mapping(Pte::decode(raw), Level::Small, page), Level::Small),
            Err(reason) => nothing(reason, Level::Small),
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
