//! AlikeEntries of pages that come, move, change and go, in whole tables of each format, against the naive
//! walker; and memory that changes while it is read.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use gpuvmk_chip::gf100::mmu::{LargePages, Pde, Pte};
use gpuvmk_chip::gmmu::{self, Gmmu};

/// Tables of small and of large pages, both of the same addresses.
const SMALL: u64 = 0x20_0000;
const LARGE: u64 = 0x30_0000;
/// The system memory that there is, unless it is taken away.
const SYSTEM: (u64, u64) = (0x10_0000, 0x18_0000);

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

/// A driver's change of consecutive entries.
#[derive(Clone, Debug)]
enum Edit {
    /// Maps pages; every one `step` pages behind the one before it.
    Map {
        large: bool,
        first: u64,
        count: u64,
        target: PhysicalAddress,
        step: u64,
        read_only: bool,
    },
    /// Bits that mean nothing change.
    Ignored {
        large: bool,
        first: u64,
        count: u64,
    },
    Clear {
        large: bool,
        first: u64,
        count: u64,
    },
    System(bool),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let place = (any::<bool>(), 0u64..600, 1u64..600);
    // Many start where others end, or lie over the end of memory.
    let page = prop_oneof![0u64..16, 1000u64..1040, 240u64..400];
    let target = (page, 0u8..3).prop_map(|(page, aperture)| PhysicalAddress {
        aperture: [Aperture::Vram, Aperture::SystemCoherent, Aperture::SystemNonCoherent]
            [usize::from(aperture)],
        address: page << 12,
    });
    let map = (place.clone(), target, 0u64..8, any::<bool>()).prop_map(|(place, target, step, read_only)| {
        let (large, first, count) = place;
        Edit::Map { large, first, count, target, step: if step < 2 { step } else { 1 }, read_only }
    });
    let edit = prop_oneof![
        6 => map,
        1 => place.clone().prop_map(|(large, first, count)| Edit::Ignored { large, first, count }),
        2 => place.prop_map(|(large, first, count)| Edit::Clear { large, first, count }),
        1 => any::<bool>().prop_map(Edit::System),
    ];
    proptest::collection::vec(edit, 0..6)
}

/// How a format's tables are written.
trait Written: MmuFormat {
    /// Directories from 0 on that name both tables.
    fn directories(&self, memory: &Memory);
    /// Entries of a table, and log2 of its pages.
    fn table(&self, large: bool) -> (u64, u8);
    fn page(&self, target: PhysicalAddress, read_only: bool) -> u64;
    /// A bit of an entry that changes nothing.
    fn ignored(&self) -> u64;
}

impl Written for Fermi {
    fn directories(&self, memory: &Memory) {
        memory.write_u64(0, Pde { large: Some(vram(LARGE)), small: Some(vram(SMALL)) }.encode());
    }

    fn table(&self, large: bool) -> (u64, u8) {
        let shift = if large { self.large_pages.page_shift() } else { 12 };
        (self.large_pages.table_entries(shift), shift)
    }

    fn page(&self, target: PhysicalAddress, read_only: bool) -> u64 {
        Pte { target, read_only, privileged: false, kind: 0 }.encode()
    }

    fn ignored(&self) -> u64 {
        1 << 44
    }
}

impl Written for Gmmu {
    fn directories(&self, memory: &Memory) {
        let named = |address| gmmu::Pde::Table(vram(address));
        let (mut level, mut lowest) = ((*self).root(), 0);
        while let Some(below) = level.below() {
            memory.write_u64(lowest, self.encode_pde(named(lowest + 0x1000)));
            (level, lowest) = (below, lowest + 0x1000);
        }
        memory.write(lowest, &self.encode_tables(named(LARGE), named(SMALL)).to_le_bytes());
    }

    fn table(&self, large: bool) -> (u64, u8) {
        if large { (32, 16) } else { (512, 12) }
    }

    fn page(&self, target: PhysicalAddress, read_only: bool) -> u64 {
        self.encode_page(gmmu::Pte { target, read_only, privileged: false, kind: 6 })
    }

    /// No atomics; a bit above the address.
    fn ignored(&self) -> u64 {
        match self {
            Self::V2 | Self::V2Ampere => 1 << 7,
            Self::V3 => 1 << 53,
        }
    }
}

