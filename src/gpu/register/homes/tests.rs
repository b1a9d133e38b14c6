//! Tenants' VRAM in the host's memory: a software GPU that shares nothing, as a card.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::*;
use crate::addr::GpuVa;
use crate::chip::gf100::ramin::{USERD_GP_GET, USERD_GP_PUT};
use crate::chip::{Engine, EngineSet};
use crate::gpu::register::RegisterDriver;
use crate::gpu::scrub::commands::{Dialect, copy_words};
use crate::gpu::{ChannelSpec, GpuDriver};
use crate::pci::{AccessError, DmaError, InterruptSink, Region, RegionTable};
use crate::softgpu::{SoftGpu, SoftGpuConfig};

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);
/// Virtual addresses of a tenant's pages, and where the pages are in its partition.
const VA: u64 = 0x1000_0000;
const RING: u64 = 0x1000;
const COMMANDS: u64 = 0x2000;
const SEMAPHORE: u64 = 0x3000;
const FROM: u64 = 0x10_0000;
/// In another granule.
const TO: u64 = 0x30_0000;
const SIZE: u64 = 0x1_0000;

/// What a card is to its driver: nothing of its BARs can be shared.
struct Card {
    gpu: Arc<SoftGpu>,
    reads: AtomicU64,
    /// What it may reach.
    dma: Mutex<BTreeMap<u64, u64>>,
}

impl PciFunction for Card {
    fn regions(&self) -> RegionTable {
        self.gpu.regions()
    }

    fn read(&self, region: Region, offset: u64, data: &mut [u8]) -> Result<(), AccessError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.gpu.read(region, offset, data)
    }

    fn write(&self, region: Region, offset: u64, data: &[u8]) -> Result<(), AccessError> {
        self.gpu.write(region, offset, data)
    }

    fn dma_map(&self, mapping: DmaMapping) -> Result<(), DmaError> {
        let (iova, size) = (mapping.iova, mapping.size);
        self.gpu.dma_map(mapping)?;
        self.dma.lock().unwrap().insert(iova, size);
        Ok(())
    }

    fn dma_unmap(&self, iova: u64, size: u64) -> Result<(), DmaError> {
        self.gpu.dma_unmap(iova, size)?;
        self.dma.lock().unwrap().remove(&iova);
        Ok(())
    }

    fn dma_unmap_all(&self) {
        self.gpu.dma_unmap_all();
    }

    fn connect_interrupts(&self, sink: Option<Arc<dyn InterruptSink>>) {
        self.gpu.connect_interrupts(sink);
    }

    fn reset(&self) {
        self.gpu.reset();
    }
}

struct Rig {
    card: Arc<Card>,
    driver: RegisterDriver,
}

impl Rig {
    fn new() -> Self {
        let gpu = SoftGpu::new(SoftGpuConfig { vram: 128 * MIB, ..SoftGpuConfig::default() }).unwrap();
        let card = Arc::new(Card { gpu, reads: AtomicU64::new(0), dma: Mutex::default() });
        let driver = RegisterDriver::new(Arc::clone(&card) as Arc<dyn PciFunction>).unwrap();
        Self { card, driver }
    }

    fn first(&self) -> HostVram {
        self.driver.info().tenant_vram
    }

    /// A partition, as its tenant sees it.
    fn partition(&mut self, start: HostVram, size: u64) -> Mapping {
        let shared = self.driver.share_vram(start, size).unwrap();
        let [piece] = shared.as_slice() else { panic!("{} pieces", shared.len()) };
        assert_eq!((piece.offset, piece.size), (0, size));
        Mapping::of_file(piece.fd.as_fd(), 0, size, Access::ReadWrite).unwrap()
    }

    fn reads(&self) -> u64 {
        self.card.reads.load(Ordering::Relaxed)
    }

    fn granules_told(&self) -> usize {
        self.card.dma.lock().unwrap().len()
    }
}

fn at(start: HostVram, offset: u64) -> HostVram {
    HostVram(start.0 + offset)
}

fn page(va: u64, target: HostVram, pages: u32) -> HostMapping {
    let target = HostTarget::Vram(target);
    HostMapping { va: GpuVa(va), pages, page_shift: 12, target, read_only: false, kind: 0 }
}

