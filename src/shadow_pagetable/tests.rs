//! The shadow against a naive walker: whatever the tables are and however they change, the runs of all
//! synchronisations add up to what a walk from scratch finds.

#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;

use super::*;
use crate::addr::{GpuVa, GuestVram};
use crate::aggregator::protocol::{GuestMapping, GuestRange, GuestTarget, MAX_UPDATE_RUNS};
use crate::chip::Aperture;
use crate::chip::gf100::mmu::{LargePages, Pde, Pte};

const VRAM: u64 = 4 << 20;

/// Guest memory: VRAM as bytes, system memory as one range that exists or not.
struct Memory {
    vram: RefCell<Vec<u8>>,
    system: RefCell<Option<(u64, u64)>>,
}

impl Memory {
    fn new(vram: u64) -> Self {
        Self { vram: RefCell::new(vec![0; vram as usize]), system: RefCell::new(None) }
    }

    fn write(&self, address: u64, data: &[u8]) {
        let start = address as usize;
        if let Some(bytes) = self.vram.borrow_mut().get_mut(start..start + data.len()) {
            bytes.copy_from_slice(data);
        }
    }

    fn write_u64(&self, address: u64, value: u64) {
        self.write(address, &value.to_le_bytes());
    }
}

impl GuestMemory for Memory {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NoTarget> {
        let refused = NoTarget { address, size: data.len() };
        if address.aperture != Aperture::Vram {
            return Err(refused);
        }
        let start = usize::try_from(address.address).map_err(|_| refused)?;
        let end = start.checked_add(data.len()).ok_or(refused)?;
        data.copy_from_slice(self.vram.borrow().get(start..end).ok_or(refused)?);
        Ok(())
    }

    fn contains(&self, address: PhysicalAddress, size: u64) -> bool {
        let Some(end) = address.address.checked_add(size) else { return false };
        match address.aperture {
            Aperture::Vram => end <= self.vram.borrow().len() as u64,
            Aperture::SystemCoherent | Aperture::SystemNonCoherent => {
                self.system.borrow().is_some_and(|(start, stop)| address.address >= start && end <= stop)
            }
        }
    }
}

type Pages = BTreeMap<(u8, u64), Leaf>;

/// The shadow that the runs build up. Checks every run against the contract.
#[derive(Default)]
struct Shadow {
    pages: Pages,
    batches: usize,
}

impl RunSink for Shadow {
    type Error = Infallible;

    fn batch(&mut self, unmap: Vec<GuestRange>, map: Vec<GuestMapping>) -> Result<(), Infallible> {
        assert!(!unmap.is_empty() || !map.is_empty());
        assert!(unmap.len() + map.len() <= MAX_UPDATE_RUNS);
        self.batches += 1;
        for run in unmap {
            assert!(run.va.is_aligned(1 << run.page_shift));
            for page in 0..u64::from(run.pages) {
                let key = (run.page_shift, run.va.0 + (page << run.page_shift));
                assert!(self.pages.remove(&key).is_some(), "unmapped {key:x?}, which was not mapped");
            }
        }
        for run in map {
            assert!(run.va.is_aligned(1 << run.page_shift));
            for page in 0..u64::from(run.pages) {
                let offset = page << run.page_shift;
                let (aperture, base) = match run.target {
                    GuestTarget::Vram(address) => (Aperture::Vram, address.0),
                    GuestTarget::System { address, coherent: true } => (Aperture::SystemCoherent, address.0),
                    GuestTarget::System { address, coherent: false } => {
                        (Aperture::SystemNonCoherent, address.0)
                    }
                };
                let target = PhysicalAddress { aperture, address: base + offset };
                let leaf = Leaf { target, read_only: run.read_only, kind: run.kind };
                self.pages.insert((run.page_shift, run.va.0 + offset), leaf);
            }
        }
        Ok(())
    }
}

