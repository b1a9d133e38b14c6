//! The Hopper format (GH100's GMMU "version 3") as a [`MmuFormat`]: five levels of directories over 57 bits,
//! pages of 512 MiB and 2 MiB in the two lowest of them, tables of 64 KiB and of 4 KiB pages below.
//!
//! Where a directory entry names both tables, hardware looks at the big one first and at the small one where
//! that has no valid page. Drivers never have both valid for an address; the shadow then keeps what changed
//! last.
//!
//! Not handled: sparse entries fault instead of reading as 0, and the privileged bit is dropped. Pages of
//! another GPU's memory are refused: a function has no peers.

use super::budget::Limits;
use super::format::{Emptiness, Entry, Leaf, MmuFormat, Shape, SubTable, TableKind, WindowFormat};
use gpuvmk_chip::PhysicalAddress;
use gpuvmk_chip::gh100::mmu::{Directory, DualPde, Level, Pde, Pte, PteDefect};

/// Hopper's format; it has no settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Hopper;

/// Levels by their numbers: entries name tables of lower numbers only.
const fn kind(level: Level) -> TableKind {
    TableKind(match level {
        Level::Small => 0,
        Level::Big => 1,
        Level::Pd0 => 2,
        Level::Pd1 => 3,
        Level::Pd2 => 4,
        Level::Pd3 => 5,
        Level::Pd4 => 6,
    })
}

const fn level(kind: TableKind) -> Level {
    match kind.0 {
        0 => Level::Small,
        1 => Level::Big,
        2 => Level::Pd0,
        3 => Level::Pd1,
        4 => Level::Pd2,
        5 => Level::Pd3,
        _ => Level::Pd4,
    }
}

impl MmuFormat for Hopper {
    fn root(&self) -> TableKind {
        kind(Level::Pd4)
    }

    fn below_root(&self) -> TableKind {
        kind(Level::Pd3)
    }

    fn shape(&self, kind: TableKind) -> Shape {
        let level = level(kind);
        // CAST: at most 512 entries of at most 16 bytes.
        #[expect(clippy::cast_possible_truncation, reason = "at most 512 entries of at most 16 bytes")]
        Shape {
            entries: level.entries() as u32,
            entry_size: level.entry_size() as usize,
            entry_shift: level.shift(),
        }
    }

    fn limits(&self) -> Limits {
        Limits::HOPPER
    }

    fn step(&self, kind: TableKind) -> Option<u64> {
        // Addresses stand in entries as they are.
        match level(kind) {
            level @ (Level::Small | Level::Big) => Some(1 << level.shift()),
            Level::Pd0 | Level::Pd1 | Level::Pd2 | Level::Pd3 | Level::Pd4 => None,
        }
    }

    #[inline]
    fn decode(&self, kind: TableKind, raw: u128) -> Entry {
        let level = level(kind);
        // CAST: entries of all kinds but one are 64 bits wide.
        #[expect(clippy::cast_possible_truncation, reason = "entries are 64 bits wide where this is used")]
        let low = raw as u64;
        match level {
            Level::Small | Level::Big => page(level, Pte::decode(low)),
            Level::Pd0 => match DualPde::decode(raw) {
                DualPde::Page(pte) => page(level, pte),
                DualPde::Tables { big, small } => tables(table(Level::Small, small), table(Level::Big, big)),
            },
            Level::Pd1 | Level::Pd2 | Level::Pd3 | Level::Pd4 => match Directory::decode(low) {
                Directory::Page(pte) if level.has_pages() => page(level, pte),
                Directory::Page(_) => Entry::Empty,
                Directory::Pde(pde) => tables(level.below().and_then(|below| table(below, pde)), None),
            },
        }
    }
}

impl WindowFormat for Hopper {
    fn emptiness(&self, kind: TableKind, raw: u128) -> Emptiness {
        // CAST: entries of page tables are 64 bits wide.
        #[expect(clippy::cast_possible_truncation, reason = "entries are 64 bits wide where this is used")]
        let low = raw as u64;
        match (level(kind), Pte::decode(low)) {
            (Level::Small, _) | (Level::Big, Err(PteDefect::NotValid)) => Emptiness::NoPage,
            // What is sparse or leads nowhere is so for every size.
            (Level::Big, _) => Emptiness::NoSmallerPage,
            (Level::Pd0 | Level::Pd1 | Level::Pd2 | Level::Pd3 | Level::Pd4, _) => Emptiness::NoTable,
        }
    }
}

fn page(level: Level, pte: Result<Pte, PteDefect>) -> Entry {
    match pte {
        Ok(pte) => {
            // Hardware ignores address bits below the page size.
            let in_page = (1u64 << level.shift()) - 1;
            Entry::Page(Leaf {
                target: PhysicalAddress { address: pte.target.address & !in_page, ..pte.target },
                read_only: pte.read_only,
                kind: pte.kind,
            })
        }
        Err(PteDefect::Peer(_)) => Entry::Refused,
        Err(PteDefect::NotValid | PteDefect::Sparse | PteDefect::Nowhere | PteDefect::NoSmallPages) => {
            Entry::Empty
        }
    }
}

