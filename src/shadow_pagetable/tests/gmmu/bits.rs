//! Entries written and read by their bits, as nouveau writes them and the vendor's headers describe them, and
//! a walker over them. It shares nothing with the decoder that is tested.

use super::super::*;
use gpuvmk_chip::gmmu::Gmmu;

/// Bits that an entry covers and entries of a table, from the root to the directory above the dual one.
const fn directories(format: Gmmu) -> &'static [(u8, u64)] {
    match format {
        Gmmu::V2 | Gmmu::V2Ampere => &[(47, 4), (38, 512), (29, 512)],
        Gmmu::V3 => &[(56, 2), (47, 512), (38, 512), (29, 512)],
    }
}

/// An entry, or a half of one, that names a table.
pub fn table(format: Gmmu, target: PhysicalAddress) -> u64 {
    let (aperture, vol) = match target.aperture {
        Aperture::Vram => (1, 0),
        Aperture::SystemCoherent => (2, 8),
        Aperture::SystemNonCoherent => (3, 0),
    };
    match format {
        Gmmu::V2 | Gmmu::V2Ampere => target.address >> 4 | aperture << 1 | vol,
        Gmmu::V3 => target.address | aperture << 1 | vol | 1 << 4,
    }
}

/// A page's entry.
pub fn page(format: Gmmu, target: PhysicalAddress, read_only: bool, kind: u8) -> u64 {
    let aperture = match target.aperture {
        Aperture::Vram => 0,
        Aperture::SystemCoherent => 2,
        Aperture::SystemNonCoherent => 3,
    };
    let (kind, read_only) = (u64::from(kind), u64::from(read_only));
    match format {
        Gmmu::V2 | Gmmu::V2Ampere => target.address >> 4 | kind << 56 | read_only << 6 | aperture << 1 | 1,
        Gmmu::V3 => target.address | kind << 8 | read_only << 5 | 1 << 7 | aperture << 1 | 1,
    }
}

/// A page's entry of another GPU, of that number.
pub fn peer(format: Gmmu, number: u64) -> u64 {
    match format {
        Gmmu::V2 | Gmmu::V2Ampere => 3 | number << 33,
        Gmmu::V3 => 3 | number << 61,
    }
}

/// A page's entry that is sparse.
pub const SPARSE: u64 = 1 << 3;

/// A table in VRAM that an entry names; `big`: by the lower half of a dual one.
pub fn table_in_vram(format: Gmmu, raw: u64, big: bool) -> Option<u64> {
    let (shift, mask) = match (format, big) {
        (Gmmu::V2 | Gmmu::V2Ampere, false) => (4, 0x1_ffff_ff00),
        (Gmmu::V2 | Gmmu::V2Ampere, true) => (4, 0x1_ffff_fff0),
        (Gmmu::V3, false) => (0, 0x000f_ffff_ffff_f000),
        (Gmmu::V3, true) => (0, 0x000f_ffff_ffff_ff00),
    };
    (raw & 7 == 2).then_some((raw & mask) << shift)
}

/// A page that an entry maps.
fn leaf(format: Gmmu, raw: u64, shift: u8) -> Option<Leaf> {
    let aperture = match raw & 7 {
        1 => Aperture::Vram,
        5 => Aperture::SystemCoherent,
        7 => Aperture::SystemNonCoherent,
        _ => return None,
    };
    let (address, read_only, kind) = match (format, aperture) {
        (Gmmu::V2 | Gmmu::V2Ampere, Aperture::Vram) => ((raw & 0x1_ffff_ff00) << 4, raw >> 6 & 1, raw >> 56),
        (Gmmu::V2 | Gmmu::V2Ampere, _) => ((raw & 0x003f_ffff_ffff_ff00) << 4, raw >> 6 & 1, raw >> 56),
        (Gmmu::V3, _) => (raw & 0x000f_ffff_ffff_f000, raw >> 5 & 1, raw >> 8 & 0xf),
    };
    let target = PhysicalAddress { aperture, address: address >> shift << shift };
    Some(Leaf { target, read_only: read_only == 1, kind: u8::try_from(kind).unwrap() })
}

/// All pages of the guest's memory that the tree at `root` in VRAM maps, entry by entry.
pub fn pages(format: Gmmu, root: u64, memory: &Memory) -> Pages {
    let mut walk = Walk { format, memory, pages: Pages::new() };
    walk.directory(root, 0, 0);
    walk.pages
}

struct Walk<'a> {
    format: Gmmu,
    memory: &'a Memory,
    pages: Pages,
}

impl Walk<'_> {
    fn word(&self, table: u64, index: u64) -> u64 {
        let mut raw = [0; 8];
        let address = PhysicalAddress { aperture: Aperture::Vram, address: table + index * 8 };
        self.memory.read(address, &mut raw).map_or(0, |()| u64::from_le_bytes(raw))
    }

    fn directory(&mut self, table: u64, depth: usize, va: u64) {
        let levels = directories(self.format);
        let Some((shift, entries)) = levels.get(depth).copied() else { return self.dual(table, va) };
        for index in 0..entries {
            let (raw, va) = (self.word(table, index), va + (index << shift));
            if let Some(below) = table_in_vram(self.format, raw, false) {
                self.directory(below, depth + 1, va);
            } else if depth + 1 == levels.len() && self.format != Gmmu::V2 {
                self.page(raw, shift, va);
            }
        }
    }

    fn dual(&mut self, table: u64, va: u64) {
        for index in 0..256 {
            let (low, high) = (self.word(table, index * 2), self.word(table, index * 2 + 1));
            let va = va + (index << 21);
            if low & 1 != 0 {
                self.page(low, 21, va);
                continue;
            }
            if let Some(big) = table_in_vram(self.format, low, true) {
                (0..32).for_each(|index| self.page(self.word(big, index), 16, va + (index << 16)));
            }
            // Its lowest bit means nothing.
            if let Some(small) = table_in_vram(self.format, high & !1, false) {
                (0..512).for_each(|index| self.page(self.word(small, index), 12, va + (index << 12)));
            }
        }
    }

    fn page(&mut self, raw: u64, shift: u8, va: u64) {
        let leaf = leaf(self.format, raw, shift);
        if let Some(leaf) = leaf.filter(|leaf| self.memory.contains(leaf.target, 1 << shift)) {
            self.pages.insert((shift, va), leaf);
        }
    }
}
