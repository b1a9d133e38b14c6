use super::run::advance;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const PLENTY: u64 = 1 << 20;
const SHAPE: SpaceShape =
    SpaceShape { va_bits: 57, system_bits: 52, page_shifts: &[12, 16, 21, 29], join: true };

fn vram(address: u64) -> HostTarget {
    HostTarget::Vram(HostVram(address))
}

fn system(address: u64) -> HostTarget {
    HostTarget::System { iova: Iova(address), coherent: true }
}

fn mapping(va: u64, pages: u32, page_shift: u8, target: HostTarget) -> HostMapping {
    HostMapping { va: GpuVa(va), pages, page_shift, target, read_only: false, kind: 0 }
}

fn range(va: u64, pages: u32, page_shift: u8) -> HostRange {
    HostRange { va: GpuVa(va), pages, page_shift }
}

fn spans(map: &SpaceMap) -> Vec<(u64, u64, u8)> {
    map.runs().map(|run| (run.va.0, run.len, run.page_shift)).collect()
}

#[test]
fn continued_runs_join_and_others_stay_apart() {
    let mut map = SpaceMap::new(SHAPE);
    map.insert(&mapping(0x1000, 1, 12, vram(0x1_0000)), PLENTY).unwrap();
    map.insert(&mapping(0x3000, 1, 12, vram(0x1_2000)), PLENTY).unwrap();
    map.insert(&mapping(0x4000, 1, 12, vram(0x2_0000)), PLENTY).unwrap();
    map.insert(&mapping(0x2000, 1, 12, vram(0x1_1000)), PLENTY).unwrap();

    assert_eq!(spans(&map), [(0x1000, 0x3000, 12), (0x4000, 0x1000, 12)]);
    assert_eq!(map.find(0x3fff).map(|run| run.target_at(0x3fff)), Some(vram(0x1_2fff)));
    assert_eq!(map.usage(), SpaceUsage { table_bytes: 2 * RUN_BYTES, pages: 4 });
    assert_eq!(map.find(0x5000), None);
}

#[test]
fn exact_map_never_joins() {
    let mut map = SpaceMap::new(SpaceShape { join: false, ..SHAPE });
    map.insert(&mapping(0x1000, 1, 12, vram(0x1_0000)), PLENTY).unwrap();
    map.insert(&mapping(0x2000, 1, 12, vram(0x1_1000)), PLENTY).unwrap();

    assert_eq!(spans(&map), [(0x1000, 0x1000, 12), (0x2000, 0x1000, 12)]);
}

#[test]
fn hole_in_large_pages_leaves_whole_pages_and_small_ones() {
    let mut map = SpaceMap::new(SHAPE);
    map.insert(&mapping(0, 3, 21, system(0x4000_0000)), PLENTY).unwrap();

    let removed = map.unmap(&range(0x30_0000, 1, 16), PLENTY).unwrap();

    assert_eq!(removed.len(), 1);
    assert_eq!((removed[0].len, removed[0].target), (0x1_0000, system(0x4030_0000)));
    let expected = [
        (0, 0x20_0000, 21),
        (0x20_0000, 0x10_0000, 12),
        (0x31_0000, 0xf_0000, 12),
        (0x40_0000, 0x20_0000, 21),
    ];
    assert_eq!(spans(&map), expected);
    assert_eq!(map.find(0x31_0000).map(|run| run.target), Some(system(0x4031_0000)));
}

#[test]
fn mapping_over_a_mapping_replaces_it() {
    let mut map = SpaceMap::new(SHAPE);
    map.insert(&mapping(0, 16, 12, vram(0)), PLENTY).unwrap();

    let replaced = map.insert(&mapping(0x4000, 2, 12, vram(0x10_0000)), PLENTY).unwrap();

    assert_eq!(replaced.iter().map(|run| (run.va.0, run.len)).collect::<Vec<_>>(), [(0x4000, 0x2000)]);
    assert_eq!(spans(&map), [(0, 0x4000, 12), (0x4000, 0x2000, 12), (0x6000, 0xa000, 12)]);
    assert_eq!(map.usage().pages, 16);
}

#[test]
fn pages_of_revoked_system_memory_go_whole() {
    let mut map = SpaceMap::new(SHAPE);
    map.insert(&mapping(0x20_0000, 2, 21, system(0x4000_0000)), PLENTY).unwrap();
    map.insert(&mapping(0, 1, 12, system(0x4020_0000)), PLENTY).unwrap();
    map.insert(&mapping(0x1000, 1, 12, vram(0x4000_0000)), PLENTY).unwrap();

    let gone = map.revoke_system(Iova(0x4020_0000), 0x1000, PLENTY);

    assert_eq!(gone.iter().map(|run| (run.va.0, run.pages())).collect::<Vec<_>>(), [(0, 1), (0x40_0000, 1)]);
    assert_eq!(spans(&map), [(0x1000, 0x1000, 12), (0x20_0000, 0x20_0000, 21)]);
    assert_eq!(map.revoke_system(Iova(0), u64::MAX, PLENTY).len(), 1);
}

