//! Formats since Pascal: pages of every size in trees of four and five levels, against a walker of its own.

mod bits;

use proptest::prelude::*;

use super::*;
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::gmmu::{Gmmu, Level};

/// Tables lie in the lower MiB of VRAM; pages may point at all of it.
const TABLES: u64 = 1 << 20;

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

/// A driver's view of its tables: it adds tables as pages need them.
struct Tree {
    format: Gmmu,
    memory: Memory,
    next: u64,
}

impl Tree {
    fn new(format: Gmmu) -> Self {
        Self { format, memory: Memory::new(VRAM), next: 0x1000 }
    }

    /// `None` outside memory: a word may name any table.
    fn read(&self, at: u64) -> Option<u64> {
        let mut raw = [0; 8];
        self.memory.read(vram(at), &mut raw).ok()?;
        Some(u64::from_le_bytes(raw))
    }

    /// The table in VRAM that an entry names.
    fn named(&self, at: u64, big: bool) -> Option<u64> {
        bits::table_in_vram(self.format, self.read(at)?, big)
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
        let mut now = self.format.root();
        loop {
            let entry = at + self.format.index(now, va) * now.entry_size();
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
                    self.memory.write_u64(entry, bits::table(self.format, table));
                }
                at = self.named(entry, false)?;
                now = below;
                continue;
            }
            // The dual entry: one half for each kind of table.
            let half = entry + if level == Level::Small { 8 } else { 0 };
            if self.read(half)? == 0 {
                let table = self.allocate()?;
                self.memory.write_u64(half, bits::table(self.format, table));
            }
            at = self.named(half, level == Level::Big)?;
            now = level;
        }
    }

    fn map(&mut self, va: u64, level: Level, raw: u64) {
        if let Some(entry) = self.entry(va, level) {
            self.memory.write_u64(entry, raw);
        }
    }
}

fn space(format: Gmmu, budget: &mut Budget) -> ShadowSpace<Gmmu> {
    ShadowSpace::new(format, vram(0), budget).unwrap()
}

fn sync(tree: &Tree) -> (SyncReport, Pages) {
    let mut budget = Budget::new(tree.format.limits());
    let mut shadow = Shadow::default();
    let report = space(tree.format, &mut budget).sync(&tree.memory, &mut budget, &mut shadow).unwrap();
    (report, shadow.pages)
}

/// Calls `check` with an empty tree of each format.
fn each_format(check: impl Fn(Tree)) {
    Gmmu::ALL.map(Tree::new).into_iter().for_each(check);
}

#[test]
fn pages_of_every_size_are_found_at_their_addresses() {
    each_format(|mut tree| {
        let format = tree.format;
        tree.memory.system.replace(Some((0, 1 << 40)));
        let system = |address| PhysicalAddress { aperture: Aperture::SystemCoherent, address };
        let top = format.va_max() + 1;
        let pages = [
            (0x1000, Level::Small, 0x7000),
            (top / 2 - 0x1000, Level::Small, 0x8000),
            (top - 0x1000, Level::Small, 0x9000),
            (0x12_3456_0000, Level::Big, 0x5_0000),
            (0x80_0020_0000, Level::Pd0, 0x40_0000),
            (top - 0x4000_0000, Level::Pd1, 0x20_0000_0000),
        ];
        // Up to Turing there are none of 512 MiB: such an entry is nothing.
        let count = if format == Gmmu::V2 { 5 } else { 6 };
        for (va, level, target) in pages {
            tree.map(va, level, bits::page(format, system(target), true, 6));
        }

        let (report, found) = sync(&tree);

        let leaf = |target| Leaf { target: system(target), read_only: true, kind: 6 };
        let expected: Pages =
            pages[..count].iter().map(|(va, level, target)| ((level.shift(), *va), leaf(*target))).collect();
        assert_eq!(found, expected, "{format:?}");
        assert_eq!((report.mapped.runs, report.withheld), (count as u64, 0));
        for &(va, level, target) in &pages[..count] {
            let size = 1 << level.shift();
            let inside = |at| translate(&format, vram(0), GpuVa(va + at), &tree.memory);
            assert_eq!(inside(0x123), Some((system(target + 0x123), size - 0x123)));
            assert_eq!(inside(size - 1), Some((system(target + size - 1), 1)));
            assert_eq!(inside(size), None);
        }
        assert_eq!(translate(&format, vram(0), GpuVa(u64::MAX), &tree.memory), None);
        assert_eq!(translate(&format, vram(0), GpuVa(top + 0x1000), &tree.memory), None);
    });
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
    each_format(|mut tree| {
        let format = tree.format;
        tree.memory.system.replace(Some((0, 1 << 40)));
        let system = |address| PhysicalAddress { aperture: Aperture::SystemNonCoherent, address };
        let page = |address| bits::page(format, system(address), false, 0);
        for number in 0..64 {
            tree.map(number << 16, Level::Big, page(0x1_0000 + (number << 16)));
        }
        for number in 0..300 {
            tree.map((1 << 38) + (number << 21), Level::Pd0, page((1 << 30) + (number << 21)));
        }

        let mut budget = Budget::new(format.limits());
        let mut runs = Runs(Vec::new());
        space(format, &mut budget).sync(&tree.memory, &mut budget, &mut runs).unwrap();

        let run = |va, pages, page_shift, target| MapRun {
            va: GpuVa(va),
            pages,
            page_shift,
            target: system(target),
            read_only: false,
            kind: 0,
        };
        assert_eq!(runs.0, [run(0, 64, 16, 0x1_0000), run(1 << 38, 300, 21, 1 << 30)]);
    });
}

