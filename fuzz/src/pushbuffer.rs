//! The software GPU's engines: command streams of one channel, for both chips. Whatever is in them, engines
//! reach only what the channel's address space maps (the ledger is the judge), and the channel can be taken
//! off within a second.

pub(crate) mod stream;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use gpuvmk::addr::{GpuVa, HostVram, Iova, TenantId};
use gpuvmk::chip::{Chip, EngineSet, Face};
use gpuvmk::fifo_virt::{CopiedBytes, CopyMeter};
use gpuvmk::gpu::register::RegisterDriver;
use gpuvmk::gpu::{
    ChannelSpec, GpuDriver, GpuDriverExt as _, GpuEvent, HostMapping, HostTarget, OwnershipLedger,
};
use gpuvmk::pci::mapping::{Access, FilePiece, Mapping, create_memory_file};
use gpuvmk::pci::{DmaBacking, DmaMapping};
use gpuvmk::softgpu::executor::{Executor, ExecutorConfig};
use gpuvmk::softgpu::{SoftGpu, SoftGpuConfig};

use crate::input::Input;
use crate::log_sink;

/// Bytes of the tenant's memory of each kind.
const VRAM: u64 = 2 << 20;
const RAM: u64 = 1 << 20;
/// Virtual addresses: VRAM, the same for reading only, system memory.
pub(crate) const VRAM_VA: u64 = 0x10_0000;
const READ_ONLY_VA: u64 = 0x40_0000;
pub(crate) const RAM_VA: u64 = 0x80_0000;
/// In VRAM: USERD, ring, then pushbuffers.
const RING: u64 = 0x1000;
const PUSH: u64 = 0x2000;
const PUSH_BYTES: u64 = 0x1000;
const ENTRIES_LOG2: u8 = 4;
/// How long to wait for work that may wait for ever.
const PATIENCE: Duration = Duration::from_millis(3);
/// How long a channel may stay on hardware once it is to leave.
const LEAVING: Duration = Duration::from_secs(1);

/// A tenant with a neighbour.
const TENANT: TenantId = TenantId(1);
const NEIGHBOUR: TenantId = TenantId(2);

/// Runs command streams.
pub fn run(data: &[u8]) {
    log_sink::install();
    let mut input = Input::new(data);
    if input.flag() {
        let gpu = Executor::new(ExecutorConfig { vram: 32 << 20 }).expect("a software GPU");
        let ledger = gpu.ledger();
        work(&mut input, Box::new(gpu), &*ledger, Chip::GH100);
    } else {
        let config = SoftGpuConfig { vram: 32 << 20, ..SoftGpuConfig::default() };
        let gpu = SoftGpu::new(config).expect("a software GPU");
        let ledger = gpu.ledger();
        let driver = RegisterDriver::new(gpu).expect("a GPU that comes up");
        work(&mut input, Box::new(driver), &*ledger, Chip::GF100);
    }
}

