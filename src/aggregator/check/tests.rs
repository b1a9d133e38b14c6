use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::dma_range::DmaRange;
use crate::partition::VramAllocator;
use gpuvmk_chip::addr::{HostVram, Iova};
use gpuvmk_chip::{Chip, EngineSet};
use gpuvmk_gpu::ScrubMode;

const MIB: u64 = 1 << 20;

fn info() -> GpuInfo {
    GpuInfo {
        chip: Chip::GF100,
        classes: Vec::new(),
        tenant_vram: HostVram(64 * MIB),
        tenant_vram_size: 256 * MIB,
        partition_granule: 16 * MIB,
        channels: 8,
        engines: EngineSet::all(),
        userd_granule: 4096,
        slow_vram_reads: false,
        texture_clusters: None,
        va_bits: 40,
        page_shifts: vec![12, 17],
        system_bits: 40,
        first_iova: Iova(MIB),
        spaces: 64,
        table_memory: 32 * MIB,
        scrub: ScrubMode::Processor,
        switch_time: Duration::from_micros(150),
        shortest_turn: Duration::ZERO,
        close_when_lost: false,
    }
}

/// The second partition of 32 MiB, so that both neighbours exist.
fn partition() -> Partition {
    let mut vram = VramAllocator::new(HostVram(64 * MIB), 256 * MIB, 16 * MIB);
    vram.take(32 * MIB).unwrap();
    vram.take(32 * MIB).unwrap()
}

fn memory() -> DmaMap {
    let mut map = DmaMap::default();
    map.insert(DmaRange { gpa: Gpa(0), size: 0xa0000, iova: Iova(4 * MIB), writable: true }, None);
    map.insert(
        DmaRange { gpa: Gpa(0xc0000), size: 0x10000, iova: Iova(8 * MIB + 0xc0000), writable: false },
        None,
    );
    map.insert(DmaRange { gpa: Gpa(MIB), size: 63 * MIB, iova: Iova(33 * MIB), writable: true }, None);
    map
}

fn run(va: u64, pages: u32, page_shift: u8, target: GuestTarget) -> GuestMapping {
    GuestMapping { va: GpuVa(va), pages, page_shift, target, read_only: false, kind: 0 }
}

fn vram(offset: u64) -> GuestTarget {
    GuestTarget::Vram(GuestVram(offset))
}

fn system(address: u64) -> GuestTarget {
    GuestTarget::System { address: Gpa(address), coherent: true }
}

fn check(map: &[GuestMapping]) -> Result<CheckedUpdate, RunError> {
    let (info, partition, memory) = (info(), partition(), memory());
    Checker { info: &info, partition: &partition, memory: &memory }.update(&[], map)
}

#[test]
fn vram_inside_the_partition_is_offset_by_its_start() {
    let out = check(&[run(0x1000, 2, 12, vram(0x5000))]).unwrap();

    assert_eq!(out.map[0].target, HostTarget::Vram(HostVram(96 * MIB + 0x5000)));
    assert_eq!((out.map[0].pages, out.bad_pages), (2, 0));
}

#[test]
fn vram_run_across_the_partition_end_is_cut_there() {
    let out = check(&[run(0x1000, 4, 12, vram(32 * MIB - 0x1000))]).unwrap();

    assert_eq!(out.map.len(), 1);
    assert_eq!(out.map[0].pages, 1);
    assert_eq!(out.unmap, [HostRange { va: GpuVa(0x2000), pages: 3, page_shift: 12 }]);
    assert_eq!(out.first_bad, Some((GpuVa(0x2000), vram(32 * MIB))));
}

#[test]
fn vram_beyond_the_partition_becomes_a_fault() {
    for offset in [32 * MIB, 1 << 40, u64::MAX - 0xfff, 0u64.wrapping_sub(32 * MIB)] {
        let out = check(&[run(0, 1, 12, vram(offset))]).unwrap();

        assert!(out.map.is_empty(), "{offset:#x}");
        assert_eq!(out.bad_pages, 1);
    }
}

#[test]
fn large_page_with_unaligned_target_becomes_a_fault() {
    let out = check(&[run(0, 1, 17, vram(0x1000)), run(0x20000, 1, 17, system(MIB + 0x1000))]).unwrap();

    assert!(out.map.is_empty());
    assert_eq!(out.bad_pages, 2);
}

#[test]
fn system_run_is_split_at_range_borders_and_gaps_fault() {
    // 0x90..0xa0 mapped, 0xa0..0xc0 a hole, 0xc0..0xd0 read-only, 0xd0..0x100 a hole, from 0x100 on mapped.
    let out = check(&[run(0x10_0000, 0x80, 12, system(0x90000))]).unwrap();

    let pieces: Vec<_> = out.map.iter().map(|m| (m.va.0, m.pages, m.read_only)).collect();
    assert_eq!(pieces, [(0x10_0000, 16, false), (0x13_0000, 16, true), (0x17_0000, 16, false)]);
    assert_eq!(out.bad_pages, 0x20 + 0x30);
}

