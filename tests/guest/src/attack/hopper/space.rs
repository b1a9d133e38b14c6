//! Hopper's page tables in guest memory: six levels over 57 bits, of which the attacker uses pages of 4 KiB;
//! every level can be written wrongly.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::attack::place;
use crate::attack::tool::Target;
use crate::dma_memory::{DmaMemory, Piece};

/// Levels from the root down: where their index begins, its bits, bytes of an entry. The last has dual
/// entries, whose upper half names a table of small pages.
const LEVELS: [(u32, u32, u64); 5] = [(56, 1, 8), (47, 9, 8), (38, 9, 8), (29, 9, 8), (21, 8, 16)];
/// Bytes of any table.
const TABLE: usize = 0x1000;

/// An address space.
#[derive(Debug, Clone)]
pub struct Space {
    pub root: Piece,
    /// Tables by level (1 is below the root, 5 has the pages) and first address.
    pub tables: BTreeMap<(usize, u64), Piece>,
}

impl Space {
    /// One that maps nothing.
    pub fn new(memory: &mut DmaMemory) -> Result<Self> {
        Ok(Self { root: memory.take(TABLE, TABLE)?, tables: BTreeMap::new() })
    }

    /// Maps whole pages; no flush.
    pub fn map(&mut self, memory: &mut DmaMemory, va: u64, target: Target, size: u64) -> Result<()> {
        for offset in (0..size).step_by(0x1000) {
            self.set(memory, va + offset, entry(target.moved(offset)))?;
        }
        Ok(())
    }

    /// Writes the entry of a page as it is.
    pub fn set(&mut self, memory: &mut DmaMemory, va: u64, raw: u64) -> Result<()> {
        let table = self.table(memory, va)?;
        memory.store64(table, slot(va), raw);
        Ok(())
    }

    /// The table of small pages that an address goes through, made with all above it if there is none.
    pub fn table(&mut self, memory: &mut DmaMemory, va: u64) -> Result<Piece> {
        let mut at = self.root;
        for (level, (shift, bits, size)) in LEVELS.into_iter().enumerate() {
            let first = va >> shift;
            let below = match self.tables.get(&(level + 1, first)) {
                Some(table) => *table,
                None => {
                    let table = memory.take(TABLE, TABLE)?;
                    self.tables.insert((level + 1, first), table);
                    table
                }
            };
            let index = first & ((1 << bits) - 1);
            let half = if size == 16 { 8 } else { 0 };
            memory.store64(at, place(index * size + half), directory_entry(Target::Memory(below.physical)));
            at = below;
        }
        Ok(at)
    }

    /// Writes the entry of `level` (0 is the root) that an address goes through, as it is. The table must be
    /// there.
    pub fn set_directory(&self, memory: &DmaMemory, level: usize, va: u64, raw: u64) {
        let Some((shift, bits, size)) = LEVELS.get(level).copied() else { return };
        let table = match level {
            0 => Some(self.root),
            _ => {
                LEVELS.get(level - 1).and_then(|(above, ..)| self.tables.get(&(level, va >> above)).copied())
            }
        };
        if let Some(table) = table {
            let half = if size == 16 { 8 } else { 0 };
            memory.store64(table, place((va >> shift & ((1 << bits) - 1)) * size + half), raw);
        }
    }

    /// The table of `level` (5 has the pages) that an address goes through.
    pub fn table_of(&self, level: usize, va: u64) -> Option<Piece> {
        let (above, ..) = LEVELS.get(level.checked_sub(1)?)?;
        self.tables.get(&(level, va >> above)).copied()
    }
}

/// Where in its table the entry of a page lies.
pub fn slot(va: u64) -> usize {
    place((va >> 12 & 0x1ff) * 8)
}

/// A valid entry of a page: valid in bit 0, aperture in bits 2:1, kind 6 (plain) in bits 11:8, address in
/// bits 51:12.
pub fn entry(target: Target) -> u64 {
    let (aperture, address) = match target {
        Target::Vram(address) => (0, address),
        Target::Peer(address) => (1, address),
        Target::Memory(address) => (2, address),
    };
    1 | aperture << 1 | 6 << 8 | address & 0x000f_ffff_ffff_f000
}

/// An entry that names a table: aperture (VRAM is 1) in bits 2:1, address in bits 51:12.
pub fn directory_entry(target: Target) -> u64 {
    let (aperture, address) = match target {
        Target::Vram(address) => (1, address),
        Target::Peer(address) => (0, address),
        Target::Memory(address) => (2, address),
    };
    aperture << 1 | address & 0x000f_ffff_ffff_f000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_documented_fields() {
        assert_eq!(entry(Target::Vram(0x5000)), 0x5601);
        assert_eq!(entry(Target::Memory(0x5000)), 0x5605);
        assert_eq!(directory_entry(Target::Memory(0x5000)), 0x5004);
        assert_eq!(directory_entry(Target::Vram(0x5000)), 0x5002);
    }

    #[test]
    fn slots_count_pages_within_two_megabytes() {
        assert_eq!((slot(0), slot(0x1000), slot(0x1f_f000), slot(0x20_0000)), (0, 8, 0xff8, 0));
    }
}