#[test]
fn budget_bounds_mappings_and_holes() {
    let mut map = SpaceMap::new(SHAPE);
    map.insert(&mapping(0, 64, 12, vram(0)), 8 * RUN_BYTES).unwrap();
    for page in (1..64).step_by(2) {
        map.unmap(&range(page * 0x1000, 1, 12), 8 * RUN_BYTES).unwrap();
        assert!(map.usage().table_bytes <= 8 * RUN_BYTES, "{:?}", map.usage());
        assert_eq!(map.find(page * 0x1000), None);
    }
    let refused = map.insert(&mapping(1 << 40, 1, 12, vram(0)), 4 * RUN_BYTES);
    assert!(matches!(refused, Err(GpuError::Exhausted { .. })), "{refused:?}");
}

#[test]
fn runs_that_the_space_cannot_have_are_refused() {
    let mut map = SpaceMap::new(SHAPE);
    let wrong = [
        mapping(0, 1, 13, vram(0)),
        mapping(0, 0, 12, vram(0)),
        mapping(0x1000, 1, 16, vram(0)),
        mapping((1 << 57) - 0x1000, 2, 12, vram(0)),
        mapping(u64::MAX - 0xfff, 1, 12, vram(0)),
        mapping(0, 1, 12, vram(0x800)),
        mapping(0, 2, 12, system((1 << 52) - 0x1000)),
        mapping(0, u32::MAX, 29, vram(0)),
        mapping(0, 1, 12, vram(u64::MAX - 0xfff)),
    ];
    for mapping in wrong {
        let refused = map.insert(&mapping, PLENTY);
        assert!(matches!(refused, Err(GpuError::Invalid(_))), "{mapping:?}: {refused:?}");
    }
    assert_eq!(map.usage(), SpaceUsage::default());
}

#[derive(Clone, Debug)]
enum Step {
    Map(HostMapping),
    Unmap(HostRange),
    Revoke(u64, u64),
    Clear,
}

/// Small enough that steps meet: 64 pages of 4 KiB; 16 of them are a large page.
fn steps() -> impl Strategy<Value = Step> {
    let places = prop_oneof![
        (0u64..64, 1u32..20).prop_map(|(page, pages)| (page << 12, pages, 12u8)),
        (0u64..4, 1u32..3).prop_map(|(page, pages)| (page << 16, pages, 16u8)),
    ];
    let targets =
        prop_oneof![(0u64..64).prop_map(|p| vram(p << 12)), (0u64..64).prop_map(|p| system(p << 12))];
    let map = (places.clone(), targets, any::<bool>()).prop_map(|((va, pages, shift), target, read_only)| {
        Step::Map(HostMapping { read_only, ..mapping(va, pages, shift, target) })
    });
    prop_oneof![
        8 => map,
        4 => places.prop_map(|(va, pages, shift)| Step::Unmap(range(va, pages, shift))),
        2 => (0u64..64, 1u64..20).prop_map(|(page, pages)| Step::Revoke(page << 12, pages << 12)),
        1 => Just(Step::Clear),
    ]
}

/// By 4 KiB page: where it points, and the page that it is part of.
type Naive = BTreeMap<u64, (HostTarget, bool, u8)>;

fn apply(naive: &mut Naive, step: &Step) {
    match step {
        Step::Map(mapping) => {
            unmap(naive, mapping.va.0, u64::from(mapping.pages) << mapping.page_shift);
            for offset in (0..u64::from(mapping.pages) << mapping.page_shift).step_by(0x1000) {
                let entry = (advance(mapping.target, offset), mapping.read_only, mapping.page_shift);
                naive.insert(mapping.va.0 + offset, entry);
            }
        }
        Step::Unmap(range) => unmap(naive, range.va.0, u64::from(range.pages) << range.page_shift),
        Step::Revoke(iova, size) => {
            let points = |(target, ..): &(HostTarget, bool, u8)| matches!(target, HostTarget::System { iova: Iova(at), .. } if (*iova..iova + size).contains(at));
            let hit: Vec<(u64, u8)> =
                naive.iter().filter(|(_, entry)| points(entry)).map(|(va, entry)| (*va, entry.2)).collect();
            for (va, shift) in hit {
                unmap(naive, va >> shift << shift, 1 << shift);
            }
        }
        Step::Clear => naive.clear(),
    }
}

/// Large pages that lose a part become small ones.
fn unmap(naive: &mut Naive, va: u64, size: u64) {
    for page in (va..va + size).step_by(0x1000) {
        if let Some((_, _, 16)) = naive.remove(&page) {
            for (_, entry) in naive.range_mut(page >> 16 << 16..(page >> 16 << 16) + 0x1_0000) {
                entry.2 = 12;
            }
        }
    }
}