/// Walks a tree from scratch, entry by entry.
fn naive<F: MmuFormat>(format: F, root: PhysicalAddress, memory: &Memory) -> Pages {
    fn visit<F: MmuFormat>(format: F, table: SubTable, va: u64, memory: &Memory, pages: &mut Pages) {
        let shape = format.shape(table.kind);
        for index in 0..u64::from(shape.entries) {
            let mut raw = [0; 16];
            let entry = PhysicalAddress {
                address: table.address.address + index * shape.entry_size as u64,
                ..table.address
            };
            if memory.read(entry, &mut raw[..shape.entry_size]).is_err() {
                continue;
            }
            let va = va + (index << shape.entry_shift);
            match format.decode(table.kind, u128::from_le_bytes(raw)) {
                Entry::Page(leaf) if memory.contains(leaf.target, 1 << shape.entry_shift) => {
                    pages.insert((shape.entry_shift, va), leaf);
                }
                Entry::Tables(tables) => {
                    for table in tables.into_iter().flatten() {
                        visit(format, table, va, memory, pages);
                    }
                }
                Entry::Page(_) | Entry::Empty => {}
            }
        }
    }
    let mut pages = Pages::new();
    visit(format, SubTable { kind: format.root(), address: root }, 0, memory, &mut pages);
    pages
}

/// A format with four levels, 16-byte entries and pages in an upper level, in the manner of later chips, but with
/// four entries a table so that random trees are dense.
#[derive(Clone, Copy, Debug)]
struct Toy;

impl MmuFormat for Toy {
    fn root(&self) -> TableKind {
        TableKind(3)
    }

    fn shape(&self, kind: TableKind) -> Shape {
        let (entries, entry_shift) = match kind.0 {
            0 => (8, 12),
            1 => (2, 14),
            2 => (4, 15),
            _ => (4, 17),
        };
        Shape { entries, entry_size: 16, entry_shift }
    }

    fn decode(&self, kind: TableKind, raw: u128) -> Entry {
        let bytes = raw.to_le_bytes();
        let word = |at: usize| u64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        let vram = |address| PhysicalAddress { aperture: Aperture::Vram, address };
        match (bytes[0] % 4, kind.0) {
            (1, 0..=2) => {
                let shift = self.shape(kind).entry_shift;
                let aperture = if bytes[1] & 1 == 0 { Aperture::Vram } else { Aperture::SystemCoherent };
                let address = (word(4) % 64) << 12 >> shift << shift;
                Entry::Page(Leaf {
                    target: PhysicalAddress { aperture, address },
                    read_only: bytes[1] & 2 != 0,
                    kind: bytes[2] % 2,
                })
            }
            (2, 3) => Entry::Tables([Some(SubTable { kind: TableKind(2), address: vram(word(4)) }), None]),
            (2, 2) => Entry::Tables([
                Some(SubTable { kind: TableKind(0), address: vram(word(4)) }),
                Some(SubTable { kind: TableKind(1), address: vram(word(8)) }),
            ]),
            (3, 2) => Entry::Tables([None, Some(SubTable { kind: TableKind(1), address: vram(word(8)) })]),
            _ => Entry::Empty,
        }
    }
}

/// What a guest, or its machine, does between two synchronisations.
#[derive(Clone, Debug)]
enum Edit {
    Entry { slot: u16, content: [u8; 16] },
    System(Option<(u64, u64)>),
}

/// Where table slots lie: all tables overlap in 1 KiB, addresses that leave memory included.
const TOY_VRAM: u64 = 0x2_0000;

fn toy_entry() -> impl Strategy<Value = [u8; 16]> {
    // Table addresses are small multiples of 16 so that tables alias each other, and sometimes leave VRAM.
    (0u8..4, 0u8..4, 0u8..2, 0u16..64, 0u16..64, 0u8..16).prop_map(|(kind, flags, storage, a, b, far)| {
        let mut bytes = [0; 16];
        bytes[0] = kind;
        bytes[1] = flags;
        bytes[2] = storage;
        bytes[4..6].copy_from_slice(&(if kind == 1 { a } else { a * 16 }).to_le_bytes());
        bytes[8..10].copy_from_slice(&(if far == 0 { 0xfff0 } else { b * 16 }).to_le_bytes());
        bytes
    })
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        8 => (0u16..64, toy_entry()).prop_map(|(slot, content)| Edit::Entry { slot, content }),
        1 => proptest::option::of((0u64..32, 1u64..64))
            .prop_map(|range| Edit::System(range.map(|(start, pages)| (start << 12, (start + pages) << 12)))),
    ];
    proptest::collection::vec(edit, 0..12)
}

