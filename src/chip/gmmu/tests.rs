use proptest::prelude::*;

use super::*;
use crate::{Aperture, PhysicalAddress};

/// Bits of an address that an entry has room for.
fn address_bits(format: Gmmu, aperture: Aperture) -> u32 {
    match (format, aperture) {
        (Gmmu::V2 | Gmmu::V2Ampere, Aperture::Vram) => 37,
        (Gmmu::V2 | Gmmu::V2Ampere, _) => 58,
        (Gmmu::V3, _) => 52,
    }
}

fn formats() -> impl Strategy<Value = Gmmu> {
    prop::sample::select(&Gmmu::ALL[..])
}

fn apertures() -> impl Strategy<Value = Aperture> {
    prop_oneof![Just(Aperture::Vram), Just(Aperture::SystemCoherent), Just(Aperture::SystemNonCoherent)]
}

fn addresses(format: Gmmu, shift: u32) -> impl Strategy<Value = PhysicalAddress> {
    (apertures(), any::<u64>()).prop_map(move |(aperture, address)| {
        let address = address >> (64 - address_bits(format, aperture)) >> shift << shift;
        PhysicalAddress { aperture, address }
    })
}

fn pdes(format: Gmmu, shift: u32) -> impl Strategy<Value = Pde> {
    prop_oneof![Just(Pde::Invalid), Just(Pde::Sparse), addresses(format, shift).prop_map(Pde::Table)]
}

fn ptes(format: Gmmu) -> impl Strategy<Value = Pte> {
    let kinds = match format {
        Gmmu::V2 | Gmmu::V2Ampere => 0..=u8::MAX,
        Gmmu::V3 => 0..=15,
    };
    (addresses(format, 12), any::<bool>(), any::<bool>(), kinds)
        .prop_map(|(target, read_only, privileged, kind)| Pte { target, read_only, privileged, kind })
}

fn fits(format: Gmmu, address: PhysicalAddress, unit: u64) -> bool {
    address.address < 1 << address_bits(format, address.aperture) && address.address.is_multiple_of(unit)
}

proptest! {
    #[test]
    fn encoded_pde_decodes_to_itself(
        (format, pde) in formats().prop_flat_map(|format| (Just(format), pdes(format, 12))),
    ) {
        prop_assert_eq!(format.decode_directory(format.encode_pde(pde)), Directory::Pde(pde));
    }

    #[test]
    fn encoded_dual_pde_decodes_to_itself(
        (format, big, small) in
            formats().prop_flat_map(|format| (Just(format), pdes(format, 8), pdes(format, 12))),
    ) {
        let entry = format.decode_dual(format.encode_tables(big, small));
        prop_assert_eq!(entry, DualPde::Tables { big, small });
    }

    #[test]
    fn encoded_pte_decodes_to_itself_at_every_level(
        (format, pte) in formats().prop_flat_map(|format| (Just(format), ptes(format))),
    ) {
        let raw = format.encode_page(pte);
        prop_assert_eq!(format.decode_page(raw), Ok(pte));
        prop_assert_eq!(format.decode_directory(raw), Directory::Page(Ok(pte)));
        prop_assert_eq!(format.decode_dual(raw.into()), DualPde::Page(Ok(pte)));
    }

    #[test]
    fn any_word_decodes_within_the_format(format in formats(), raw: u128) {
        let (low, _) = entry::halves(raw);
        if let Directory::Pde(Pde::Table(table)) = format.decode_directory(low) {
            prop_assert!(fits(format, table, 4096));
        }
        if let DualPde::Tables { big, small } = format.decode_dual(raw) {
            prop_assert!(big.table().is_none_or(|table| fits(format, table, 256)));
            prop_assert!(small.table().is_none_or(|table| fits(format, table, 4096)));
        }
        if let Ok(pte) = format.decode_page(low) {
            prop_assert!(fits(format, pte.target, 4096));
            prop_assert!(format != Gmmu::V3 || pte.kind < 16);
        }
    }

    #[test]
    fn indices_and_the_page_offset_take_an_address_apart(format in formats(), va: u64) {
        let va = va & format.va_max();
        let directories = Level::ALL.into_iter().filter(|level| (Level::Pd0..=format.root()).contains(level));
        let upper = directories.map(|level| format.index(level, va) << level.shift()).sum::<u64>();
        for table in [Level::Small, Level::Big] {
            let page = format.index(table, va) << table.shift();
            prop_assert_eq!(upper + page + (va & ((1 << table.shift()) - 1)), va);
        }
    }

    #[test]
    fn one_step_is_one_page(
        (format, pte) in formats().prop_flat_map(|format| (Just(format), ptes(format))),
        level in prop_oneof![Just(Level::Small), Just(Level::Big), Just(Level::Pd0), Just(Level::Pd1)],
    ) {
        let address = pte.target.address.saturating_add(1 << level.shift());
        let next = Pte { target: PhysicalAddress { address, ..pte.target }, ..pte };
        prop_assume!(fits(format, next.target, 4096));
        prop_assert_eq!(format.encode_page(next), format.encode_page(pte) + format.page_step(level));
    }
}