proptest! {
    #[test]
    fn map_behaves_as_a_page_by_page_one(
        join: bool,
        steps in proptest::collection::vec(steps(), 1..40),
    ) {
        let mut map = SpaceMap::new(SpaceShape { join, ..SHAPE });
        let mut naive = Naive::new();
        for step in &steps {
            match step {
                Step::Map(mapping) => drop(map.insert(mapping, PLENTY).unwrap()),
                Step::Unmap(range) => drop(map.unmap(range, PLENTY).unwrap()),
                Step::Revoke(iova, size) => drop(map.revoke_system(Iova(*iova), *size, PLENTY)),
                Step::Clear => drop(map.clear()),
            }
            apply(&mut naive, step);

            let mut pages = 0;
            for va in (0..0x10_0000).step_by(0x1000) {
                let found = map.find(va).map(|run| (run.target_at(va), run.read_only, run.page_shift));
                prop_assert_eq!(found, naive.get(&va).copied(), "at {:#x} after {:?}", va, step);
                pages += found.map_or(0, |(_, _, shift)| 0x1_0000 >> shift);
            }
            prop_assert_eq!(map.usage().pages, pages / 16);
            let ends: Vec<_> = map.runs().map(|run| (run.va.0, run.end())).collect();
            prop_assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        }
    }

    #[test]
    fn removed_runs_are_what_was_there(steps in proptest::collection::vec(steps(), 1..40)) {
        let mut map = SpaceMap::new(SHAPE);
        for step in &steps {
            let before = map.clone();
            let removed = match step {
                Step::Map(mapping) => map.insert(mapping, PLENTY).unwrap(),
                Step::Unmap(range) => map.unmap(range, PLENTY).unwrap(),
                Step::Revoke(iova, size) => map.revoke_system(Iova(*iova), *size, PLENTY),
                Step::Clear => map.clear(),
            };
            for run in removed {
                for va in (run.va.0..run.end()).step_by(0x1000) {
                    let was = before.find(va).map(|run| run.target_at(va));
                    prop_assert_eq!(was, Some(run.target_at(va)));
                }
            }
        }
    }
}

proptest! {
    /// In parts of any size, everything comes to the same as at once.
    #[test]
    fn parts_come_to_the_same_as_the_whole(
        steps in proptest::collection::vec(steps(), 1..40), most in 1_usize..5,
    ) {
        let mut whole = SpaceMap::new(SpaceShape { join: true, ..SHAPE });
        let mut parts = whole.clone();
        for step in &steps {
            match step {
                Step::Map(mapping) => {
                    whole.insert(mapping, PLENTY).unwrap();
                    let mut update = crate::SpaceUpdate::new(&[], &[*mapping]);
                    while let Some(next) = update.map.front().copied() {
                        let front = parts.front(&next, most);
                        prop_assert!(parts.insert(&front, PLENTY).unwrap().len() <= most);
                        update.mapped(u64::from(front.pages) << front.page_shift);
                    }
                }
                Step::Unmap(range) => {
                    whole.unmap(range, PLENTY).unwrap();
                    while parts.unmap_some(range, PLENTY, most).unwrap().len() == most {}
                }
                Step::Revoke(iova, size) => {
                    whole.revoke_system(Iova(*iova), *size, PLENTY);
                    let mut revocation = Revocation::new(Iova(*iova), *size);
                    while !parts.revoke_some(&mut revocation, PLENTY, most, &mut Vec::new()) {}
                    prop_assert!(parts.pointing_at(Iova(*iova), *size).next().is_none());
                    // Pages go whole, and parts may have become smaller ones: less of them goes.
                    for run in whole.runs() {
                        for va in (run.va.0..run.end()).step_by(0x1000) {
                            let there = parts.find(va).map(|run| run.target_at(va));
                            prop_assert_eq!(there, Some(run.target_at(va)));
                        }
                    }
                    whole = parts.clone();
                }
                Step::Clear => {
                    whole.clear();
                    while parts.clear_some(most).len() == most {}
                }
            }
            for va in (0..0x10_0000).step_by(0x1000) {
                let at = |map: &SpaceMap| map.find(va).map(|run| (run.target_at(va), run.read_only));
                prop_assert_eq!(at(&whole), at(&parts), "at {:#x} after {:?}", va, step);
            }
        }
    }
}

#[test]
fn large_table_holds_the_heap_in_pieces_until_it_is_empty() {
    let mut map = SpaceMap::new(SpaceShape { join: false, ..SHAPE });
    let runs = heap_pins::RUNS as u64 * 3;
    for n in 0..runs {
        map.insert(&mapping(n << 12, 1, 12, system(n << 13)), u64::MAX).unwrap();
    }
    assert_eq!(map.pins.len(), 3);

    // Freed from below, the uppermost nodes stay to the last: so do all pins.
    let mut left = runs;
    while left > 1 {
        left -= u64::try_from(map.clear_some(usize::try_from(left / 2).unwrap()).len()).unwrap();
        assert_eq!(map.pins.len(), 3, "with {left} runs");
    }
    map.unmap(&range((runs - 1) << 12, 1, 12), u64::MAX).unwrap();

    assert_eq!((map.pins.len(), map.usage().pages), (0, 0));
}
