//! Fermi's page tables in guest memory: a directory of 8192 entries over 40 bits, tables of small pages
//! below.

use std::collections::BTreeMap;

use anyhow::Result;

use super::driver::by_zero;
use crate::attack::place;
use crate::attack::tool::Target;
use crate::dma_memory::{DmaMemory, Piece};

/// Bytes of a directory, of a table of 4 KiB pages, and what a directory entry covers.
pub const DIRECTORY: usize = 8192 * 8;
pub const TABLE: usize = 32_768 * 8;
pub const COVERED: u64 = 128 << 20;
pub const PAGE: u64 = 4096;

/// An address space.
#[derive(Debug, Clone)]
pub struct Space {
    pub directory: Piece,
    pub tables: BTreeMap<u64, Piece>,
}

impl Space {
    /// One that maps nothing.
    pub fn new(memory: &mut DmaMemory) -> Result<Self> {
        Ok(Self { directory: memory.take(DIRECTORY, 0x1000)?, tables: BTreeMap::new() })
    }

    /// Maps whole pages; no flush.
    pub fn map(&mut self, memory: &mut DmaMemory, va: u64, target: Target, size: u64) -> Result<()> {
        for offset in (0..size).step_by(4096) {
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

    /// The table that an address goes through, made if there is none.
    pub fn table(&mut self, memory: &mut DmaMemory, va: u64) -> Result<Piece> {
        let index = va / COVERED;
        if let Some(table) = self.tables.get(&index) {
            return Ok(*table);
        }
        let table = memory.take(TABLE, 0x1000)?;
        self.tables.insert(index, table);
        self.set_directory(memory, index, small_table(Target::Memory(table.physical)));
        Ok(table)
    }

    /// Writes a directory entry as it is.
    pub fn set_directory(&self, memory: &DmaMemory, index: u64, raw: u64) {
        memory.store64(self.directory, place(index * 8), raw);
    }

    /// Names the space in an instance block.
    pub fn write_into(&self, memory: &DmaMemory, block: Piece) {
        write_directory(memory, block, Target::Memory(self.directory.physical));
    }
}

/// Names a page directory in an instance block, with no limit to its addresses.
pub fn write_directory(memory: &DmaMemory, block: Piece, directory: Target) {
    let (target, address) = by_zero(directory);
    memory.store64(block, 0x200, address | target);
    memory.store64(block, 0x208, (1 << 40) - 1);
}

/// Where in its table the entry of an address lies.
pub fn slot(va: u64) -> usize {
    place(va % COVERED / PAGE * 8)
}

/// A valid page-table entry: valid in bit 0, page number in bits 31:4, volatile (as memory is) in bit 32,
/// target in bits 34:33.
pub fn entry(target: Target) -> u64 {
    let (kind, address) = by_zero(target);
    1 | (address >> 12 & 0x0fff_ffff) << 4 | u64::from(kind == 2) << 32 | kind << 33
}

/// A directory entry with a table of small pages: target (VRAM is 1) in bits 33:32, page number in bits
/// 63:36.
pub fn small_table(target: Target) -> u64 {
    let (kind, address) = match target {
        Target::Vram(address) => (1, address),
        // There is no peer here.
        Target::Peer(address) => (0, address),
        Target::Memory(address) => (2, address),
    };
    kind << 32 | address >> 12 << 36 | u64::from(kind == 2) << 34
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_documented_fields() {
        assert_eq!(entry(Target::Vram(0x1234_5000)), 0x0012_3451);
        assert_eq!(entry(Target::Memory(0x1000)), 0x5_0000_0011);
        assert_eq!(small_table(Target::Vram(0x5000)), 0x51_0000_0000);
        assert_eq!(small_table(Target::Memory(0x5000)), 0x56_0000_0000);
    }

    #[test]
    fn slots_count_pages_within_a_table() {
        assert_eq!((slot(0), slot(0x1000), slot(COVERED - 1), slot(COVERED)), (0, 8, TABLE - 8, 0));
    }
}
