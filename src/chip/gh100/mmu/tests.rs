use proptest::prelude::*;

use super::*;

fn apertures() -> impl Strategy<Value = Aperture> {
    prop_oneof![Just(Aperture::Vram), Just(Aperture::SystemCoherent), Just(Aperture::SystemNonCoherent)]
}

fn addresses(shift: u32) -> impl Strategy<Value = PhysicalAddress> {
    (apertures(), 0u64..1 << (52 - shift))
        .prop_map(move |(aperture, page)| PhysicalAddress { aperture, address: page << shift })
}

fn pdes(shift: u32) -> impl Strategy<Value = Pde> {
    prop_oneof![Just(Pde::Invalid), Just(Pde::Sparse), addresses(shift).prop_map(Pde::Table)]
}

fn ptes() -> impl Strategy<Value = Pte> {
    (addresses(12), any::<bool>(), any::<bool>(), 0u8..16)
        .prop_map(|(target, read_only, privileged, kind)| Pte { target, read_only, privileged, kind })
}

proptest! {
    #[test]
    fn encoded_pde_decodes_to_itself(pde in pdes(12)) {
        prop_assert_eq!(Directory::decode(encode_pde(pde)), Directory::Pde(pde));
    }

    #[test]
    fn encoded_dual_pde_decodes_to_itself(big in pdes(8), small in pdes(12)) {
        let entry = DualPde::decode(DualPde::tables(big, small));
        prop_assert_eq!(entry, DualPde::Tables { big, small });
    }

    #[test]
    fn encoded_pte_decodes_to_itself_at_every_level(pte in ptes()) {
        prop_assert_eq!(Pte::decode(pte.encode()), Ok(pte));
        prop_assert_eq!(Directory::decode(pte.encode()), Directory::Page(Ok(pte)));
        prop_assert_eq!(DualPde::decode(DualPde::page(pte)), DualPde::Page(Ok(pte)));
    }

    #[test]
    fn any_word_decodes_within_the_format(raw: u128) {
        let (low, _) = halves(raw);
        if let Directory::Pde(Pde::Table(table)) = Directory::decode(low) {
            prop_assert!(table.address < 1 << 52 && table.address.is_multiple_of(4096));
        }
        if let DualPde::Tables { big, small } = DualPde::decode(raw) {
            prop_assert!(big.table().is_none_or(|t| t.address < 1 << 52 && t.address.is_multiple_of(256)));
            prop_assert!(small.table().is_none_or(|t| t.address < 1 << 52 && t.address.is_multiple_of(4096)));
        }
        if let Ok(pte) = Pte::decode(low) {
            prop_assert!(pte.target.address < 1 << 52 && pte.target.address.is_multiple_of(4096));
            prop_assert!(pte.kind < 16);
        }
    }

    #[test]
    fn indices_and_the_page_offset_take_an_address_apart(va in 0..=VA_MAX) {
        let directories = [Level::Pd4, Level::Pd3, Level::Pd2, Level::Pd1, Level::Pd0];
        let upper = directories.iter().map(|level| level.index(va) << level.shift()).sum::<u64>();
        for table in [Level::Small, Level::Big] {
            let page = table.index(va) << table.shift();
            prop_assert_eq!(upper + page + (va & ((1 << table.shift()) - 1)), va);
        }
    }
}

#[test]
fn tables_cover_what_an_entry_of_the_directory_above_covers() {
    for level in Level::ALL {
        if let Some(below) = level.below() {
            assert_eq!(below.entries() << below.shift(), 1 << level.shift(), "{level:?}");
        }
    }
    assert_eq!(Level::Small.entries() << Level::Small.shift(), 1 << Level::Pd0.shift());
    assert_eq!(Level::Big.entries() << Level::Big.shift(), 1 << Level::Pd0.shift());
    assert_eq!(Level::Pd4.entries() << Level::Pd4.shift(), 1 << VA_BITS);
}

#[test]
fn entries_that_are_not_valid_say_why() {
    for defect in [
        PteDefect::NotValid,
        PteDefect::Sparse,
        PteDefect::Nowhere,
        PteDefect::NoSmallPages,
        PteDefect::Peer(5),
    ] {
        assert_eq!(Pte::decode(defect.encode()), Err(defect));
    }
    // A sparse page entry written over a directory's entry is sparse there too, as drivers rely on.
    assert_eq!(Directory::decode(PteDefect::Sparse.encode()), Directory::Pde(Pde::Sparse));
}

#[test]
fn words_of_a_running_driver_decode() {
    // Values by the formulas of nouveau: PCF 0x10 (VRAM), 0x11 (coherent), 0x14 (read-only), kind 6.
    let vram = |address| PhysicalAddress { aperture: Aperture::Vram, address };
    let pte = |raw| Pte::decode(raw).unwrap();
    assert_eq!(
        pte(0x0000_0000_0012_3681),
        Pte { target: vram(0x12_3000), read_only: false, privileged: false, kind: 6 }
    );
    assert_eq!(pte(0x0000_0001_0000_008d).target.aperture, Aperture::SystemCoherent);
    assert!(pte(0x0000_0000_0012_30a1).read_only);
    assert!(pte(0x0000_0000_0012_3091).privileged);
    assert_eq!(Directory::decode(0xff_f012), Directory::Pde(Pde::Table(vram(0xff_f000))));
}
