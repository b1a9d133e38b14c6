//! Windows of GPUs whose firmware (GSP) decides where page tables begin, in any format that has a decoder for
//! shadowing.
//!
//! BAR1's root directory lies where the firmware says, and the driver fills it in. Of BAR2's root the driver
//! tells the firmware one entry, the first one. Sparse pages count as not mapped here, and so do pages of
//! registers, which [`GmmuTables::register_page`] finds.

use super::{GRANULE_SHIFT, Mapping, Translation, Walk};
use crate::PhysicalMemory;
use gpuvmk_chip::gsp::SMSKED_MESSAGE;
use gpuvmk_chip::{FaultReason, PhysicalAddress};
use gpuvmk_shadow_pagetable::{Entry, Leaf, SubTable, TableKind};

pub use gpuvmk_chip::gmmu::Gmmu;
pub use gpuvmk_shadow_pagetable::{Emptiness, WindowFormat};

/// Where a window's tables begin; also the saved form of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GmmuRoot {
    /// Offsets are VRAM addresses.
    #[default]
    Physical,
    /// Offsets are virtual addresses below this root directory.
    Root(PhysicalAddress),
    /// Offsets are virtual addresses below this entry of a root directory, its first one.
    RootEntry(u64),
}

/// A window's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GmmuTables<F> {
    /// Their format.
    pub format: F,
    /// Where they begin.
    pub root: GmmuRoot,
}

impl<F: WindowFormat> GmmuTables<F> {
    /// The table that the first entry of the root directory names, where that entry is known.
    pub fn first_table(&self) -> Option<PhysicalAddress> {
        let GmmuRoot::RootEntry(raw) = self.root else { return None };
        match self.format.decode(self.format.root(), raw.into()) {
            Entry::Tables(tables) => tables.into_iter().flatten().next().map(|table| table.address),
            Entry::Empty | Entry::Page(_) | Entry::Refused => None,
        }
    }
}

/// What a walk looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Memory,
    Registers,
}

impl<F: WindowFormat> Translation for GmmuTables<F> {
    fn walk(&self, page: u64, memory: &impl PhysicalMemory) -> Walk {
        self.walk_for(Wanted::Memory, page, memory)
    }
}

impl<F: WindowFormat> GmmuTables<F> {
    /// Where in the function's own registers the 4 KiB at `page` are, if an entry says that they are such.
    pub fn register_page(&self, page: u64, memory: &impl PhysicalMemory) -> Option<u64> {
        if self.root == GmmuRoot::Physical {
            return None;
        }
        self.walk_for(Wanted::Registers, page, memory).found.ok().map(|mapping| mapping.target.address)
    }

    fn walk_for(&self, wanted: Wanted, page: u64, memory: &impl PhysicalMemory) -> Walk {
        let root = self.format.root();
        let shape = self.format.shape(root);
        let shift = shape.entry_shift;
        let Some(index) = page.checked_shr(shift.into()).filter(|index| *index < shape.entries.into()) else {
            return match self.root {
                GmmuRoot::Physical => Walk { found: Ok(Mapping::identity(page)), shift },
                GmmuRoot::Root(_) | GmmuRoot::RootEntry(_) => {
                    nothing(FaultReason::VmLimitExceeded, GRANULE_SHIFT)
                }
            };
        };
        let found = match self.root {
            GmmuRoot::Physical => return Walk { found: Ok(Mapping::identity(page)), shift },
            GmmuRoot::Root(address) => self.table(wanted, SubTable { kind: root, address }, page, memory),
            GmmuRoot::RootEntry(raw) if index == 0 => self.entry(wanted, (root, raw.into()), page, memory),
            GmmuRoot::RootEntry(_) => return nothing(FaultReason::VmLimitExceeded, shift),
        };
        found.unwrap_or_else(|empty| empty)
    }
}

impl<F: WindowFormat> GmmuTables<F> {
    /// What a table says of a page. An error is a page that is not there, while a table of smaller pages may
    /// have one.
    fn table(
        &self,
        wanted: Wanted,
        table: SubTable,
        page: u64,
        memory: &impl PhysicalMemory,
    ) -> Result<Walk, Walk> {
        match self.read(table, page, memory) {
            Ok(raw) => self.entry(wanted, (table.kind, raw), page, memory),
            Err(reason) => Ok(nothing(reason, GRANULE_SHIFT)),
        }
    }

    /// What an entry says of a page, as [`Self::table`]. Entries name tables of lower kinds only, so it goes
    /// a few levels down.
    fn entry(
        &self,
        wanted: Wanted,
        (kind, raw): (TableKind, u128),
        page: u64,
        memory: &impl PhysicalMemory,
    ) -> Result<Walk, Walk> {
        let shift = self.format.shape(kind).entry_shift;
        match self.format.decode(kind, raw) {
            Entry::Page(leaf) => {
                let is_wanted = (leaf.kind == SMSKED_MESSAGE) == (wanted == Wanted::Registers);
                let found = is_wanted.then(|| mapping(leaf, shift, page));
                Ok(Walk { found: found.ok_or(FaultReason::UnsupportedAperture), shift })
            }
            Entry::Refused => Ok(nothing(FaultReason::UnsupportedAperture, shift)),
            Entry::Empty => match self.format.emptiness(kind, raw) {
                Emptiness::NoTable => Ok(nothing(FaultReason::PageTableNotPresent, shift)),
                Emptiness::NoPage => Err(nothing(FaultReason::PageNotPresent, shift)),
                Emptiness::NoSmallerPage => Ok(nothing(FaultReason::PageNotPresent, shift)),
            },
            Entry::Tables([first, second]) => {
                let size = |table: SubTable| self.format.shape(table.kind).entry_shift;
                let mut tables = [first, second];
                // Hardware looks at larger pages first.
                if first.map(size) < second.map(size) {
                    tables.reverse();
                }
                let mut missing = nothing(FaultReason::PageTableNotPresent, shift);
                for table in tables.into_iter().flatten().filter(|table| table.kind < kind) {
                    match self.table(wanted, table, page, memory) {
                        Err(empty) => missing = empty,
                        found => return found,
                    }
                }
                Ok(missing)
            }
        }
    }

    /// The entry for a page of a table.
    fn read(&self, table: SubTable, page: u64, memory: &impl PhysicalMemory) -> Result<u128, FaultReason> {
        let shape = self.format.shape(table.kind);
        let index = page
            .checked_shr(shape.entry_shift.into())
            .and_then(|index| index.checked_rem(shape.entries.into()));
        // CAST: widening.
        let offset = index.and_then(|index| index.checked_mul(shape.entry_size as u64));
        let address = offset.and_then(|offset| table.address.address.checked_add(offset));
        let address = address.ok_or(FaultReason::PageTableTooShort)?;
        let mut raw = [0; 16];
        let entry = raw.get_mut(..shape.entry_size).ok_or(FaultReason::PageTableTooShort)?;
        if memory.read_tables(PhysicalAddress { address, ..table.address }, entry) {
            Ok(u128::from_le_bytes(raw))
        } else {
            Err(FaultReason::UnsupportedAperture)
        }
    }
}

const fn nothing(reason: FaultReason, shift: u8) -> Walk {
    Walk { found: Err(reason), shift }
}

/// The 4 KiB at `page` of a page of `1 << shift` bytes.
const fn mapping(leaf: Leaf, shift: u8, page: u64) -> Mapping {
    let inside = page & ((1 << shift) - 1);
    let Leaf { target, read_only, kind: _ } = leaf;
    Mapping { target: PhysicalAddress { address: target.address | inside, ..target }, read_only }
}

#[cfg(test)]
mod tests;