fn work(input: &mut Input<'_>, mut gpu: Box<dyn GpuDriver>, ledger: &dyn OwnershipLedger, chip: Chip) {
    let info = gpu.info().clone();
    let base = info.tenant_vram;
    ledger.own_vram(base, info.tenant_vram_size, Some(NEIGHBOUR));
    ledger.own_vram(base, VRAM, Some(TENANT));
    ledger.own_system(info.first_iova, RAM, Some(TENANT));
    let window = window(&mut *gpu, base, info.partition_granule);
    let file = create_memory_file(c"ram", RAM).expect("a memory file");
    let mapping = DmaMapping {
        iova: info.first_iova.0,
        size: RAM,
        writable: true,
        backing: Some(DmaBacking { fd: file, offset: 0 }),
        owner: None,
    };
    gpu.dma_map(mapping).expect("free bus addresses");
    let space = gpu.create_space().expect("an address space");
    let map = [
        mapping_of(VRAM_VA, VRAM, HostTarget::Vram(base), false),
        mapping_of(READ_ONLY_VA, VRAM, HostTarget::Vram(base), true),
        mapping_of(RAM_VA, RAM, system(info.first_iova), false),
    ];
    gpu.update_space(space, &[], &map, u64::MAX).expect("pages to map");
    let engines = match (chip.face, input.below(3)) {
        (Face::Gsp, 0) => EngineSet::GRAPHICS | EngineSet::COPY0,
        (Face::Registers, 0) => EngineSet::GRAPHICS,
        (Face::Registers, 1) => EngineSet::COPY0,
        _ => EngineSet::COPY1,
    };
    let channel = gpu
        .create_channel(ChannelSpec {
            space,
            gpfifo: GpuVa(VRAM_VA + RING),
            gpfifo_entries_log2: ENTRIES_LOG2,
            userd: base,
            engines,
        })
        .expect("a channel");
    ledger.own_channel(channel, Some(TENANT));
    gpu.enable_channel(channel, true).expect("a channel");
    gpu.commit_runlist(&[channel]).expect("a runlist");

    // What a device back end counts of the same commands is its own matter: it must not fail.
    let mut meter = CopyMeter::new(chip.subchannels, engines);
    let mut copied = CopiedBytes::default();
    let mut put = 0;
    let mut events = Vec::new();
    while input.more() && put < 12 {
        let words = stream::words(input, chip);
        let bytes: Vec<_> = words.iter().map(|word| word.to_le_bytes()).collect();
        meter.read(&bytes, &mut copied);
        let push = PUSH + u64::from(put) * PUSH_BYTES;
        for (at, word) in (push..).step_by(4).zip(&words) {
            window.write_u32(at, *word).expect("inside the window");
        }
        let entry = stream::ring_entry(input, VRAM_VA + push, words.len());
        window.write_u64(RING + u64::from(put) * 8, entry).expect("inside the window");
        put += 1;
        let told = if input.below(32) == 31 { input.u32() } else { put };
        window.write_u32(stream::GP_PUT, told).expect("inside the window");
        gpu.doorbell(channel).expect("a channel");
        wait(&mut *gpu, &mut events, || window.read_u32(stream::GP_GET).ok() == Some(told));
        assert_eq!(ledger.foreign_accesses(TENANT), 0, "an engine left the tenant's memory");
    }
    let start = Instant::now();
    gpu.commit_runlist(&[]).expect("a runlist");
    gpu.preempt_channel(channel).expect("a channel");
    wait(&mut *gpu, &mut events, || false);
    gpu.destroy_channel(channel).expect("a channel that goes");
    gpu.destroy_space(space).expect("a space that nobody uses");
    let late = start.elapsed();
    assert!(late < LEAVING, "the channel took {late:?} to leave");
    assert_eq!(ledger.foreign_accesses(TENANT), 0, "an engine left the tenant's memory");
}

/// The tenant's VRAM as its CPU sees it.
fn window(gpu: &mut dyn GpuDriver, base: HostVram, granule: u64) -> Mapping {
    let shared = gpu.share_vram(base, granule).expect("whole granules are shared");
    let pieces: Vec<_> = shared
        .iter()
        .map(|piece| FilePiece { fd: piece.fd.as_fd(), offset: piece.offset, size: piece.size })
        .collect();
    Mapping::contiguous(&pieces, Access::ReadWrite).expect("a mapping")
}

fn system(iova: Iova) -> HostTarget {
    HostTarget::System { iova, coherent: true }
}

fn mapping_of(va: u64, size: u64, target: HostTarget, read_only: bool) -> HostMapping {
    let pages = u32::try_from(size >> 12).expect("few pages");
    HostMapping { va: GpuVa(va), pages, page_shift: 12, target, read_only, kind: 0 }
}

/// Until it is done, something was reported that stops channels or ends a preemption, or patience is at its
/// end.
fn wait(gpu: &mut dyn GpuDriver, events: &mut Vec<GpuEvent>, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() && start.elapsed() < PATIENCE {
        gpu.take_events(events);
        if events.drain(..).any(|event| !matches!(event, GpuEvent::NonStall(_))) {
            return;
        }
        std::thread::yield_now();
    }
}