fn table(level: Level, pde: Pde) -> Option<SubTable> {
    pde.table().map(|address| SubTable { kind: kind(level), address })
}

const fn tables(first: Option<SubTable>, second: Option<SubTable>) -> Entry {
    match (first, second) {
        (None, None) => Entry::Empty,
        both => Entry::Tables([both.0, both.1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvmk_chip::Aperture;
    use gpuvmk_chip::gh100::mmu::{VA_BITS, encode_pde};

    fn vram(address: u64) -> PhysicalAddress {
        PhysicalAddress { aperture: Aperture::Vram, address }
    }

    fn pte(address: u64) -> Pte {
        Pte { target: vram(address), read_only: true, privileged: false, kind: 6 }
    }

    fn leaf(address: u64) -> Entry {
        Entry::Page(Leaf { target: vram(address), read_only: true, kind: 6 })
    }

    fn decode(level: Level, raw: impl Into<u128>) -> Entry {
        Hopper.decode(kind(level), raw.into())
    }

    #[test]
    fn every_table_covers_what_an_entry_above_covers() {
        for (lower, upper) in [
            (Level::Small, Level::Pd0),
            (Level::Big, Level::Pd0),
            (Level::Pd0, Level::Pd1),
            (Level::Pd1, Level::Pd2),
            (Level::Pd2, Level::Pd3),
            (Level::Pd3, Level::Pd4),
        ] {
            let shape = Hopper.shape(kind(lower));
            assert_eq!(
                u64::from(shape.entries) << shape.entry_shift,
                1 << Hopper.shape(kind(upper)).entry_shift,
                "{lower:?}"
            );
            assert!(kind(lower) < kind(upper));
        }
        let root = Hopper.shape(Hopper.root());
        assert_eq!(u64::from(root.entries) << root.entry_shift, 1 << VA_BITS);
    }

    #[test]
    fn levels_and_their_numbers_are_one_to_one() {
        for each in Level::ALL {
            assert_eq!(level(kind(each)), each);
        }
    }

    #[test]
    fn pages_of_every_size_ignore_the_bits_below_it() {
        let raw = pte(0x12_3456_7000).encode();
        assert_eq!(decode(Level::Small, raw), leaf(0x12_3456_7000));
        assert_eq!(decode(Level::Big, raw), leaf(0x12_3456_0000));
        assert_eq!(decode(Level::Pd0, raw), leaf(0x12_3440_0000));
        assert_eq!(decode(Level::Pd1, raw), leaf(0x12_2000_0000));
    }

    #[test]
    fn upper_directories_have_no_pages() {
        for level in [Level::Pd2, Level::Pd3, Level::Pd4] {
            assert_eq!(decode(level, pte(0).encode()), Entry::Empty);
        }
    }

    #[test]
    fn dual_entry_names_the_small_table_first() {
        let raw = DualPde::tables(Pde::Table(vram(0x2100)), Pde::Table(vram(0x8000)));
        let small = SubTable { kind: kind(Level::Small), address: vram(0x8000) };
        let big = SubTable { kind: kind(Level::Big), address: vram(0x2100) };
        assert_eq!(decode(Level::Pd0, raw), Entry::Tables([Some(small), Some(big)]));
        let raw = DualPde::tables(Pde::Sparse, Pde::Table(vram(0x8000)));
        assert_eq!(decode(Level::Pd0, raw), Entry::Tables([Some(small), None]));
    }

    #[test]
    fn directory_entry_names_the_level_below() {
        let table = PhysicalAddress { aperture: Aperture::SystemCoherent, address: 0xf_ffff_ffff_f000 };
        for (level, below) in [(Level::Pd4, Level::Pd3), (Level::Pd1, Level::Pd0)] {
            let named = SubTable { kind: kind(below), address: table };
            assert_eq!(decode(level, encode_pde(Pde::Table(table))), Entry::Tables([Some(named), None]));
        }
    }

    #[test]
    fn memory_of_another_gpu_is_refused_and_what_is_not_valid_is_empty() {
        assert_eq!(decode(Level::Small, PteDefect::Peer(3).encode()), Entry::Refused);
        assert_eq!(decode(Level::Pd0, PteDefect::Peer(0).encode()), Entry::Refused);
        for defect in [PteDefect::NotValid, PteDefect::Sparse, PteDefect::Nowhere, PteDefect::NoSmallPages] {
            assert_eq!(decode(Level::Big, defect.encode()), Entry::Empty, "{defect:?}");
        }
        assert_eq!(decode(Level::Pd1, encode_pde(Pde::Sparse)), Entry::Empty);
    }
}
