//! Updates as the aggregator checks them: what a tenant asks for, against its partition and its memory.

use std::time::Duration;

use gpuvmk::addr::{Gpa, GpuVa, GuestVram, HostVram, Iova};
use gpuvmk::aggregator::check::{CheckedUpdate, Checker};
use gpuvmk::aggregator::dma_map::DmaMap;
use gpuvmk::aggregator::dma_range::DmaRange;
use gpuvmk::aggregator::partition::{Partition, VramAllocator};
use gpuvmk::aggregator::protocol::{GuestMapping, GuestTarget, MAX_UPDATE_RUNS};
use gpuvmk::chip::{Chip, EngineSet};
use gpuvmk::gpu::{GpuInfo, ScrubMode};

const MIB: u64 = 1 << 20;
/// Ranges of the tenant's memory: QEMU announces RAM in a dozen.
const RANGES: u64 = 12;
const RANGE: u64 = 64 * MIB;
const VRAM: u64 = 256 * MIB;

/// What an update is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Runs of 512 pages, as tables of contiguous buffers make.
    Runs,
    /// Runs of one page in VRAM.
    VramPages,
    /// Runs of one page in system memory, in order.
    SystemPages,
    /// Runs of one page in system memory, each in another range than the last.
    JumpingPages,
}

impl Update {
    pub const ALL: [Self; 4] = [Self::Runs, Self::VramPages, Self::SystemPages, Self::JumpingPages];

    fn mapping(self, index: u64) -> GuestMapping {
        let pages = if self == Self::Runs { 512 } else { 1 };
        let vram = |page: u64| GuestTarget::Vram(GuestVram((page << 12) % VRAM));
        let system = |address| GuestTarget::System { address: Gpa(address), coherent: true };
        let target = match self {
            Self::Runs => vram(index * 512),
            // Neighbours are not neighbours.
            Self::VramPages => vram(index * 3),
            Self::SystemPages => system(((index * 3) << 12) % (RANGES * RANGE)),
            Self::JumpingPages => system((index * 7 % RANGES) * RANGE + (index << 12) % RANGE),
        };
        let va = GpuVa((index << 12) * u64::from(pages));
        GuestMapping { va, pages, page_shift: 12, target, read_only: false, kind: 0 }
    }
}

/// A tenant, and the largest update that it may ask for.
pub struct Tenant {
    info: GpuInfo,
    partition: Partition,
    memory: DmaMap,
    map: Vec<GuestMapping>,
}

impl Tenant {
    pub fn new(update: Update) -> Self {
        let info = GpuInfo {
            chip: Chip::GF100,
            classes: Vec::new(),
            tenant_vram: HostVram(64 * MIB),
            tenant_vram_size: 1024 * MIB,
            partition_granule: 16 * MIB,
            channels: 8,
            engines: EngineSet::all(),
            userd_granule: 4096,
            slow_vram_reads: false,
            texture_clusters: None,
            va_bits: 40,
            page_shifts: vec![12, 16, 17],
            system_bits: 40,
            first_iova: Iova(MIB),
            spaces: 1024,
            table_memory: 32 * MIB,
            scrub: ScrubMode::Processor,
            switch_time: Duration::from_micros(150),
            shortest_turn: Duration::ZERO,
            close_when_lost: false,
        };
        let mut vram = VramAllocator::new(info.tenant_vram, info.tenant_vram_size, info.partition_granule);
        let partition = vram.take(VRAM).expect("room");
        let mut memory = DmaMap::default();
        for range in 0..RANGES {
            let iova = Iova(range * 2 * RANGE);
            memory.insert(DmaRange { gpa: Gpa(range * RANGE), size: RANGE, iova, writable: true }, None);
        }
        let map = (0..MAX_UPDATE_RUNS as u64).map(|index| update.mapping(index)).collect();
        Self { info, partition, memory, map }
    }

    /// Pages of the update.
    pub fn pages(&self) -> u64 {
        self.map.iter().map(|run| u64::from(run.pages)).sum()
    }

    /// What the aggregator does before anything is written to a table.
    pub fn check(&self) -> CheckedUpdate {
        let checker = Checker { info: &self.info, partition: &self.partition, memory: &self.memory };
        checker.update(&[], std::hint::black_box(&self.map)).expect("a valid update")
    }
}
