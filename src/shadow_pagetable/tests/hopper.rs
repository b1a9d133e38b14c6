//! Hopper's format: pages of every size in trees of five levels, against the naive walker.

use proptest::prelude::*;

use super::*;
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::gh100::mmu::{DualPde, Level, Pde, Pte, PteDefect, encode_pde};

/// Tables lie in the lower MiB of VRAM; pages may point at all of it.
const TABLES: u64 = 1 << 20;

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

fn pte(target: PhysicalAddress, read_only: bool, kind: u8) -> u64 {
    Pte { target, read_only, privileged: false, kind }.encode()
}

/// A driver's view of its tables: it adds tables as pages need them.
struct Tree {
    memory: Memory,
    next: u64,
}

impl Tree {
    fn new() -> Self {
        Self { memory: Memory::new(VRAM), next: 0x1000 }
    }

    /// `None` outside memory: a word may name any table.
    fn read(&self, at: u64) -> Option<u64> {
        let mut raw = [0; 8];
        self.memory.read(vram(at), &mut raw).ok()?;
        Some(u64::from_le_bytes(raw))
    }

    fn allocate(&mut self) -> Option<PhysicalAddress> {
        let table = self.next;
        self.next += 0x1000;
        (self.next <= TABLES).then_some(vram(table))
    }

    /// Where the entry of `va` in the table of `level` is; makes the tables above it. `None` when there is no
    /// room, or a page is in the way.
    fn entry(&mut self, va: u64, level: Level) -> Option<u64> {
        let mut at = 0;
        let mut now = Level::Pd4;
        loop {
            let entry = at + now.index(va) * now.entry_size();
            if now == level {
                return Some(entry);
            }
            let raw = self.read(entry)?;
            if raw & 1 != 0 {
                return None;
            }
            if let Some(below) = now.below() {
                if raw == 0 {
                    let table = self.allocate()?;
                    self.memory.write_u64(entry, encode_pde(Pde::Table(table)));
                }
                at = self.read(entry)? & 0x000f_ffff_ffff_f000;
                now = below;
                continue;
            }
            // The dual entry: one half for each kind of table.
            let half = entry + if level == Level::Small { 8 } else { 0 };
            if self.read(half)? == 0 {
                let table = self.allocate()?;
                let raw = DualPde::tables(Pde::Table(table), Pde::Invalid) as u64;
                self.memory.write_u64(half, raw);
            }
            at = self.read(half)? & 0x000f_ffff_ffff_ff00;
            now = level;
        }
    }

    fn map(&mut self, va: u64, level: Level, raw: u64) {
        if let Some(entry) = self.entry(va, level) {
            self.memory.write_u64(entry, raw);
        }
    }
}

fn space(budget: &mut Budget) -> ShadowSpace<Hopper> {
    ShadowSpace::new(Hopper, vram(0), budget).unwrap()
}

fn sync(tree: &Tree) -> (SyncReport, Pages) {
    let mut budget = Budget::new(Hopper.limits());
    let mut shadow = Shadow::default();
    let report = space(&mut budget).sync(&tree.memory, &mut budget, &mut shadow).unwrap();
    (report, shadow.pages)
}

#[test]
fn pages_of_every_size_are_found_at_their_addresses() {
    let mut tree = Tree::new();
    tree.memory.system.replace(Some((0, 1 << 40)));
    let system = |address| PhysicalAddress { aperture: Aperture::SystemCoherent, address };
    let pages = [
        (0x1000, Level::Small, 0x7000),
        (0x1_ffff_ffff_f000, Level::Small, 0x8000),
        (0x1ff_ffff_ffff_f000, Level::Small, 0x9000),
        (0x12_3456_0000, Level::Big, 0x5_0000),
        (0x80_0020_0000, Level::Pd0, 0x40_0000),
        (0x1ff_0000_2000_0000, Level::Pd1, 0x20_0000_0000),
    ];
    for (va, level, target) in pages {
        tree.map(va, level, pte(system(target), true, 6));
    }

    let (report, found) = sync(&tree);

    let expected: Pages = pages
        .into_iter()
        .map(|(va, level, target)| {
            let leaf = Leaf { target: system(target), read_only: true, kind: 6 };
            ((level.shift(), va), leaf)
        })
        .collect();
    assert_eq!(found, expected);
    assert_eq!((report.mapped.runs, report.withheld), (6, 0));
    for (va, level, target) in pages {
        let size = 1 << level.shift();
        let inside = |at| translate(&Hopper, vram(0), GpuVa(va + at), &tree.memory);
        assert_eq!(inside(0x123), Some((system(target + 0x123), size - 0x123)));
        assert_eq!(inside(size - 1), Some((system(target + size - 1), 1)));
        assert_eq!(inside(size), None);
    }
    assert_eq!(translate(&Hopper, vram(0), GpuVa(u64::MAX), &tree.memory), None);
}