fn apply<F: Written>(format: F, memory: &Memory, edit: &Edit) {
    let write = |large: bool, first: u64, count: u64, entry: &dyn Fn(u64, u64) -> u64| {
        let (entries, _) = format.table(large);
        let table = if large { LARGE } else { SMALL };
        for index in (first % entries..entries).take(count as usize) {
            let mut old = [0; 8];
            memory.read(vram(table + index * 8), &mut old).unwrap();
            memory.write_u64(table + index * 8, entry(index - first % entries, u64::from_le_bytes(old)));
        }
    };
    match *edit {
        Edit::Map { large, first, count, target, step, read_only } => {
            let shift = format.table(large).1;
            write(large, first, count, &|number, _| {
                let address = target.address + ((number * step) << shift);
                format.page(PhysicalAddress { address, ..target }, read_only)
            });
        }
        Edit::Ignored { large, first, count } => write(large, first, count, &|_, old| old ^ format.ignored()),
        Edit::Clear { large, first, count } => write(large, first, count, &|_, _| 0),
        Edit::System(there) => drop(memory.system.replace(there.then_some(SYSTEM))),
    }
}

fn follow<F: Written>(format: F, rounds: &[Vec<Edit>]) -> Result<(), TestCaseError> {
    let memory = Memory::new(VRAM);
    memory.system.replace(Some(SYSTEM));
    format.directories(&memory);
    let mut budget = Budget::new(format.limits());
    let mut space = ShadowSpace::new(format, vram(0), &mut budget).unwrap();
    let mut shadow = Shadow::default();
    for round in rounds {
        for edit in round {
            if matches!(edit, Edit::System(_)) {
                // Memory that goes is evicted before it goes, as the mediator does.
                space.evict_system_memory(0, u64::MAX, &memory, &mut budget, &mut shadow).unwrap();
            }
            apply(format, &memory, edit);
        }
        let before = shadow.pages.clone();
        let report = space.sync(&memory, &mut budget, &mut shadow).unwrap();
        let now = naive(format, vram(0), &memory);
        prop_assert_eq!(&shadow.pages, &now);
        let changed = now.iter().filter(|(page, leaf)| before.get(page) != Some(leaf)).count();
        let gone = before.keys().filter(|page| !now.contains_key(page)).count();
        prop_assert_eq!((report.mapped.pages, report.unmapped.pages), (changed as u64, gone as u64));
    }
    space.clear(&memory, &mut budget, &mut shadow).unwrap();
    prop_assert!(shadow.pages.is_empty());
    space.release(&mut budget);
    prop_assert_eq!((budget.tables(), budget.snapshot_bytes()), (0, 0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// All changes are emitted, and nothing else.
    #[test]
    fn stretches_of_pages_are_followed(rounds in proptest::collection::vec(edits(), 1..6), large_64k: bool) {
        follow(Fermi { large_pages: LargePages::from_64k(large_64k) }, &rounds)?;
        for format in Gmmu::ALL {
            follow(format, &rounds)?;
        }
    }
}

/// Memory whose tables change with every read, as a guest's other processors may change them.
struct Restless {
    memory: Memory,
    reads: Cell<u64>,
}

impl GuestMemory for Restless {
    fn read(&self, address: PhysicalAddress, data: &mut [u8]) -> Result<(), NotGuestMemory> {
        self.memory.read(address, data)?;
        if (SMALL..SMALL + 0x1000).contains(&address.address) {
            self.reads.set(self.reads.get() + 1);
            // From now on all pages are others, and the last one is not the guest's.
            for page in 0..512 {
                let target = if page == 511 { VRAM } else { (page + self.reads.get()) << 12 };
                self.memory.write_u64(SMALL + page * 8, Fermi::default().page(vram(target), false));
            }
        }
        Ok(())
    }

    fn contains(&self, address: PhysicalAddress, size: u64) -> bool {
        self.memory.contains(address, size)
    }
}

#[test]
fn tables_that_change_while_they_are_read_are_taken_as_they_were() {
    let memory = Restless { memory: Memory::new(VRAM), reads: Cell::new(0) };
    let format = Fermi::default();
    format.directories(&memory.memory);
    let mut budget = Budget::new(format.limits());
    let mut space = ShadowSpace::new(format, vram(0), &mut budget).unwrap();
    let mut shadow = Shadow::default();
    for round in 0..5 {
        let expected = naive(format, vram(0), &memory.memory);

        space.sync(&memory, &mut budget, &mut shadow).unwrap();

        assert_eq!(shadow.pages, expected, "round {round}");
        assert_eq!(memory.reads.get(), round + 1, "a page of a table is read once");
    }
}