#[test]
fn tables_cover_what_an_entry_of_the_directory_above_covers() {
    for format in Gmmu::ALL {
        let mut above = format.root();
        assert_eq!(format.entries(above) << above.shift(), 1 << format.va_bits());
        while let Some(below) = above.below() {
            assert_eq!(format.entries(below) << below.shift(), 1 << above.shift(), "{below:?}");
            above = below;
        }
        for pages in [Level::Small, Level::Big] {
            assert_eq!(format.entries(pages) << pages.shift(), 1 << above.shift());
        }
    }
    let entries = |format: Gmmu| Level::ALL.map(|level| format.entries(level));
    assert_eq!(entries(Gmmu::V3), [512, 32, 256, 512, 512, 512, 2]);
    for version_2 in [Gmmu::V2, Gmmu::V2Ampere] {
        assert_eq!(entries(version_2)[..6], [512, 32, 256, 512, 512, 4]);
    }
}

#[test]
fn pages_of_512_mib_are_there_from_ampere_on() {
    let largest = |format: Gmmu| Level::ALL.into_iter().rev().find(|level| format.has_pages(*level));
    assert_eq!(Gmmu::ALL.map(largest), [Level::Pd0, Level::Pd1, Level::Pd1].map(Some));
}

#[test]
fn entries_that_are_not_valid_say_why() {
    use PteDefect::{NoSmallPages, NotValid, Nowhere, Peer, Sparse};
    for format in Gmmu::ALL {
        for defect in [NotValid, Sparse, NoSmallPages, Peer(5)] {
            assert_eq!(format.decode_page(format.encode_defect(defect)), Err(defect), "{format:?}");
        }
        // A sparse page entry written over a directory's entry is sparse there too, as drivers rely on.
        assert_eq!(format.decode_directory(format.encode_defect(Sparse)), Directory::Pde(Pde::Sparse));
    }
    assert_eq!(Gmmu::V3.decode_page(Gmmu::V3.encode_defect(Nowhere)), Err(Nowhere));
    assert_eq!(Gmmu::V2.decode_page(Gmmu::V2.encode_defect(Nowhere)), Err(NotValid));
}

fn at(aperture: Aperture, address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture, address }
}

#[test]
fn words_of_a_running_driver_decode_in_version_3() {
    // Values by the formulas of nouveau: PCF 0x10 (VRAM), 0x11 (coherent), 0x14 (read-only), kind 6.
    let pte = |raw| Gmmu::V3.decode_page(raw).unwrap();
    let target = at(Aperture::Vram, 0x12_3000);
    assert_eq!(pte(0x0000_0000_0012_3681), Pte { target, read_only: false, privileged: false, kind: 6 });
    assert_eq!(pte(0x0000_0001_0000_008d).target.aperture, Aperture::SystemCoherent);
    assert!(pte(0x0000_0000_0012_30a1).read_only);
    assert!(pte(0x0000_0000_0012_3091).privileged);
    let table = Pde::Table(at(Aperture::Vram, 0xff_f000));
    assert_eq!(Gmmu::V3.decode_directory(0xff_f012), Directory::Pde(table));
}

#[test]
fn words_of_a_running_driver_decode_in_version_2() {
    // Values by the formulas of nouveau: the address shifted right by 4, aperture from bit 1 on, volatile
    // where memory is snooped, the kind from bit 56 on.
    let pte = |raw| Gmmu::V2.decode_page(raw);
    let plain = |target| Ok(Pte { target, read_only: false, privileged: false, kind: 0 });
    let vram = at(Aperture::Vram, 0x12_3000);
    assert_eq!(pte(0x0000_0000_0001_2301), plain(vram));
    assert_eq!(pte(0x0600_0000_0001_2301), Ok(Pte { kind: 6, ..plain(vram).unwrap() }));
    assert_eq!(pte(0x0000_0000_0001_2361).map(|page| (page.read_only, page.privileged)), Ok((true, true)));
    assert_eq!(pte(0x0000_0000_1000_000d), plain(at(Aperture::SystemCoherent, 0x1_0000_0000)));
    assert_eq!(pte(0x0000_07ff_ffff_ff0f), plain(at(Aperture::SystemNonCoherent, 0x7fff_ffff_f000)));
    // A compressed page's tags stand behind the address. So does a number that no page in VRAM has.
    assert_eq!(
        pte(0x08ff_ffff_0001_2301),
        Ok(Pte { kind: 8, ..plain(at(Aperture::Vram, 0x10_0012_3000)).unwrap() })
    );
    assert_eq!(pte(0x08ff_fffe_0001_2301), Ok(Pte { kind: 8, ..plain(vram).unwrap() }));
    assert_eq!(pte(0x0000_000a_0000_0003), Err(PteDefect::Peer(5)));
    // No valid page: sparse, and a big page that forbids to look for small ones.
    assert_eq!(pte(0x08), Err(PteDefect::Sparse));
    assert_eq!(pte(0x20), Err(PteDefect::NoSmallPages));
    assert_eq!(pte(0), Err(PteDefect::NotValid));

    let table = |aperture, address| Directory::Pde(Pde::Table(at(aperture, address)));
    assert_eq!(Gmmu::V2.decode_directory(0x000f_ff02), table(Aperture::Vram, 0xff_f000));
    assert_eq!(Gmmu::V2.decode_directory(0x1000_000c), table(Aperture::SystemCoherent, 0x1_0000_0000));
    // Both tables of a dual entry: that of big pages is 256 bytes long, and lies anywhere.
    let dual = 0x0000_0000_0000_7012_u128 | 0x0000_0000_0008_000c << 64;
    let big = Pde::Table(at(Aperture::Vram, 0x7_0100));
    let small = Pde::Table(at(Aperture::SystemCoherent, 0x80_0000));
    assert_eq!(Gmmu::V2.decode_dual(dual), DualPde::Tables { big, small });
}
