//! Page tables in guest memory: five levels over 49 bits or six over 57, of which the attacker uses pages of
//! 4 KiB; every level can be written wrongly.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::attack::place;
use crate::attack::tool::Target;
use crate::dma_memory::{DmaMemory, Piece};

/// A directory's entries: where their index begins, its bits, bytes of an entry.
type Directory = (u32, u32, u64);

/// Directories from the root down. The last has dual entries, whose upper half names a table of small pages.
const DIRECTORIES: [Directory; 5] = [(56, 1, 8), (47, 9, 8), (38, 9, 8), (29, 9, 8), (21, 8, 16)];
const V2_DIRECTORIES: [Directory; 4] = [(47, 2, 8), (38, 9, 8), (29, 9, 8), (21, 8, 16)];
/// Version 2's addresses: of VRAM in bits 32:8, of memory in bits 53:8, in units of 4 KiB.
const V2_VRAM: u64 = 0x1_ffff_ff00;
const V2_MEMORY: u64 = 0x003f_ffff_ffff_ff00;
/// Version 3's, in bits 51:12, as they are.
const V3_ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// A format of page tables, by NVIDIA's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Up to Ada.
    V2,
    /// From Hopper on.
    V3,
}

impl Format {
    /// Directories from the root down.
    pub fn directories(self) -> &'static [Directory] {
        match self {
            Self::V2 => &V2_DIRECTORIES,
            Self::V3 => &DIRECTORIES,
        }
    }

    /// Where the index of the root's entries begins.
    pub fn root_shift(self) -> u32 {
        self.directories().first().map_or(0, |(shift, ..)| *shift)
    }

    /// Bits of an address in VRAM that an entry has room for.
    pub fn vram_bits(self) -> u32 {
        match self {
            Self::V2 => 37,
            Self::V3 => 52,
        }
    }

    /// A valid entry of a page: valid in bit 0, aperture in bits 2:1, kind 6 (plain).
    pub fn entry(self, target: Target) -> u64 {
        let aperture = match target {
            Target::Vram(_) => 0,
            Target::Peer(_) => 1,
            Target::Memory(_) => 2,
        };
        let kind = match self {
            Self::V2 => 6 << 56,
            Self::V3 => 6 << 8,
        };
        1 | aperture << 1 | kind | self.address(target)
    }

    /// An entry that names a table: aperture (VRAM is 1) in bits 2:1.
    pub fn directory_entry(self, target: Target) -> u64 {
        let aperture = match target {
            Target::Vram(_) => 1,
            Target::Peer(_) => 0,
            Target::Memory(_) => 2,
        };
        aperture << 1 | self.address(target)
    }

    /// An address where an entry has it.
    fn address(self, target: Target) -> u64 {
        match (self, target) {
            (Self::V2, Target::Vram(address) | Target::Peer(address)) => address >> 4 & V2_VRAM,
            (Self::V2, Target::Memory(address)) => address >> 4 & V2_MEMORY,
            (Self::V3, Target::Vram(address) | Target::Peer(address) | Target::Memory(address)) => {
                address & V3_ADDRESS
            }
        }
    }

    /// What a valid entry names, read as hardware does. `None`: another GPU's memory, or nothing.
    pub fn named(self, entry: u64) -> Option<Target> {
        let (in_vram, in_memory) = match self {
            Self::V2 => ((entry & V2_VRAM) << 4, (entry & V2_MEMORY) << 4),
            Self::V3 => (entry & V3_ADDRESS, entry & V3_ADDRESS),
        };
        match entry & 7 {
            1 => Some(Target::Vram(in_vram)),
            5 | 7 => Some(Target::Memory(in_memory)),
            _ => None,
        }
    }
}

/// Bytes of any table.
const TABLE: usize = 0x1000;

/// An address space.
#[derive(Debug, Clone)]
pub struct Space {
    pub format: Format,
    pub root: Piece,
    /// Tables by level (1 is below the root, the last has the pages) and first address.
    pub tables: BTreeMap<(usize, u64), Piece>,
}