/// A driver of version 2 that compresses gives each page tags: they mean nothing here, whatever they are.
#[test]
fn compression_tags_are_passed_over() {
    let mut tree = Tree::new(Gmmu::V2);
    for number in 0..32 {
        let page = bits::page(Gmmu::V2, vram(number << 16), false, 8);
        tree.map(number << 16, Level::Big, page | (number * 5 % 0x10_0000) << 36);
    }

    let (report, found) = sync(&tree);

    assert_eq!((report.mapped.runs, report.mapped.pages, report.withheld), (1, 32, 0));
    assert!(
        found.iter().all(|((_, va), leaf)| *leaf == Leaf { target: vram(*va), read_only: false, kind: 8 })
    );
}

#[test]
fn page_of_a_peer_is_withheld_until_it_is_memory_of_the_guest() {
    each_format(|mut tree| {
        let format = tree.format;
        tree.map(0x5000, Level::Small, bits::peer(format, 1));
        tree.map(0x6000, Level::Small, bits::SPARSE);
        let (report, found) = sync(&tree);
        assert_eq!((report.withheld, found.len()), (1, 0));

        tree.map(0x5000, Level::Small, bits::page(format, vram(0x1000), false, 0));
        assert_eq!(sync(&tree).1.len(), 1);
    });
}

#[test]
fn table_in_place_of_a_large_page_unmaps_it() {
    each_format(|mut tree| {
        let format = tree.format;
        let mut budget = Budget::new(format.limits());
        let (mut space, mut shadow) = (space(format, &mut budget), Shadow::default());
        let mut mapped = |tree: &Tree| {
            space.sync(&tree.memory, &mut budget, &mut shadow).unwrap();
            shadow.pages.keys().copied().collect::<Vec<_>>()
        };
        let page = |address| bits::page(format, vram(address), false, 0);
        tree.map(0x20_0000, Level::Pd0, page(0x20_0000));
        assert_eq!(mapped(&tree), [(21, 0x20_0000)]);

        tree.map(0x20_0000, Level::Pd0, 0);
        tree.map(0x20_3000, Level::Small, page(0x20_3000));
        assert_eq!(mapped(&tree), [(12, 0x20_3000)]);

        tree.map(0x20_3000, Level::Small, 0);
        let dual = tree.entry(0x20_0000, Level::Pd0).unwrap();
        tree.memory.write_u64(dual + 8, 0);
        tree.memory.write_u64(dual, page(0));
        assert_eq!(mapped(&tree), [(21, 0x20_0000)]);
    });
}

