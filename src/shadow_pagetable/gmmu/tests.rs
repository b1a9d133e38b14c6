use super::*;
use gpuvmk_chip::Aperture;

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn pte(address: u64) -> Pte {
    Pte { target: vram(address), read_only: true, privileged: false, kind: 6 }
}

fn leaf(address: u64) -> Entry {
    Entry::Page(Leaf { target: vram(address), read_only: true, kind: 6 })
}

fn decode(format: Gmmu, level: Level, raw: impl Into<u128>) -> Entry {
    format.decode(kind(level), raw.into())
}

#[test]
fn every_table_covers_what_an_entry_above_covers() {
    for format in Gmmu::ALL {
        let shape = |kind| MmuFormat::shape(&format, kind);
        let size = |kind| u64::from(shape(kind).entries) << shape(kind).entry_shift;
        for (lower, upper) in [
            (Level::Small, Level::Pd0),
            (Level::Big, Level::Pd0),
            (Level::Pd0, Level::Pd1),
            (Level::Pd1, Level::Pd2),
            (Level::Pd2, Level::Pd3),
        ] {
            assert_eq!(size(kind(lower)), 1 << shape(kind(upper)).entry_shift, "{lower:?}");
            assert!(kind(lower) < kind(upper));
        }
        let root = MmuFormat::root(&format);
        assert_eq!(size(root), 1 << format.va_bits());
        assert_eq!(size(format.below_root()), 1 << shape(root).entry_shift);
        assert!(format.below_root() < root);
    }
}

#[test]
fn levels_and_their_numbers_are_one_to_one() {
    for each in Level::ALL {
        assert_eq!(level(kind(each)), each);
    }
}

#[test]
fn pages_of_every_size_ignore_the_bits_below_it() {
    for format in Gmmu::ALL {
        let raw = format.encode_page(pte(0x12_3456_7000));
        assert_eq!(decode(format, Level::Small, raw), leaf(0x12_3456_7000));
        assert_eq!(decode(format, Level::Big, raw), leaf(0x12_3456_0000));
        assert_eq!(decode(format, Level::Pd0, raw), leaf(0x12_3440_0000));
        let largest = if format == Gmmu::V2 { Entry::Empty } else { leaf(0x12_2000_0000) };
        assert_eq!(decode(format, Level::Pd1, raw), largest, "{format:?}");
    }
}

#[test]
fn upper_directories_have_no_pages() {
    for format in Gmmu::ALL {
        for level in [Level::Pd2, Level::Pd3, Level::Pd4] {
            assert_eq!(decode(format, level, format.encode_page(pte(0))), Entry::Empty);
        }
    }
}

#[test]
fn dual_entry_names_the_small_table_first() {
    for format in Gmmu::ALL {
        let raw = format.encode_tables(Pde::Table(vram(0x2100)), Pde::Table(vram(0x8000)));
        let small = SubTable { kind: kind(Level::Small), address: vram(0x8000) };
        let big = SubTable { kind: kind(Level::Big), address: vram(0x2100) };
        assert_eq!(decode(format, Level::Pd0, raw), Entry::Tables([Some(small), Some(big)]));
        let raw = format.encode_tables(Pde::Sparse, Pde::Table(vram(0x8000)));
        assert_eq!(decode(format, Level::Pd0, raw), Entry::Tables([Some(small), None]));
    }
}

#[test]
fn directory_entry_names_the_level_below() {
    let address = 0xf_ffff_ffff_f000;
    let table = PhysicalAddress { aperture: Aperture::SystemCoherent, address };
    for format in Gmmu::ALL {
        let mut level = format.root();
        while let Some(below) = level.below() {
            let named = SubTable { kind: kind(below), address: table };
            let raw = format.encode_pde(Pde::Table(table));
            assert_eq!(decode(format, level, raw), Entry::Tables([Some(named), None]));
            level = below;
        }
    }
}

#[test]
fn memory_of_another_gpu_is_refused_and_what_is_not_valid_is_empty() {
    for format in Gmmu::ALL {
        assert_eq!(decode(format, Level::Small, format.encode_defect(PteDefect::Peer(3))), Entry::Refused);
        assert_eq!(decode(format, Level::Pd0, format.encode_defect(PteDefect::Peer(0))), Entry::Refused);
        for defect in [PteDefect::NotValid, PteDefect::Sparse, PteDefect::Nowhere, PteDefect::NoSmallPages] {
            let raw = format.encode_defect(defect);
            assert_eq!(decode(format, Level::Big, raw), Entry::Empty, "{format:?} {defect:?}");
        }
        assert_eq!(decode(format, Level::Pd1, format.encode_pde(Pde::Sparse)), Entry::Empty);
    }
}

#[test]
fn empty_entries_of_big_tables_say_whether_small_pages_are_looked_for() {
    for format in Gmmu::ALL {
        let emptiness = |level, raw: u64| format.emptiness(kind(level), raw.into());
        for (defect, expected) in [
            (PteDefect::NotValid, Emptiness::NoPage),
            (PteDefect::Sparse, Emptiness::NoSmallerPage),
            (PteDefect::NoSmallPages, Emptiness::NoSmallerPage),
        ] {
            let raw = format.encode_defect(defect);
            assert_eq!(emptiness(Level::Big, raw), expected, "{format:?} {defect:?}");
            assert_eq!(emptiness(Level::Small, raw), Emptiness::NoPage);
            assert_eq!(emptiness(Level::Pd0, raw), Emptiness::NoTable);
        }
    }
}
