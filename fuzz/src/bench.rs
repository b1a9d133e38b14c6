//! A tenant on a software GPU with one channel, for harnesses of what channels do. The ledger judges what
//! engines reach.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use gpuvmk::addr::{GpuVa, HostChannel, HostVram, Iova, TenantId};
use gpuvmk::chip::EngineSet;
use gpuvmk::chip::gf100::ramin::{USERD_GP_GET, USERD_GP_PUT};
use gpuvmk::gpu::{
    ChannelSpec, GpuDriver, GpuDriverExt as _, GpuEvent, HostMapping, HostTarget, OwnershipLedger,
    SpaceHandle,
};
use gpuvmk::pci::mapping::{Access, FilePiece, Mapping, create_memory_file};
use gpuvmk::pci::{DmaBacking, DmaMapping};

/// Bytes of the tenant's memory of each kind.
pub(crate) const VRAM: u64 = 2 << 20;
pub(crate) const RAM: u64 = 1 << 20;
/// Virtual addresses: VRAM, the same for reading only, system memory.
pub(crate) const VRAM_VA: u64 = 0x10_0000;
pub(crate) const READ_ONLY_VA: u64 = 0x40_0000;
pub(crate) const RAM_VA: u64 = 0x80_0000;
/// In VRAM: USERD, ring, then pushbuffers. What lies behind [`FREE`] is for harnesses.
const RING: u64 = 0x1000;
const PUSH: u64 = 0x2000;
const PUSH_BYTES: u64 = 0x1000;
pub(crate) const FREE: u64 = 0x2_0000;
const ENTRIES_LOG2: u8 = 4;
/// Most segments of a run.
pub(crate) const SEGMENTS: u32 = 12;
/// How long to wait for work that may wait for ever.
const PATIENCE: Duration = Duration::from_millis(3);
/// How long a channel may stay on hardware once it is to leave.
const LEAVING: Duration = Duration::from_secs(1);

/// A tenant with a neighbour.
const TENANT: TenantId = TenantId(1);
const NEIGHBOUR: TenantId = TenantId(2);

/// The tenant, with its channel.
pub(crate) struct Bench<'a> {
    gpu: Box<dyn GpuDriver>,
    ledger: &'a dyn OwnershipLedger,
    /// Its VRAM as its CPU sees it.
    pub(crate) window: Mapping,
    space: SpaceHandle,
    channel: HostChannel,
    put: u32,
    events: Vec<GpuEvent>,
}

impl<'a> Bench<'a> {
    /// A channel on these engines, ready to run.
    pub(crate) fn new(
        mut gpu: Box<dyn GpuDriver>,
        ledger: &'a dyn OwnershipLedger,
        engines: EngineSet,
    ) -> Self {
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
        let spec = ChannelSpec {
            context_of: None,
            space,
            gpfifo: GpuVa(VRAM_VA + RING),
            gpfifo_entries_log2: ENTRIES_LOG2,
            userd: base,
            engines,
        };
        let channel = gpu.create_channel(spec).expect("a channel");
        ledger.own_channel(channel, Some(TENANT));
        gpu.enable_channel(channel, true).expect("a channel");
        gpu.commit_runlist(&[channel]).expect("a runlist");
        Self { gpu, ledger, window, space, channel, put: 0, events: Vec::new() }
    }

    /// Segments that were submitted.
    pub(crate) fn segments(&self) -> u32 {
        self.put
    }

    /// Where the next segment's words will lie.
    pub(crate) fn segment_va(&self) -> u64 {
        VRAM_VA + PUSH + u64::from(self.put) * PUSH_BYTES
    }

    /// Submits a segment by a ring entry, and tells the channel that as many are there. Waits for a moment.
    pub(crate) fn submit(&mut self, words: &[u32], entry: u64, told: Option<u32>) {
        let push = self.segment_va() - VRAM_VA;
        for (at, word) in (push..).step_by(4).zip(words) {
            self.window.write_u32(at, *word).expect("inside the window");
        }
        self.window.write_u64(RING + u64::from(self.put) * 8, entry).expect("inside the window");
        self.put += 1;
        let told = told.unwrap_or(self.put);
        self.window.write_u32(USERD_GP_PUT, told).expect("inside the window");
        self.gpu.doorbell(self.channel).expect("a channel");
        let window = &self.window;
        wait(&mut *self.gpu, &mut self.events, || window.read_u32(USERD_GP_GET).ok() == Some(told));
        self.judge();
    }

    /// Takes the channel off, and destroys it and its space.
    pub(crate) fn leave(mut self) {
        let start = Instant::now();
        self.gpu.commit_runlist(&[]).expect("a runlist");
        self.gpu.preempt_channel(self.channel).expect("a channel");
        wait(&mut *self.gpu, &mut self.events, || false);
        self.gpu.destroy_channel(self.channel).expect("a channel that goes");
        self.gpu.destroy_space(self.space).expect("a space that nobody uses");
        let late = start.elapsed();
        assert!(late < LEAVING, "the channel took {late:?} to leave");
        self.judge();
    }

    fn judge(&self) {
        assert_eq!(self.ledger.foreign_accesses(TENANT), 0, "an engine left the tenant's memory");
    }
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