#[test]
fn tree_that_names_itself_is_refused_at_the_limits() {
    each_format(|tree| {
        // Every word of the page names the page: 2^28 or 2^36 tables, were it not for the limits.
        let memory = tree.memory;
        for entry in 0..512 {
            memory.write_u64(entry * 8, bits::table(tree.format, vram(0)));
        }
        let limits = Limits { tables: 500, snapshot_bytes: 1 << 20 };
        let mut budget = Budget::new(limits);
        let mut space = space(tree.format, &mut budget);

        let result = space.sync(&memory, &mut budget, &mut Shadow::default());

        assert!(matches!(result, Err(SyncError::Walk(_))), "{result:?}");
        assert!(budget.tables() <= limits.tables && budget.snapshot_bytes() <= limits.snapshot_bytes);
        space.release(&mut budget);
        assert_eq!((budget.tables(), budget.snapshot_bytes()), (0, 0));
    });
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
    (0u64..2, 0u64..3, 0u64..3, 0u64..3, 0u64..2, 0u64..40).prop_map(|(a, b, c, d, e, page)| {
        (a << 56) + (b << 47) + (c << 38) + (d << 29) + (e << 21) + (page << 12)
    })
}

fn raw_page(format: Gmmu) -> impl Strategy<Value = u64> {
    let target = (0u64..VRAM >> 12, 0usize..8).prop_map(|(page, which)| PhysicalAddress {
        aperture: if which == 0 { Aperture::SystemCoherent } else { Aperture::Vram },
        address: page << 12,
    });
    prop_oneof![
        6 => (target, any::<bool>(), 0u8..3)
            .prop_map(move |(target, read_only, kind)| bits::page(format, target, read_only, kind)),
        1 => Just(0),
        1 => Just(bits::SPARSE),
        1 => Just(bits::peer(format, 2)),
    ]
}

fn edit(format: Gmmu) -> impl Strategy<Value = Edit> {
    let word = prop_oneof![
        Just(0),
        (0u64..TABLES >> 12).prop_map(move |page| bits::table(format, vram(page << 12))),
        raw_page(format),
        any::<u64>(),
    ];
    prop_oneof![
        8 => (va(), level(), raw_page(format)).prop_map(|(va, level, raw)| Edit::Page { va, level, raw }),
        // A word of a table that the driver should not have written.
        1 => (0u64..64, 0u64..40, word).prop_map(|(page, entry, raw)| Edit::Word { at: (page << 12) + entry * 8, raw }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn shadow_follows_whatever_the_driver_writes(
        (format, rounds) in proptest::sample::select(&Gmmu::ALL[..]).prop_flat_map(|format| {
            let round = proptest::collection::vec(edit(format), 1..24);
            (Just(format), proptest::collection::vec(round, 1..6))
        }),
    ) {
        let mut tree = Tree::new(format);
        tree.memory.system.replace(Some((0, VRAM / 2)));
        let limits = Limits { tables: 2000, snapshot_bytes: 8 << 20 };
        let mut budget = Budget::new(limits);
        let (mut space, mut shadow) = (space(format, &mut budget), Shadow::default());

        for round in rounds {
            for edit in round {
                match edit {
                    Edit::Page { va, level, raw } => {
                        tree.map(va & format.va_max() & !((1 << level.shift()) - 1), level, raw);
                    }
                    Edit::Word { at, raw } => tree.memory.write_u64(at, raw),
                }
            }
            let result = space.sync(&tree.memory, &mut budget, &mut shadow);
            prop_assert!(budget.tables() <= limits.tables && budget.snapshot_bytes() <= limits.snapshot_bytes);
            if result.is_err() {
                // Tables that name each other: too many to follow, for the other walker as well.
                return Ok(());
            }
            prop_assert_eq!(&shadow.pages, &bits::pages(format, 0, &tree.memory));
        }

        space.clear(&tree.memory, &mut budget, &mut shadow).unwrap();
        prop_assert!(shadow.pages.is_empty());
        space.release(&mut budget);
        prop_assert_eq!((budget.tables(), budget.snapshot_bytes()), (0, 0));
    }
}