/// Copies in a tenant's VRAM with a channel whose ring, commands and USERD are there too.
#[test]
fn engine_copies_between_pages_of_a_partition_and_doorbells_read_nothing_of_the_card() {
    let mut rig = Rig::new();
    let start = rig.first();
    let memory = rig.partition(start, 16 * MIB);
    let space = rig.driver.create_space().unwrap();
    rig.driver.update_space(space, &[], &[page(VA, start, 4096)], u64::MAX).unwrap();
    let engine = Engine::Copy(0);
    let spec = ChannelSpec {
        space,
        gpfifo: GpuVa(VA + RING),
        gpfifo_entries_log2: 6,
        userd: start,
        engines: EngineSet::from(engine),
    };
    let channel = rig.driver.create_channel(spec).unwrap();
    rig.driver.enable_channel(channel, true).unwrap();
    rig.driver.commit_runlist(&[channel]).unwrap();
    let pattern: Vec<u8> = (0..SIZE).map(|n| (n * 7 + n / 256).to_le_bytes()[0]).collect();
    memory.write(FROM, &pattern).unwrap();
    let dialect = Dialect::of("GF100", engine).unwrap();
    let words = copy_words(dialect, VA + FROM, VA + TO, SIZE, (VA + SEMAPHORE, 77));
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.write(COMMANDS, &bytes).unwrap();
    memory.write_u64(RING, (VA + COMMANDS) | (words.len() as u64) << 42).unwrap();
    memory.write_u32(USERD_GP_PUT, 1).unwrap();
    let before = rig.reads();
    rig.driver.doorbell(channel, 1).unwrap();

    let began = Instant::now();
    while memory.read_u32(SEMAPHORE).unwrap() != 77 {
        assert!(began.elapsed() < PATIENCE, "not done");
        std::thread::yield_now();
    }

    let mut copied = vec![0; pattern.len()];
    memory.read(TO, &mut copied).unwrap();
    assert!(copied == pattern, "other bytes came");
    while rig.driver.channel_progress(channel).unwrap() != 1 {
        assert!(began.elapsed() < PATIENCE, "no GP_GET: {:?}", memory.read_u32(USERD_GP_GET));
    }
    assert_eq!(rig.reads(), before, "a doorbell, and looks at the progress, read from the card");
}

#[test]
fn card_reaches_only_what_tables_name_and_nothing_once_it_is_zeroed() {
    let mut rig = Rig::new();
    let start = rig.first();
    let memory = rig.partition(start, 16 * MIB);
    assert_eq!(rig.granules_told(), 0);
    let space = rig.driver.create_space().unwrap();
    // Across a border of granules, and once more within.
    let maps = [page(VA, at(start, GRANULE - 0x1000), 2), page(VA + MIB, at(start, 0x5000), 1)];
    rig.driver.update_space(space, &[], &maps, u64::MAX).unwrap();
    assert_eq!(rig.granules_told(), 2);
    memory.write(0x1234, b"secret").unwrap();
    memory.write(GRANULE + 0x1234, b"kept").unwrap();
    rig.driver.clear_space(space).unwrap();

    rig.driver.scrub_vram(start, GRANULE).unwrap();
    rig.driver.scrub_vram(at(start, GRANULE), 0x1000).unwrap();

    assert_eq!(rig.granules_told(), 1);
    let mut seen = [1; 6];
    memory.read(0x1234, &mut seen).unwrap();
    assert_eq!(seen, [0; 6]);
    memory.read(GRANULE + 0x1234, &mut seen).unwrap();
    assert_eq!(&seen[..4], b"kept", "a part of a granule is zeroed alone");
    rig.driver.scrub_vram(start, 16 * MIB).unwrap();
    assert_eq!(rig.granules_told(), 0);
    // What is zero is reached again when it is named again.
    rig.driver.update_space(space, &[], &maps, u64::MAX).unwrap();
    assert_eq!(rig.granules_told(), 2);
}

#[test]
fn next_tenant_gets_other_memory_and_the_last_one_keeps_no_hold_on_it() {
    let mut rig = Rig::new();
    let start = rig.first();
    let old = rig.partition(start, 16 * MIB);
    old.write(0, b"secret").unwrap();
    let space = rig.driver.create_space().unwrap();
    rig.driver.update_space(space, &[], &[page(VA, start, 1)], u64::MAX).unwrap();
    rig.driver.clear_space(space).unwrap();

    // Half of its place, and what is behind.
    let new = rig.partition(at(start, 8 * MIB), 16 * MIB);

    assert_eq!(rig.granules_told(), 0, "what nobody has is out of reach");
    new.write(0, b"another").unwrap();
    let mut seen = [0; 6];
    old.read(8 * MIB, &mut seen).unwrap();
    assert_eq!(seen, [0; 6], "who has left sees what the next one writes");
}

#[test]
fn what_no_tenant_has_is_not_mapped() {
    let mut rig = Rig::new();
    let start = rig.first();
    let space = rig.driver.create_space().unwrap();
    let update =
        |rig: &mut Rig, target| rig.driver.update_space(space, &[], &[page(VA, target, 2)], u64::MAX);
    let refused = update(&mut rig, start).unwrap_err();
    assert!(refused.to_string().contains("no tenant's memory"), "{refused}");
    let _memory = rig.partition(start, 4 * MIB);
    update(&mut rig, at(start, 4 * MIB - 0x2000)).unwrap();
    assert!(update(&mut rig, at(start, 4 * MIB - 0x1000)).is_err(), "its last page, and one behind");
    assert_eq!(rig.driver.space_usage(space).unwrap().pages, 2, "only what was allowed is there");
    for (offset, size) in [(0x1000, GRANULE), (0, 0x1000), (0, 0), (0, u64::MAX - 0x1fff)] {
        assert!(rig.driver.share_vram(at(start, offset), size).is_err(), "{offset:#x}+{size:#x}");
    }
    assert!(rig.driver.share_vram(HostVram(0), GRANULE).is_err(), "the host's own");
}

#[test]
fn bus_addresses_for_other_memory_begin_behind() {
    let rig = Rig::new();
    let info = rig.driver.info();
    assert!(info.first_iova.0 >= FIRST_IOVA + info.tenant_vram.0 + info.tenant_vram_size);
    assert_eq!(info.partition_granule, GRANULE);
}
