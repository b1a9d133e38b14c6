use std::cell::RefCell;

use proptest::prelude::*;

use super::*;
use crate::aperture::Window;
use gpuvmk_chip::gmmu::{Level, Pde, Pte, PteDefect};
use gpuvmk_chip::{AccessKind, Aperture};
use gpuvmk_shadow_pagetable::{MmuFormat, Shape};

const ROOT: u64 = 0x1000;
const PD3: u64 = 0x2000;
const PD2: u64 = 0x3000;
const PD1: u64 = 0x4000;
const PD0: u64 = 0x5000;
const BIG: u64 = 0x6100;
const SMALL: u64 = 0x7000;

/// 64 KiB of VRAM that hold the tables; pages may be said to lie anywhere.
struct Vram(RefCell<Vec<u8>>);

impl Vram {
    fn put(&self, address: u64, data: &[u8]) {
        assert!(self.write(vram(address), data));
    }
}

impl PhysicalMemory for Vram {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> bool {
        let memory = self.0.borrow();
        let start = usize::try_from(address.address).unwrap_or(usize::MAX);
        let from = start.checked_add(data.len()).and_then(|end| memory.get(start..end));
        from.filter(|_| address.aperture == Aperture::Vram).map(|from| data.copy_from_slice(from)).is_some()
    }

    fn write(&self, address: PhysicalAddress, data: &[u8]) -> bool {
        let mut memory = self.0.borrow_mut();
        let start = usize::try_from(address.address).unwrap_or(usize::MAX);
        let to = start.checked_add(data.len()).and_then(|end| memory.get_mut(start..end));
        to.filter(|_| address.aperture == Aperture::Vram).map(|to| to.copy_from_slice(data)).is_some()
    }
}

const fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn table(format: Gmmu, address: u64) -> [u8; 8] {
    format.encode_pde(Pde::Table(vram(address))).to_le_bytes()
}

fn entry(format: Gmmu, page: Pte) -> [u8; 8] {
    format.encode_page(page).to_le_bytes()
}

fn large_entry(format: Gmmu, page: Pte) -> [u8; 16] {
    u128::from(format.encode_page(page)).to_le_bytes()
}

fn defect(format: Gmmu, defect: PteDefect) -> [u8; 8] {
    format.encode_defect(defect).to_le_bytes()
}

fn page(address: u64) -> Pte {
    Pte { target: vram(address), read_only: false, privileged: false, kind: 6 }
}

/// The table that the root's first entry names.
fn below_root(format: Gmmu) -> u64 {
    if format.root() == Level::Pd4 { PD3 } else { PD2 }
}

/// Tables with a page of each size: 4 KiB and 64 KiB in the first 2 MiB, then one of 2 MiB, and one of 512
/// MiB.
fn tables(format: Gmmu) -> (Vram, Window<GmmuTables<Gmmu>>) {
    let memory = Vram(RefCell::new(vec![0; 0x1_0000]));
    memory.put(ROOT, &table(format, below_root(format)));
    memory.put(PD3, &table(format, PD2));
    memory.put(PD2, &table(format, PD1));
    memory.put(PD1, &table(format, PD0));
    let dual = format.encode_tables(Pde::Table(vram(BIG)), Pde::Table(vram(SMALL)));
    memory.put(PD0, &dual.to_le_bytes());
    memory.put(PD0 + 16, &large_entry(format, page(0x4020_0000)));
    memory.put(PD1 + 8, &entry(format, page(0x8000_0000)));
    memory.put(SMALL, &entry(format, page(0x10_0000)));
    memory.put(BIG + 8, &entry(format, page(0x20_0000)));
    let window = Window::new(GmmuTables { format, root: GmmuRoot::Root(vram(ROOT)) });
    (memory, window)
}

