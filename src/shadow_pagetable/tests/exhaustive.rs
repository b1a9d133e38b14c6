//! Page entries with every combination of the bits that decide, at every border of the guest's memory, in
//! whole tables: an entry is mapped exactly if it is valid, names memory of ours, and all of its page is the
//! guest's.

use super::*;
use gpuvmk_chip::gf100::mmu::{LargePages, Pde};
use gpuvmk_chip::gmmu::{self, Gmmu, Level};

/// The range of system memory that there is.
const SYSTEM: (u64, u64) = (0x10_0000, 0x30_0000);

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

/// Addresses on the borders of VRAM and of system memory, a page before and behind, and at the end of what an
/// entry can say.
fn borders(bits: u32) -> Vec<u64> {
    let mut all: Vec<u64> = [0, VRAM, SYSTEM.0, SYSTEM.1, 1 << (bits - 1), 1 << bits]
        .into_iter()
        .flat_map(|border: u64| {
            [0u64, 0x1000, 0x1_0000, 0x2_0000, 0x20_0000]
                .into_iter()
                .flat_map(move |by| [border.wrapping_add(by), border.wrapping_sub(by)])
        })
        .map(|address| address & ((1 << bits) - 1))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// What an entry must become, by its bits.
fn expected(valid: bool, aperture: u64, address: u64, shift: u8) -> Option<PhysicalAddress> {
    let aperture = match aperture {
        0 => Aperture::Vram,
        2 => Aperture::SystemCoherent,
        3 => Aperture::SystemNonCoherent,
        _ => return None,
    };
    let address = address >> shift << shift;
    let end = u128::from(address) + (1 << shift);
    let inside = match aperture {
        Aperture::Vram => end <= u128::from(VRAM),
        _ => address >= SYSTEM.0 && end <= u128::from(SYSTEM.1),
    };
    (valid && inside).then_some(PhysicalAddress { aperture, address })
}

/// Synchronises tables of entries, one table after the other, and compares every page.
fn compare<F: MmuFormat>(
    format: F,
    memory: &Memory,
    root: u64,
    table: u64,
    shift: u8,
    entries: &[(u64, Option<PhysicalAddress>)],
    in_table: usize,
) {
    memory.system.replace(Some(SYSTEM));
    let mut budget = Budget::new(format.limits());
    let mut space = ShadowSpace::new(format, vram(root), &mut budget).unwrap();
    let mut shadow = Shadow::default();
    for chunk in entries.chunks(in_table) {
        for (index, (raw, _)) in (0u64..).zip(chunk) {
            memory.write_u64(table + index * 8, *raw);
        }
        space.sync(memory, &mut budget, &mut shadow).unwrap();
        for (index, (raw, target)) in (0u64..).zip(chunk) {
            let mapped = shadow.pages.get(&(shift, index << shift)).map(|leaf| leaf.target);
            assert_eq!(mapped, *target, "entry {raw:#x} of pages of 2^{shift}");
        }
        assert!(shadow.pages.keys().all(|(size, _)| *size == shift));
    }
}

#[test]
fn every_page_entry_of_a_gf100_is_mapped_exactly_if_it_may_be() {
    for (large, shift) in [(false, 12), (true, 17), (true, 16)] {
        let format = Fermi { large_pages: LargePages::from_64k(shift == 16) };
        let memory = Memory::new(VRAM);
        let (root, table) = (0, 0x10_0000);
        let target = Some(vram(table));
        let pde = if large { Pde { large: target, small: None } } else { Pde { large: None, small: target } };
        memory.write_u64(root, pde.encode());
        let mut entries = Vec::new();
        for address in borders(40) {
            // Valid, privileged, read-only and encrypted; aperture; volatile; the low address bit of a
            // 256-byte unit.
            for low in 0..16u64 {
                for (aperture, rest) in
                    (0..4u64).flat_map(|aperture| (0..4u64).map(move |rest| (aperture, rest)))
                {
                    let kind = [0, 0xfe, 0xff, 0x7a][usize::try_from(rest).unwrap()];
                    let raw =
                        low | (address >> 8 & 0xffff_fff0) | (rest & 1) << 32 | aperture << 33 | kind << 36;
                    let target = expected(low & 1 != 0, aperture, address & !0xfff, shift);
                    entries.push((raw, target));
                }
            }
        }
        let in_table = usize::try_from(format.large_pages.table_entries(shift)).unwrap().min(512);
        compare(format, &memory, root, table, shift, &entries, in_table);
    }
}

/// Tables of a format, a directory a page from 0 on; the lowest names `table`.
fn directories(format: Gmmu, level: Level, table: u64, memory: &Memory) {
    let named = |address| gmmu::Pde::Table(vram(address));
    let (mut directory, mut lowest) = (format.root(), 0);
    while let Some(below) = directory.below() {
        memory.write_u64(lowest, format.encode_pde(named(lowest + 0x1000)));
        (directory, lowest) = (below, lowest + 0x1000);
    }
    let dual = match level {
        Level::Small => format.encode_tables(gmmu::Pde::Invalid, named(table)),
        _ => format.encode_tables(named(table), gmmu::Pde::Invalid),
    };
    memory.write(lowest, &dual.to_le_bytes());
}

#[test]
fn every_page_entry_of_version_3_is_mapped_exactly_if_it_may_be() {
    for level in [Level::Small, Level::Big] {
        let memory = Memory::new(VRAM);
        let table = 0x10_0000;
        directories(Gmmu::V3, level, table, &memory);
        let mut entries = Vec::new();
        for address in borders(52) {
            // Valid; aperture; the five bits that classify; a storage kind; the peer's number.
            for low in 0..2u64 << 7 {
                for peer in [0, 7u64] {
                    let (valid, aperture, pcf) = (low & 1, low >> 1 & 3, low >> 3);
                    let raw = valid
                        | aperture << 1
                        | pcf << 3
                        | (pcf & 0xf) << 8
                        | (address & 0x000f_ffff_ffff_f000)
                        | peer << 61;
                    let target = expected(valid != 0, aperture, address & !0xfff, level.shift());
                    entries.push((raw, target));
                }
            }
        }
        let in_table = usize::try_from(Gmmu::V3.entries(level)).unwrap();
        compare(Gmmu::V3, &memory, 0, table, level.shift(), &entries, in_table);
    }
}

#[test]
fn every_page_entry_of_version_2_is_mapped_exactly_if_it_may_be() {
    for level in [Level::Small, Level::Big] {
        let memory = Memory::new(VRAM);
        let table = 0x10_0000;
        directories(Gmmu::V2, level, table, &memory);
        let mut entries = Vec::new();
        for address in borders(58) {
            // Valid, aperture, volatile, a bit without meaning, privileged, read-only, atomics; what stands
            // between VRAM's address and the kind: a peer's number and tags; kinds.
            for low in 0..1u64 << 8 {
                for (between, kind) in [(0, 0), (5, 6), (0x7f_ffff, 0xff)] {
                    let (valid, aperture) = (low & 1, low >> 1 & 3);
                    let (address, between) = match aperture {
                        0 | 1 => (address & 0x1f_ffff_f000, between << 33),
                        _ => (address & !0xfff, 0),
                    };
                    let raw = low | address >> 4 | between | kind << 56;
                    entries.push((raw, expected(valid != 0, aperture, address, level.shift())));
                }
            }
        }
        let in_table = usize::try_from(Gmmu::V2.entries(level)).unwrap();
        compare(Gmmu::V2, &memory, 0, table, level.shift(), &entries, in_table);
    }
}