#[test]
fn big_pages_and_large_pages_coalesce() {
    struct Runs(Vec<MapRun>);
    impl RunSink for Runs {
        type Error = Infallible;
        fn batch(&mut self, _: Vec<UnmapRun>, map: Vec<MapRun>) -> Result<(), Infallible> {
            self.0.extend(map);
            Ok(())
        }
    }
    let mut tree = Tree::new();
    tree.memory.system.replace(Some((0, 1 << 40)));
    let system = |address| PhysicalAddress { aperture: Aperture::SystemNonCoherent, address };
    for page in 0..64 {
        tree.map(page << 16, Level::Big, pte(system(0x1_0000 + (page << 16)), false, 0));
    }
    for page in 0..300 {
        tree.map((1 << 38) + (page << 21), Level::Pd0, pte(system((1 << 30) + (page << 21)), false, 0));
    }

    let mut budget = Budget::new(Hopper.limits());
    let mut runs = Runs(Vec::new());
    space(&mut budget).sync(&tree.memory, &mut budget, &mut runs).unwrap();

    let run = |va, pages, page_shift, target| MapRun {
        va: GpuVa(va),
        pages,
        page_shift,
        target: system(target),
        read_only: false,
        kind: 0,
    };
    assert_eq!(runs.0, [run(0, 64, 16, 0x1_0000), run(1 << 38, 300, 21, 1 << 30)]);
}

#[test]
fn page_of_a_peer_is_withheld_until_it_is_memory_of_the_guest() {
    let mut tree = Tree::new();
    tree.map(0x5000, Level::Small, PteDefect::Peer(1).encode());
    tree.map(0x6000, Level::Small, PteDefect::Sparse.encode());
    let (report, found) = sync(&tree);
    assert_eq!((report.withheld, found.len()), (1, 0));

    tree.map(0x5000, Level::Small, pte(vram(0x1000), false, 0));
    assert_eq!(sync(&tree).1.len(), 1);
}

#[test]
fn table_in_place_of_a_large_page_unmaps_it() {
    let mut tree = Tree::new();
    let mut budget = Budget::new(Hopper.limits());
    let (mut space, mut shadow) = (space(&mut budget), Shadow::default());
    tree.map(0x20_0000, Level::Pd0, pte(vram(0x20_0000), false, 0));
    space.sync(&tree.memory, &mut budget, &mut shadow).unwrap();
    assert_eq!(shadow.pages.keys().copied().collect::<Vec<_>>(), [(21, 0x20_0000)]);

    tree.map(0x20_0000, Level::Pd0, 0);
    tree.map(0x20_3000, Level::Small, pte(vram(0x20_3000), false, 0));
    space.sync(&tree.memory, &mut budget, &mut shadow).unwrap();
    assert_eq!(shadow.pages.keys().copied().collect::<Vec<_>>(), [(12, 0x20_3000)]);

    tree.map(0x20_3000, Level::Small, 0);
    let dual = tree.entry(0x20_0000, Level::Pd0).unwrap();
    tree.memory.write_u64(dual + 8, 0);
    tree.memory.write_u64(dual, pte(vram(0), false, 0));
    space.sync(&tree.memory, &mut budget, &mut shadow).unwrap();
    assert_eq!(shadow.pages.keys().copied().collect::<Vec<_>>(), [(21, 0x20_0000)]);
}