#[test]
fn large_page_that_no_single_range_holds_becomes_a_fault() {
    let out = check(&[run(0, 1, 17, system(0x80000))]).unwrap();

    // 0x80000..0xa0000 fits exactly.
    assert_eq!(out.map.len(), 1);
    let out = check(&[run(0, 1, 17, system(0xc0000))]).unwrap();
    assert_eq!((out.map.len(), out.bad_pages), (0, 1));
}

#[test]
fn malformed_virtual_side_refuses_the_request() {
    for (va, pages, shift) in [(0x800, 1, 12), (0, 0, 12), (1 << 40, 1, 12), ((1 << 40) - 0x1000, 2, 12)] {
        assert!(matches!(check(&[run(va, pages, shift, vram(0))]), Err(RunError::Shape { .. })));
    }
    assert_eq!(check(&[run(0, 1, 16, vram(0))]), Err(RunError::PageSize(16)));
    assert_eq!(check(&[run(0, 1, 77, vram(0))]), Err(RunError::PageSize(77)));
}

#[test]
fn largest_run_over_holes_ends_quickly() {
    let out = check(&[run(0, u32::MAX >> 4, 12, system(1 << 39))]).unwrap();

    assert_eq!(out.unmap.len(), 1);
    assert!(out.map.is_empty());
}

/// Where the naive reading of the rules puts one page, or nothing.
fn naive(va: u64, map: &GuestMapping, p: &Partition, memory: &DmaMap) -> Option<HostTarget> {
    let page = 1_u64 << map.page_shift;
    let offset = va - map.va.0;
    match map.target {
        GuestTarget::Vram(v) => {
            let at = v.0.checked_add(offset)?;
            (at % page == 0 && at.checked_add(page)? <= p.size())
                .then(|| HostTarget::Vram(HostVram(p.start().0 + at)))
        }
        GuestTarget::System { address, coherent } => {
            let at = address.0.checked_add(offset)?;
            let r = memory
                .ranges()
                .find(|r| at >= r.gpa.0 && at.checked_add(page).is_some_and(|end| end <= r.gpa.0 + r.size))?;
            (at % page == 0).then(|| HostTarget::System { iova: Iova(r.iova.0 + (at - r.gpa.0)), coherent })
        }
    }
}

fn target_strategy() -> impl Strategy<Value = GuestTarget> {
    let page =
        prop_oneof![0_u64..0x4000, Just((1 << 28) - 1), (0_u64..0x4000).prop_map(|p| p * 32), any::<u64>()];
    (any::<bool>(), page, prop_oneof![9 => Just(0_u64), 1 => 0_u64..0x1000]).prop_map(
        |(is_vram, page, low)| {
            let at = page.wrapping_mul(0x1000).wrapping_add(low);
            if is_vram { vram(at) } else { system(at) }
        },
    )
}

proptest! {
    #[test]
    fn every_page_goes_where_the_rules_say_and_nowhere_else(
        runs in prop::collection::vec((0_u64..64, 1_u32..200, any::<bool>(), target_strategy()), 1..6))
    {
        let (info, partition, memory) = (info(), partition(), memory());
        let checker = Checker { info: &info, partition: &partition, memory: &memory };
        let maps: Vec<_> = runs.iter().enumerate().map(|(i, (slot, pages, large, target))| {
            let va = (i as u64) << 32 | slot << 17;
            run(va, *pages, if *large { 17 } else { 12 }, *target)
        }).collect();

        let out = checker.update(&[], &maps).unwrap();

        for guest in &maps {
            let page = 1_u64 << guest.page_shift;
            for i in 0..u64::from(guest.pages) {
                let va = guest.va.0 + i * page;
                let got = out.map.iter().find_map(|m| {
                    let into = va.checked_sub(m.va.0)?;
                    (into < u64::from(m.pages) * page).then(|| match m.target {
                        HostTarget::Vram(v) => HostTarget::Vram(HostVram(v.0 + into)),
                        HostTarget::System { iova, coherent } =>
                            HostTarget::System { iova: Iova(iova.0 + into), coherent },
                    })
                });
                prop_assert_eq!(got, naive(va, guest, &partition, &memory));
                let unmapped = out.unmap.iter().any(|r| va >= r.va.0 && va < r.va.0 + u64::from(r.pages) * page);
                prop_assert_eq!(unmapped, got.is_none());
            }
        }
    }
}

#[test]
fn compressed_kinds_become_plain_ones_and_kinds_that_are_none_faults() {
    let kinds = [0xfe, 0xdb, 0x17, 0xff, 0x06];
    let map: Vec<_> = (0..5)
        .map(|n: u64| GuestMapping {
            kind: kinds[usize::try_from(n).unwrap()],
            ..run(n << 12, 1, 12, vram(n << 12))
        })
        .collect();
    let out = check(&map).unwrap();

    assert_eq!(
        out.map.iter().map(|m| (m.va.0, m.kind)).collect::<Vec<_>>(),
        [(0, 0xfe), (0x1000, 0xfe), (0x2000, 0x11)]
    );
    assert_eq!(out.bad_pages, 2);
    assert_eq!(out.unmap.iter().map(|range| range.va.0).collect::<Vec<_>>(), [0x3000, 0x4000]);
    let system = GuestMapping { kind: 0xdb, ..run(0, 1, 12, system(MIB)) };
    assert_eq!(check(&[system]).unwrap().map[0].kind, 0xfe);
}
