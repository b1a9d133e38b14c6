//! Fermi's format, by example.

use super::*;
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::gf100::mmu::{Pde, Pte};

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
type Batch = (Vec<UnmapRun>, Vec<MapRun>);

#[derive(Default)]
struct Recorder(Vec<Batch>);

impl RunSink for Recorder {
    type Error = Infallible;

    fn batch(&mut self, unmap: Vec<UnmapRun>, map: Vec<MapRun>) -> Result<(), Infallible> {
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

    let mapping = |va, pages, page_shift, target| MapRun {
        va: GpuVa(va),
        pages,
        page_shift,
        target: vram(target),
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
    assert_eq!(map[0].target, vram(0x5000));
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

    let range = UnmapRun { va: GpuVa(0x800_2000), pages: 1, page_shift: 12 };
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

    let range = UnmapRun { va: GpuVa(0x800_1000), pages: 1, page_shift: 12 };
    assert_eq!(recorder.0, [(vec![range], vec![])]);
    assert_eq!(report.mapped.pages, 1);
}

#[test]
fn scattered_pages_go_in_bounded_batches() {
    let mut fixture = fermi();
    let count = MAX_BATCH as u64 + 10;
    for page in 0..count {
        fixture.memory.write_u64(SMALL + page * 16, pte(vram(0x1000)));
    }

    let (report, batches) = fixture.sync();

    assert_eq!(report.mapped.runs, count);
    assert_eq!(batches.iter().map(|(_, map)| map.len()).collect::<Vec<_>>(), [MAX_BATCH, 10]);
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