proptest! {
    #[test]
    fn runs_of_all_synchronisations_add_up_to_a_walk_from_scratch(
        start in proptest::collection::vec(toy_entry(), 64),
        rounds in proptest::collection::vec(edits(), 1..8),
    ) {
        let memory = Memory::new(TOY_VRAM);
        for (slot, entry) in start.iter().enumerate() {
            memory.write(slot as u64 * 16, entry);
        }
        let root = PhysicalAddress { aperture: Aperture::Vram, address: 0 };
        let mut budget = Budget::new(Limits::DEFAULT);
        let mut space = ShadowSpace::new(Toy, root, &mut budget).unwrap();
        let mut shadow = Shadow::default();

        for round in rounds {
            space.sync(&memory, &mut budget, &mut shadow).unwrap();
            prop_assert_eq!(&shadow.pages, &naive(Toy, root, &memory));
            let again = space.sync(&memory, &mut budget, &mut shadow).unwrap();
            prop_assert_eq!((again.mapped.runs, again.unmapped.runs), (0, 0));
            for edit in round {
                match edit {
                    Edit::Entry { slot, content } => memory.write(u64::from(slot) * 16, &content),
                    Edit::System(range) => {
                        // Memory that goes is evicted before it goes, as the mediator does.
                        space.evict_system_memory(0, u64::MAX, &memory, &mut budget, &mut shadow).unwrap();
                        prop_assert!(shadow.pages.values().all(|leaf| leaf.target.aperture == Aperture::Vram));
                        memory.system.replace(range);
                    }
                }
            }
        }

        space.clear(&memory, &mut budget, &mut shadow).unwrap();
        prop_assert!(shadow.pages.is_empty());
        space.release(&mut budget);
        prop_assert_eq!((budget.tables(), budget.snapshot_bytes()), (0, 0));
    }

    #[test]
    fn hostile_directory_is_walked_or_refused_within_the_limits(
        seed in proptest::collection::vec(any::<u64>(), 1..64),
        root_page in 0u64..VRAM / 4096 + 2,
        large_64k: bool,
    ) {
        // All of VRAM repeats the seed: directories, tables and pages are the same words.
        let memory = Memory::new(1 << 20);
        for index in 0..(1 << 20) / 8u64 {
            memory.write_u64(index * 8, seed[index as usize % seed.len()]);
        }
        let limits = Limits { tables: 24, snapshot_bytes: 1 << 20 };
        let mut budget = Budget::new(limits);
        let format = Fermi { large_pages: LargePages::from_64k(large_64k) };
        let root = PhysicalAddress { aperture: Aperture::Vram, address: root_page << 12 };
        let mut space = ShadowSpace::new(format, root, &mut budget).unwrap();
        let mut shadow = Shadow::default();

        let result = space.sync(&memory, &mut budget, &mut shadow);

        prop_assert!(budget.tables() <= limits.tables && budget.snapshot_bytes() <= limits.snapshot_bytes);
        if result.is_ok() {
            prop_assert_eq!(&shadow.pages, &naive(format, root, &memory));
        }
        prop_assert!(shadow.pages.values().all(|leaf| memory.contains(leaf.target, 4096)));
    }
}

// --- Fermi, by example ------------------------------------------------------------------------------------

const ROOT: u64 = 0x10_0000;
const SMALL: u64 = 0x20_0000;
const LARGE: u64 = 0x30_0000;

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn pte(target: PhysicalAddress) -> u64 {
    Pte { target, read_only: false, privileged: false, kind: 0 }.encode()
}

struct Fixture {
    memory: Memory,
    budget: Budget,
    space: ShadowSpace<Fermi>,
}

