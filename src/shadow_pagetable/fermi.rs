//! The Fermi format (GF100 to GM107) as a [`MmuFormat`]: a page directory over tables of small and large
//! pages.

use super::format::{Entry, Leaf, MmuFormat, Shape, SubTable, TableKind};
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::gf100::mmu::{ENTRY_SIZE, LargePages, Pde, Pte, SMALL_PAGE_SHIFT};

const DIRECTORY: TableKind = TableKind(2);
const LARGE: TableKind = TableKind(1);
const SMALL: TableKind = TableKind(0);

/// Fermi's two-level format with one of its two sizes of large pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Fermi {
    /// Size of large pages.
    pub large_pages: LargePages,
}

impl Fermi {
    const fn page_shift(self, kind: TableKind) -> u8 {
        match kind {
            SMALL => SMALL_PAGE_SHIFT,
            LARGE => self.large_pages.page_shift(),
            _ => self.large_pages.directory_shift(),
        }
    }
}

impl MmuFormat for Fermi {
    fn root(&self) -> TableKind {
        DIRECTORY
    }

    fn shape(&self, kind: TableKind) -> Shape {
        let entry_shift = self.page_shift(kind);
        let entries = match kind {
            SMALL | LARGE => self.large_pages.table_entries(entry_shift),
            _ => self.large_pages.directory_entries(),
        };
        // CAST: the largest table has 32768 entries.
        #[expect(clippy::cast_possible_truncation, reason = "at most 32768 entries")]
        Shape { entries: entries as u32, entry_size: ENTRY_SIZE as usize, entry_shift }
    }

    fn step(&self, kind: TableKind) -> Option<u64> {
        // Addresses count units of 256 bytes, from bit 4 on up: see `Pte::decode`.
        (kind != DIRECTORY).then(|| 1 << (self.page_shift(kind) - 8))
    }

    #[inline]
    fn decode(&self, kind: TableKind, raw: u128) -> Entry {
        // CAST: entries are 64 bits wide.
        #[expect(clippy::cast_possible_truncation, reason = "entries of this format are 64 bits wide")]
        let raw = raw as u64;
        if kind == DIRECTORY {
            let pde = Pde::decode(raw);
            if pde == Pde::default() {
                return Entry::Empty;
            }
            return Entry::Tables([
                pde.small.map(|address| SubTable { kind: SMALL, address }),
                pde.large.map(|address| SubTable { kind: LARGE, address }),
            ]);
        }
        match Pte::decode(raw) {
            Ok(pte) => {
                // Hardware ignores address bits below the page size.
                let in_page = (1u64 << self.page_shift(kind)) - 1;
                Entry::Page(Leaf {
                    target: PhysicalAddress { address: pte.target.address & !in_page, ..pte.target },
                    read_only: pte.read_only,
                    kind: pte.kind,
                })
            }
            Err(_) => Entry::Empty,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::Aperture;

    fn vram(address: u64) -> PhysicalAddress {
        PhysicalAddress { aperture: Aperture::Vram, address }
    }

    #[test]
    fn tables_cover_what_a_directory_entry_covers() {
        for large_pages in [LargePages::K128, LargePages::K64] {
            let format = Fermi { large_pages };
            let directory = format.shape(DIRECTORY);
            for kind in [SMALL, LARGE] {
                let shape = format.shape(kind);
                assert_eq!(u64::from(shape.entries) << shape.entry_shift, 1 << directory.entry_shift);
            }
            assert_eq!(u64::from(directory.entries) << directory.entry_shift, 1 << 40);
        }
    }

    #[test]
    fn directory_entry_with_both_tables_names_the_small_one_first() {
        let raw = Pde { large: Some(vram(0x2000)), small: Some(vram(0x8000)) }.encode();
        let entry = Fermi::default().decode(DIRECTORY, u128::from(raw));
        assert_eq!(
            entry,
            Entry::Tables([
                Some(SubTable { kind: SMALL, address: vram(0x8000) }),
                Some(SubTable { kind: LARGE, address: vram(0x2000) }),
            ])
        );
    }

    #[test]
    fn address_bits_below_the_page_size_are_ignored() {
        let raw = Pte { target: vram(0x12_3000), read_only: true, privileged: false, kind: 0xfe }.encode();
        let entry = Fermi::default().decode(LARGE, u128::from(raw));
        assert_eq!(entry, Entry::Page(Leaf { target: vram(0x12_0000), read_only: true, kind: 0xfe }));
    }
}
