//! Tests the check of mappings with every page size that a request can name and every address around every
//! border, against arithmetic that cannot overflow. Mapped pages lie in the tenant's memory, page by page
//! where the guest said, and every page of a run is either mapped or a fault.

use std::time::Duration;

use super::*;
use crate::dma_range::DmaRange;
use crate::partition::VramAllocator;
use gpuvmk_chip::addr::{HostVram, Iova};
use gpuvmk_chip::{Chip, EngineSet};
use gpuvmk_gpu::ScrubMode;

const MIB: u64 = 1 << 20;
/// Host memory before the tenants', and a partition.
const HOST: u64 = 64 * MIB;
const PARTITION: u64 = 4 * MIB;
const START: u64 = HOST + PARTITION;

fn info(page_shifts: &[u8], va_bits: u8) -> GpuInfo {
    GpuInfo {
        chip: Chip::GF100,
        classes: Vec::new(),
        tenant_vram: HostVram(HOST),
        tenant_vram_size: 4 * PARTITION,
        partition_granule: PARTITION,
        channels: 8,
        engines: EngineSet::all(),
        userd_granule: 4096,
        slow_vram_reads: false,
        texture_clusters: None,
        va_bits,
        page_shifts: page_shifts.to_vec(),
        system_bits: 40,
        first_iova: Iova(MIB),
        spaces: 16,
        table_memory: MIB,
        scrub: ScrubMode::Processor,
        switch_time: Duration::from_micros(150),
        shortest_turn: Duration::ZERO,
        close_when_lost: false,
    }
}

/// The second of four partitions.
fn partition() -> Partition {
    let mut vram = VramAllocator::new(HostVram(HOST), 4 * PARTITION, PARTITION);
    vram.take(PARTITION).unwrap();
    vram.take(PARTITION).unwrap()
}

/// Two ranges that meet, a hole, a read-only one.
const RANGES: [(u64, u64, u64, bool); 3] = [
    (0, 2 * MIB, 1 << 32, true),
    (2 * MIB, MIB, (1 << 32) + 16 * MIB, true),
    (4 * MIB, 0x3000, (1 << 33) + 4 * MIB, false),
];

fn memory() -> DmaMap {
    let mut map = DmaMap::default();
    for (gpa, size, iova, writable) in RANGES {
        map.insert(DmaRange { gpa: Gpa(gpa), size, iova: Iova(iova), writable }, None);
    }
    map
}