/// A directory whose entry 1 names a small and a large table.
fn fermi() -> Fixture {
    let memory = Memory::new(VRAM);
    let pde = Pde { large: Some(vram(LARGE)), small: Some(vram(SMALL)) };
    memory.write_u64(ROOT + 8, pde.encode());
    let mut budget = Budget::new(Limits::DEFAULT);
    let space = ShadowSpace::new(Fermi::default(), vram(ROOT), &mut budget).unwrap();
    Fixture { memory, budget, space }
}

/// What to unmap, what to map.
type Batch = (Vec<GuestRange>, Vec<GuestMapping>);

#[derive(Default)]
struct Recorder(Vec<Batch>);

impl RunSink for Recorder {
    type Error = Infallible;

    fn batch(&mut self, unmap: Vec<GuestRange>, map: Vec<GuestMapping>) -> Result<(), Infallible> {
        self.0.push((unmap, map));
        Ok(())
    }
}

impl Fixture {
    fn sync(&mut self) -> (SyncReport, Vec<Batch>) {
        let mut recorder = Recorder::default();
        let report = self.space.sync(&self.memory, &mut self.budget, &mut recorder).unwrap();
        (report, recorder.0)
    }
}

#[test]
fn adjacent_pages_become_one_run_for_each_page_size() {
    let mut fixture = fermi();
    for page in 0..100 {
        fixture.memory.write_u64(SMALL + page * 8, pte(vram(page << 12)));
    }
    fixture.memory.write_u64(LARGE + 8, pte(vram(0x4_0000)));
    fixture.memory.write_u64(LARGE + 16, pte(vram(0x6_0000)));

    let (report, batches) = fixture.sync();

    let mapping = |va, pages, page_shift, target| GuestMapping {
        va: GpuVa(va),
        pages,
        page_shift,
        target: GuestTarget::Vram(GuestVram(target)),
        read_only: false,
        kind: 0,
    };
    let expected = vec![mapping(0x800_0000, 100, 12, 0), mapping(0x802_0000, 2, 17, 0x4_0000)];
    assert_eq!(batches, [(vec![], expected)]);
    assert_eq!((report.mapped.runs, report.mapped.pages), (2, 102));
}

#[test]
fn unchanged_tables_emit_nothing() {
    let mut fixture = fermi();
    fixture.memory.write_u64(SMALL, pte(vram(0)));
    fixture.sync();

    let (report, batches) = fixture.sync();

    assert!(batches.is_empty());
    assert_eq!(report.mapped, RunCount::default());
}

#[test]
fn replaced_entry_is_mapped_without_being_unmapped() {
    let mut fixture = fermi();
    fixture.memory.write_u64(SMALL, pte(vram(0)));
    fixture.sync();
    fixture.memory.write_u64(SMALL, pte(vram(0x5000)));

    let (_, batches) = fixture.sync();

    let [(unmap, map)] = batches.as_slice() else { panic!("{batches:?}") };
    assert!(unmap.is_empty());
    assert_eq!(map[0].target, GuestTarget::Vram(GuestVram(0x5000)));
}

#[test]
fn ignored_bits_change_nothing() {
    let mut fixture = fermi();
    fixture.memory.write_u64(SMALL, pte(vram(0)));
    fixture.sync();
    fixture.memory.write_u64(SMALL, pte(vram(0)) | 1 << 44);

    let (_, batches) = fixture.sync();

    assert!(batches.is_empty());
}

#[test]
fn table_that_moves_with_its_content_costs_nothing() {
    let mut fixture = fermi();
    fixture.memory.write_u64(SMALL, pte(vram(0)));
    fixture.sync();
    let moved = SMALL + 0x4_0000;
    fixture.memory.write_u64(moved, pte(vram(0)));
    let pde = Pde { large: Some(vram(LARGE)), small: Some(vram(moved)) };
    fixture.memory.write_u64(ROOT + 8, pde.encode());

    let (_, batches) = fixture.sync();

    assert!(batches.is_empty());
}

