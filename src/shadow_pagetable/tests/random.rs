//! The shadow against the naive walker: whatever the tables are and however they change, the runs of all
//! synchronisations add up to what a walk from scratch finds.

use proptest::prelude::*;

use super::*;
use gpuvmk_chip::addr::GpuVa;
use gpuvmk_chip::gf100::mmu::LargePages;

/// A format with four levels, 16-byte entries and pages in an upper level, in the manner of later chips, but
/// with four entries a table so that random trees are dense.
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
            for (shift, va) in shadow.pages.keys() {
                let found = translate(&Toy, root, GpuVa(*va), &memory);
                prop_assert!(found.is_some_and(|(_, left)| left >= 0x1000), "{shift} {va:#x} {found:?}");
            }
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