/// Around each border: on it, a byte and a page before and behind, and what wraps.
fn around(borders: &[u64]) -> Vec<u64> {
    let near = [0, 1, 0x1000, 0x2000, 0x1_0000, 0x2_0000, 2 * MIB];
    let mut all: Vec<u64> = borders
        .iter()
        .flat_map(|border| near.iter().flat_map(|by| [border.wrapping_add(*by), border.wrapping_sub(*by)]))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Where a page must point if it is mapped; `None` for a fault.
fn expected(target: GuestTarget, index: u64, shift: u8) -> Option<(HostTarget, bool)> {
    let (page, size) = (u128::from(index) << shift, 1u128 << shift);
    let inside = |first: u64, start: u64, bytes: u64| {
        let at = u128::from(first) + page;
        let fits = at >= u128::from(start) && at + size <= u128::from(start) + u128::from(bytes);
        (u128::from(first) % size == 0 && fits).then(|| u64::try_from(at).unwrap())
    };
    match target {
        GuestTarget::Vram(GuestVram(offset)) => {
            let at = inside(offset, 0, PARTITION)?;
            Some((HostTarget::Vram(HostVram(START + at)), false))
        }
        GuestTarget::System { address: Gpa(address), coherent } => RANGES.iter().find_map(|range| {
            let (gpa, bytes, iova, writable) = *range;
            let at = inside(address, gpa, bytes)?;
            Some((HostTarget::System { iova: Iova(iova + (at - gpa)), coherent }, !writable))
        }),
    }
}

/// True for runs whose virtual side is sound.
fn sound(info: &GpuInfo, run: &GuestMapping) -> bool {
    let bytes = u128::from(run.pages) << run.page_shift.min(63);
    info.page_shifts.contains(&run.page_shift)
        && run.pages > 0
        && u128::from(run.va.0).is_multiple_of(1 << run.page_shift)
        && u128::from(run.va.0) + bytes <= 1 << info.va_bits
}

/// Checks the answer for one run, page by page.
fn judge(info: &GpuInfo, run: &GuestMapping, result: &Result<CheckedUpdate, RunError>) {
    let Ok(update) = result else {
        assert!(!sound(info, run), "refused: {run:x?}");
        return;
    };
    assert!(sound(info, run), "taken: {run:x?}");
    let mut bad = 0;
    let mut covered = 0;
    for index in 0..u64::from(run.pages) {
        let va = run.va.0 + (index << run.page_shift);
        let mapped = update.map.iter().find_map(|piece| {
            let offset =
                va.checked_sub(piece.va.0).filter(|by| *by < u64::from(piece.pages) << piece.page_shift)?;
            assert_eq!(piece.page_shift, run.page_shift);
            let target = match piece.target {
                HostTarget::Vram(HostVram(at)) => HostTarget::Vram(HostVram(at + offset)),
                HostTarget::System { iova: Iova(at), coherent } => {
                    HostTarget::System { iova: Iova(at + offset), coherent }
                }
            };
            Some((target, piece.read_only))
        });
        let faults = update.unmap.iter().any(|piece| {
            let offset = va.checked_sub(piece.va.0);
            offset.is_some_and(|by| by < u64::from(piece.pages) << piece.page_shift)
        });
        assert_eq!(mapped, expected(run.target, index, run.page_shift), "page {index} of {run:x?}");
        assert_eq!(faults, mapped.is_none(), "page {index} of {run:x?} is mapped and unmapped, or neither");
        bad += u64::from(faults);
        covered += 1;
    }
    assert_eq!((update.bad_pages, covered), (bad, u64::from(run.pages)));
    assert_eq!(update.first_bad.is_some(), bad > 0);
}

fn try_all(shifts: &[u8], va_bits: u8) -> u64 {
    let (info, partition, memory) = (info(shifts, va_bits), partition(), memory());
    let checker = Checker { info: &info, partition: &partition, memory: &memory };
    let limit = 1u64 << va_bits;
    let addresses = around(&[0, limit]);
    let mut targets: Vec<GuestTarget> = around(&[0, PARTITION, START, limit])
        .into_iter()
        .map(|at| GuestTarget::Vram(GuestVram(at)))
        .collect();
    let borders = [0, 2 * MIB, 3 * MIB, 4 * MIB, 4 * MIB + 0x3000, 1 << 40];
    targets.extend(
        around(&borders)
            .into_iter()
            .map(|at| GuestTarget::System { address: Gpa(at), coherent: at & 0x2000 != 0 }),
    );
    let mut tried = 0;
    for page_shift in 0..=u8::MAX {
        // Sizes that the GPU does not have are refused whatever else is said.
        let known = shifts.contains(&page_shift);
        for va in addresses.iter().step_by(if known { 1 } else { 7 }) {
            for target in targets.iter().step_by(if known { 1 } else { 31 }) {
                for pages in [0, 1, 2, 17] {
                    let run = GuestMapping {
                        va: GpuVa(*va),
                        pages,
                        page_shift,
                        target: *target,
                        read_only: false,
                        kind: 0,
                    };
                    judge(&info, &run, &checker.update(&[], &[run]));
                    tried += 1;
                }
            }
        }
    }
    tried
}

#[test]
fn every_mapping_around_every_border_of_a_gf100_is_mapped_right_or_faults() {
    assert!(try_all(&[12, 17], 40) > 20_000);
}

#[test]
fn every_mapping_around_every_border_of_a_gh100_is_mapped_right_or_faults() {
    assert!(try_all(&[12, 16, 21, 29], 57) > 20_000);
}

#[test]
fn runs_as_long_as_a_request_can_say_are_counted_and_not_walked() {
    let (info, partition, memory) = (info(&[12], 57), partition(), memory());
    let checker = Checker { info: &info, partition: &partition, memory: &memory };
    for target in [
        GuestTarget::Vram(GuestVram(PARTITION - 0x1000)),
        GuestTarget::System { address: Gpa(4 * MIB + 0x2000), coherent: true },
        GuestTarget::System { address: Gpa(!0xfff), coherent: true },
    ] {
        let run =
            GuestMapping { va: GpuVa(0), pages: u32::MAX, page_shift: 12, target, read_only: false, kind: 0 };

        let update = checker.update(&[], &[run]).unwrap();

        let mapped: u64 = update.map.iter().map(|piece| u64::from(piece.pages)).sum();
        assert_eq!(mapped + update.bad_pages, u64::from(u32::MAX));
        assert!(mapped <= 1 && update.map.len() + update.unmap.len() <= 4, "{update:?}");
    }
}