#[test]
fn cleared_directory_entry_unmaps_its_pages() {
    let mut fixture = fermi();
    fixture.memory.write_u64(SMALL + 16, pte(vram(0x3000)));
    fixture.sync();
    fixture.memory.write_u64(ROOT + 8, 0);

    let (report, batches) = fixture.sync();

    let range = GuestRange { va: GpuVa(0x800_2000), pages: 1, page_shift: 12 };
    assert_eq!(batches, [(vec![range], vec![])]);
    assert_eq!(report.unmapped.pages, 1);
    assert_eq!(fixture.budget.tables(), 1);
}

#[test]
fn page_outside_own_memory_is_withheld_until_it_is_inside() {
    let mut fixture = fermi();
    let system = PhysicalAddress { aperture: Aperture::SystemCoherent, address: 0x8000_0000 };
    fixture.memory.write_u64(SMALL, pte(vram(VRAM)));
    fixture.memory.write_u64(SMALL + 8, pte(vram(VRAM - 4096)));
    fixture.memory.write_u64(SMALL + 16, pte(system));

    let (first, _) = fixture.sync();
    fixture.memory.system.replace(Some((0x8000_0000, 0x8000_1000)));
    let (second, batches) = fixture.sync();

    assert_eq!((first.withheld, first.mapped.pages), (2, 1));
    assert_eq!((second.withheld, second.mapped.pages), (1, 1));
    assert_eq!(batches[0].1[0].va, GpuVa(0x800_2000));
}

#[test]
fn evicted_system_page_comes_back_with_a_later_synchronisation() {
    let mut fixture = fermi();
    fixture.memory.system.replace(Some((0, 0x10_0000)));
    for (entry, address) in [(0, 0x3000), (1, 0x4000)] {
        let target = PhysicalAddress { aperture: Aperture::SystemNonCoherent, address };
        fixture.memory.write_u64(SMALL + entry * 8, pte(target));
    }
    fixture.sync();

    let mut recorder = Recorder::default();
    let space = &mut fixture.space;
    space.evict_system_memory(0x4000, 0x1000, &fixture.memory, &mut fixture.budget, &mut recorder).unwrap();
    let (report, _) = fixture.sync();

    let range = GuestRange { va: GpuVa(0x800_1000), pages: 1, page_shift: 12 };
    assert_eq!(recorder.0, [(vec![range], vec![])]);
    assert_eq!(report.mapped.pages, 1);
}

#[test]
fn scattered_pages_go_in_bounded_batches() {
    let mut fixture = fermi();
    let count = MAX_UPDATE_RUNS as u64 + 10;
    for page in 0..count {
        fixture.memory.write_u64(SMALL + page * 16, pte(vram(0x1000)));
    }

    let (report, batches) = fixture.sync();

    assert_eq!(report.mapped.runs, count);
    assert_eq!(batches.iter().map(|(_, map)| map.len()).collect::<Vec<_>>(), [MAX_UPDATE_RUNS, 10]);
}

#[test]
fn directory_of_aliases_is_refused_at_the_table_limit() {
    let mut fixture = fermi();
    let pde = Pde { large: None, small: Some(vram(SMALL)) }.encode();
    for entry in 0..8192 {
        fixture.memory.write_u64(ROOT + entry * 8, pde);
    }
    fixture.budget = Budget::new(Limits { tables: 100, ..Limits::DEFAULT });

    let result = fixture.space.sync(&fixture.memory, &mut fixture.budget, &mut Recorder::default());

    assert!(matches!(result, Err(SyncError::Walk(WalkRefusal::Tables { limit: 100 }))));
}

#[test]
fn full_tables_are_refused_at_the_snapshot_limit() {
    let mut fixture = fermi();
    for entry in 0..32768 {
        fixture.memory.write_u64(SMALL + entry * 8, pte(vram(0)));
    }
    fixture.budget = Budget::new(Limits { snapshot_bytes: 100 * 1024, ..Limits::DEFAULT });

    let result = fixture.space.sync(&fixture.memory, &mut fixture.budget, &mut Recorder::default());

    assert!(matches!(result, Err(SyncError::Walk(WalkRefusal::SnapshotBytes { .. }))));
    assert!(fixture.budget.snapshot_bytes() <= 100 * 1024);
}