#[test]
fn pages_of_every_size_are_found() {
    for format in Gmmu::ALL {
        let (memory, mut window) = tables(format);
        let mut at = |va| window.translate(va, AccessKind::Write, &memory);
        assert_eq!(at(0x123), Ok(vram(0x10_0123)));
        assert_eq!(at(0x1_2345), Ok(vram(0x20_2345)));
        assert_eq!(at((2 << 20) + 0x1f_fffc), Ok(vram(0x4020_0000 + 0x1f_fffc)));
        let largest = at((512 << 20) + 0x0123_4567);
        if format == Gmmu::V2 {
            assert_eq!(largest.map_err(|fault| fault.reason), Err(FaultReason::PageTableNotPresent));
        } else {
            assert_eq!(largest, Ok(vram(0x8000_0000 + 0x0123_4567)), "{format:?}");
        }
    }
}

#[test]
fn root_entry_gives_the_same_pages_and_ends_with_its_part() {
    for (format, part) in [(Gmmu::V2, 1 << 47), (Gmmu::V2Ampere, 1 << 47), (Gmmu::V3, 1 << 56)] {
        let (memory, mut window) = tables(format);
        let root = GmmuRoot::RootEntry(u64::from_le_bytes(table(format, below_root(format))));
        window.set_tables(GmmuTables { format, root });
        assert_eq!(window.tables().first_table(), Some(vram(below_root(format))));
        assert_eq!(window.translate(0x123, AccessKind::Read, &memory), Ok(vram(0x10_0123)));
        let beyond = window.translate(part, AccessKind::Read, &memory).unwrap_err();
        assert_eq!(beyond.reason, FaultReason::VmLimitExceeded);
    }
}

#[test]
fn big_page_wins_and_its_marks_hide_small_ones() {
    for format in Gmmu::ALL {
        let (memory, mut window) = tables(format);
        let mut at = |va| {
            window.flush_all();
            window.translate(va, AccessKind::Read, &memory).map_err(|fault| fault.reason)
        };
        memory.put(BIG, &entry(format, page(0x30_0000)));
        assert_eq!(at(0x123), Ok(vram(0x30_0123)));
        for hiding in [PteDefect::NoSmallPages, PteDefect::Sparse] {
            memory.put(BIG, &defect(format, hiding));
            assert_eq!(at(0x123), Err(FaultReason::PageNotPresent), "{format:?} {hiding:?}");
        }
        memory.put(BIG, &defect(format, PteDefect::NotValid));
        assert_eq!(at(0x123), Ok(vram(0x10_0123)));
    }
}

#[test]
fn each_defect_has_its_reason() {
    for format in Gmmu::ALL {
        let (memory, mut window) = tables(format);
        memory.put(SMALL + 8, &entry(format, Pte { read_only: true, ..page(0x10_0000) }));
        memory.put(SMALL + 16, &defect(format, PteDefect::Peer(1)));
        memory.put(PD1 + 16, &table(format, 0x7fff_f000));
        let mut reason = |va| window.translate(va, AccessKind::Write, &memory).unwrap_err().reason;
        assert_eq!(reason(0x1000), FaultReason::WriteToReadOnly);
        assert_eq!(reason(0x2000), FaultReason::UnsupportedAperture);
        assert_eq!(reason(0x3000), FaultReason::PageNotPresent);
        assert_eq!(reason(2 << 29), FaultReason::UnsupportedAperture);
        assert_eq!(reason(3 << 29), FaultReason::PageTableNotPresent);
        assert_eq!(reason(format.va_max() + 1), FaultReason::VmLimitExceeded);
    }
}

#[test]
fn translation_is_stale_until_the_flush() {
    let format = Gmmu::V2;
    let (memory, mut window) = tables(format);
    let mut at = |flush: bool| {
        if flush {
            window.flush_all();
        }
        window.translate(0, AccessKind::Read, &memory)
    };
    assert_eq!(at(false), Ok(vram(0x10_0000)));
    memory.put(SMALL, &entry(format, page(0x50_0000)));
    assert_eq!(at(false), Ok(vram(0x10_0000)));
    assert_eq!(at(true), Ok(vram(0x50_0000)));
}