impl Space {
    /// One that maps nothing.
    pub fn new(memory: &mut DmaMemory, format: Format) -> Result<Self> {
        Ok(Self { format, root: memory.take(TABLE, TABLE)?, tables: BTreeMap::new() })
    }

    /// Maps whole pages; no flush.
    pub fn map(&mut self, memory: &mut DmaMemory, va: u64, target: Target, size: u64) -> Result<()> {
        for offset in (0..size).step_by(0x1000) {
            self.set(memory, va + offset, self.format.entry(target.moved(offset)))?;
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
        for (level, (shift, bits, size)) in self.format.directories().iter().copied().enumerate() {
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
            memory.store64(
                at,
                place(index * size + half),
                self.format.directory_entry(Target::Memory(below.physical)),
            );
            at = below;
        }
        Ok(at)
    }

    /// Writes the entry of `level` (0 is the root) that an address goes through, as it is. The table must be
    /// there.
    pub fn set_directory(&self, memory: &DmaMemory, level: usize, va: u64, raw: u64) {
        if level < self.format.directories().len()
            && let Some((table, at)) = self.place_of(level, va)
        {
            memory.store64(table, at, raw);
        }
    }

    /// Where the entry of `level` (0 is the root, the last has the pages) is that an address goes through, if
    /// its table is there.
    pub fn place_of(&self, level: usize, va: u64) -> Option<(Piece, usize)> {
        let table = if level == 0 { self.root } else { self.table_of(level, va)? };
        let Some((shift, bits, size)) = self.format.directories().get(level).copied() else {
            return Some((table, slot(va)));
        };
        let half = if size == 16 { 8 } else { 0 };
        Some((table, place((va >> shift & ((1 << bits) - 1)) * size + half)))
    }

    /// The table of `level` (the last has the pages) that an address goes through.
    pub fn table_of(&self, level: usize, va: u64) -> Option<Piece> {
        let (above, ..) = self.format.directories().get(level.checked_sub(1)?)?;
        self.tables.get(&(level, va >> above)).copied()
    }
}

/// Where in its table the entry of a page lies.
pub fn slot(va: u64) -> usize {
    place((va >> 12 & 0x1ff) * 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_the_documented_fields() {
        let (old, new) = (Format::V2, Format::V3);
        assert_eq!(new.entry(Target::Vram(0x5000)), 0x5601);
        assert_eq!(new.entry(Target::Memory(0x5000)), 0x5605);
        assert_eq!(new.directory_entry(Target::Memory(0x5000)), 0x5004);
        assert_eq!(new.directory_entry(Target::Vram(0x5000)), 0x5002);
        assert_eq!(old.entry(Target::Vram(0x5000)), 6 << 56 | 0x501);
        assert_eq!(old.entry(Target::Memory(0x8_0000_5000)), 6 << 56 | 0x8000_0505);
        assert_eq!(old.directory_entry(Target::Memory(0x5000)), 0x504);
        assert_eq!(old.directory_entry(Target::Vram(0x5000)), 0x502);
    }

    #[test]
    fn entry_names_what_it_was_made_of() {
        for format in [Format::V2, Format::V3] {
            for target in [Target::Vram(0x12_3000), Target::Memory(0x38_0012_3000)] {
                assert_eq!(format.named(format.entry(target)), Some(target), "{format:?}");
            }
            assert_eq!(format.named(format.entry(Target::Peer(0))), None);
            assert_eq!(format.named(format.directory_entry(Target::Memory(0))), None);
        }
        // Behind an address of VRAM are a peer's number and tags.
        let tags = 0x000f_fffe_0000_0000;
        assert_eq!(
            Format::V2.named(Format::V2.entry(Target::Vram(0x5000)) | tags),
            Some(Target::Vram(0x5000))
        );
    }

    #[test]
    fn slots_count_pages_within_two_megabytes() {
        assert_eq!((slot(0), slot(0x1000), slot(0x1f_f000), slot(0x20_0000)), (0, 8, 0xff8, 0));
    }
}