#[test]
fn tree_that_names_itself_is_refused_at_the_limits() {
    // Every word of the page names the page: 2^56 / 2^21 tables, were it not for the limits.
    let memory = Memory::new(VRAM);
    for entry in 0..512 {
        memory.write_u64(entry * 8, encode_pde(Pde::Table(vram(0))));
    }
    let limits = Limits { tables: 500, snapshot_bytes: 1 << 20 };
    let mut budget = Budget::new(limits);
    let mut space = space(&mut budget);

    let result = space.sync(&memory, &mut budget, &mut Shadow::default());

    assert!(matches!(result, Err(SyncError::Walk(_))), "{result:?}");
    assert!(budget.tables() <= limits.tables && budget.snapshot_bytes() <= limits.snapshot_bytes);
}

#[derive(Clone, Debug)]
enum Edit {
    Page { va: u64, level: Level, raw: u64 },
    Word { at: u64, raw: u64 },
}

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![
        4 => Just(Level::Small),
        2 => Just(Level::Big),
        2 => Just(Level::Pd0),
        1 => Just(Level::Pd1),
    ]
}

/// Addresses that share tables often enough to be interesting.
fn va() -> impl Strategy<Value = u64> {
    (0u64..2, 0u64..2, 0u64..3, 0u64..3, 0u64..2, 0u64..40).prop_map(|(a, b, c, d, e, page)| {
        (a << 56) + (b << 47) + (c << 38) + (d << 29) + (e << 21) + (page << 12)
    })
}

fn raw_page() -> impl Strategy<Value = u64> {
    let target = (0u64..VRAM >> 12, 0usize..8).prop_map(|(page, which)| PhysicalAddress {
        aperture: if which == 0 { Aperture::SystemCoherent } else { Aperture::Vram },
        address: page << 12,
    });
    prop_oneof![
        6 => (target, any::<bool>(), 0u8..3).prop_map(|(target, read_only, kind)| pte(target, read_only, kind)),
        1 => Just(0),
        1 => Just(PteDefect::Sparse.encode()),
        1 => Just(PteDefect::Peer(2).encode()),
    ]
}

fn edit() -> impl Strategy<Value = Edit> {
    let word = prop_oneof![
        Just(0),
        (0u64..TABLES >> 12).prop_map(|page| encode_pde(Pde::Table(vram(page << 12)))),
        raw_page(),
        any::<u64>(),
    ];
    prop_oneof![
        8 => (va(), level(), raw_page()).prop_map(|(va, level, raw)| Edit::Page { va, level, raw }),
        // A word of a table that the driver should not have written.
        1 => (0u64..64, 0u64..40, word).prop_map(|(page, entry, raw)| Edit::Word { at: (page << 12) + entry * 8, raw }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shadow_follows_whatever_the_driver_writes(
        rounds in proptest::collection::vec(proptest::collection::vec(edit(), 1..24), 1..6),
    ) {
        let mut tree = Tree::new();
        tree.memory.system.replace(Some((0, VRAM / 2)));
        let limits = Limits { tables: 2000, snapshot_bytes: 8 << 20 };
        let mut budget = Budget::new(limits);
        let (mut space, mut shadow) = (space(&mut budget), Shadow::default());

        for round in rounds {
            for edit in round {
                match edit {
                    Edit::Page { va, level, raw } => tree.map(va & !((1 << level.shift()) - 1), level, raw),
                    Edit::Word { at, raw } => tree.memory.write_u64(at, raw),
                }
            }
            let result = space.sync(&tree.memory, &mut budget, &mut shadow);
            prop_assert!(budget.tables() <= limits.tables && budget.snapshot_bytes() <= limits.snapshot_bytes);
            if result.is_err() {
                // Tables that name each other: too many to follow, for the naive walker as well.
                return Ok(());
            }
            prop_assert_eq!(&shadow.pages, &naive(Hopper, vram(0), &tree.memory));
        }

        space.clear(&tree.memory, &mut budget, &mut shadow).unwrap();
        prop_assert!(shadow.pages.is_empty());
        space.release(&mut budget);
        prop_assert_eq!((budget.tables(), budget.snapshot_bytes()), (0, 0));
    }
}