/// A format of three levels over 18 bits of address: pages of 4 KiB and of 16 KiB, 64 KiB to an entry of the
/// directory, of 16 bytes, which names small pages first.
#[derive(Clone, Copy, Debug)]
struct Tiny;

const TINY_SMALL: TableKind = TableKind(0);
const TINY_LARGE: TableKind = TableKind(1);
const TINY_DIRECTORY: TableKind = TableKind(2);

impl MmuFormat for Tiny {
    fn root(&self) -> TableKind {
        TINY_DIRECTORY
    }

    fn shape(&self, kind: TableKind) -> Shape {
        match kind {
            TINY_SMALL => Shape { entries: 16, entry_size: 8, entry_shift: 12 },
            TINY_LARGE => Shape { entries: 4, entry_size: 8, entry_shift: 14 },
            _ => Shape { entries: 4, entry_size: 16, entry_shift: 16 },
        }
    }

    fn decode(&self, kind: TableKind, raw: u128) -> Entry {
        let address = |raw: u128| vram(u64::try_from(raw & 0xf_f000).unwrap());
        match (kind, raw & 3) {
            (_, 0) => Entry::Empty,
            (TINY_DIRECTORY, _) => {
                let table = |kind, raw: u128| (raw != 0).then(|| SubTable { kind, address: address(raw) });
                Entry::Tables([
                    table(TINY_SMALL, raw >> 64),
                    table(TINY_LARGE, raw & u128::from(u64::MAX) & !3),
                ])
            }
            (_, 1) => Entry::Page(Leaf { target: address(raw), read_only: false, kind: 0 }),
            _ => Entry::Refused,
        }
    }
}

impl WindowFormat for Tiny {
    fn emptiness(&self, kind: TableKind, raw: u128) -> Emptiness {
        match kind {
            TINY_DIRECTORY => Emptiness::NoTable,
            _ if raw == 4 => Emptiness::NoSmallerPage,
            _ => Emptiness::NoPage,
        }
    }
}

#[test]
fn walk_knows_a_format_by_its_decoder_alone() {
    let memory = Vram(RefCell::new(vec![0; 0x1_0000]));
    let put = |address, entry: u64| memory.put(address, &entry.to_le_bytes());
    // The second entry of the root: both tables. The third: large pages only.
    put(ROOT + 16, BIG & !0xfff | 1);
    put(ROOT + 24, SMALL);
    put(ROOT + 32, PD0 | 1);
    put(BIG & !0xfff, 0x2_0000 | 1);
    put((BIG & !0xfff) + 8, 4);
    put((BIG & !0xfff) + 24, 2);
    put(SMALL + 8 * 4, 0x3_0000 | 1);
    put(SMALL + 8 * 8, 0x3_4000 | 1);
    let tables = |root| GmmuTables { format: Tiny, root };
    let walk = |va| tables(GmmuRoot::Root(vram(ROOT))).walk(va, &memory);
    let found = |va| (walk(va).found.map(|mapping| mapping.target), walk(va).shift);
    assert_eq!(found(0x1_2000), (Ok(vram(0x2_2000)), 14), "the large page");
    assert_eq!(found(0x1_4000), (Err(FaultReason::PageNotPresent), 14), "hidden by the large table");
    assert_eq!(found(0x1_8000), (Ok(vram(0x3_4000)), 12), "no large page, but a small one");
    assert_eq!(found(0x1_9000), (Err(FaultReason::PageNotPresent), 12));
    assert_eq!(found(0x1_c000), (Err(FaultReason::UnsupportedAperture), 14));
    assert_eq!(found(0x2_0000), (Err(FaultReason::PageNotPresent), 14), "there are no small pages");
    assert_eq!(found(0), (Err(FaultReason::PageTableNotPresent), 16));
    assert_eq!(found(0x4_0000), (Err(FaultReason::VmLimitExceeded), 12));

    let entry = tables(GmmuRoot::RootEntry(PD0 | 1));
    assert_eq!(entry.first_table(), Some(vram(PD0)));
    assert_eq!(entry.walk(0x1_0000, &memory).found, Err(FaultReason::VmLimitExceeded));
    put(PD0, 0x4_0000 | 1);
    assert_eq!(entry.walk(0x1000, &memory).found.map(|mapping| mapping.target), Ok(vram(0x4_1000)));
    assert_eq!(tables(GmmuRoot::RootEntry(0)).first_table(), None);
    assert_eq!(tables(GmmuRoot::Physical).walk(0x7000, &memory).found.map(|m| m.target), Ok(vram(0x7000)));
}

fn formats() -> impl Strategy<Value = Gmmu> {
    proptest::sample::select(&Gmmu::ALL[..])
}

proptest! {
    #[test]
    fn runs_are_what_each_page_says(
        format in formats(),
        entries in prop::collection::vec((any::<bool>(), 0u64..96, 0u64..64, 0u8..4), 0..60),
        dual in 0u8..5,
        seen in prop::collection::vec(0u64..96, 0..8),
        stale in any::<bool>(),
    ) {
        let (memory, mut window) = tables(format);
        let (big, small) = (Pde::Table(vram(BIG)), Pde::Table(vram(SMALL)));
        match dual {
            0 => memory.put(PD0, &[0; 16]),
            1 => memory.put(PD0, &large_entry(format, page(0x60_0000))),
            2 => memory.put(PD0, &format.encode_tables(Pde::Invalid, small).to_le_bytes()),
            3 => memory.put(PD0, &format.encode_tables(big, Pde::Invalid).to_le_bytes()),
            _ => memory.put(PD0, &format.encode_tables(big, small).to_le_bytes()),
        }
        let put = |(is_big, index, number, kind): &(bool, u64, u64, u8)| {
            let (table, shift) = if *is_big { (BIG, 16) } else { (SMALL, 12) };
            let pte = Pte { read_only: *kind == 1, ..page(0x10_0000 + (number << shift)) };
            let raw = if *kind == 0 { 0 } else { format.encode_page(pte) };
            memory.put(table + if *is_big { index % 8 } else { *index } * 8, &raw.to_le_bytes());
        };
        // What was translated before tables changed stays as it was.
        let (before, after) = entries.split_at(if stale { entries.len() / 2 } else { entries.len() });
        before.iter().for_each(put);
        for page in seen {
            let _ = window.translate(page << 12, AccessKind::Read, &memory);
        }
        after.iter().for_each(put);
        window.check_runs(0, 0x10_0000, &memory);
        window.check_runs(0x1f_0000, 0x2_0000, &memory);
    }

    #[test]
    fn random_tables_and_accesses_never_panic(
        format in formats(),
        words in prop::collection::vec((0usize..0x2000, any::<u64>(), any::<bool>()), 0..200),
        root in any::<u64>(),
        accesses in prop::collection::vec((any::<u64>(), 0usize..24), 1..40),
    ) {
        let memory = Vram(RefCell::new(vec![0; 0x1_0000]));
        for (index, value, near) in words {
            let value = if near { value & 0xf0ff | 2 } else { value };
            memory.put(index as u64 * 8, &value.to_le_bytes());
        }
        let mut window = Window::new(GmmuTables { format, root: GmmuRoot::Physical });
        for root in [GmmuRoot::RootEntry(root), GmmuRoot::Root(vram(root & 0xf000))] {
            window.set_tables(GmmuTables { format, root });
            for (address, len) in &accesses {
                let mut data = vec![0; *len];
                let _ = window.read(*address, &mut data, &memory);
                let _ = window.write(*address & 0x3ff_ffff, &data, &memory);
            }
        }
    }
}
