//! An executor with a client's helpers around it.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::Workers;
use crate::executor::{Executor, ExecutorConfig};
use gpuvmk_chip::EngineSet;
use gpuvmk_chip::addr::{GpuVa, HostChannel, HostVram, Iova};
use gpuvmk_chip::gh100::methods::{CLASS_COPY, copy, host};
use gpuvmk_gpu::*;
use gpuvmk_pci::mapping::{Access, FilePiece, Mapping, create_memory_file};
use gpuvmk_pci::{DmaBacking, DmaMapping};

/// Long enough for anything on a loaded machine; only failures wait so long.
pub const PATIENCE: Duration = Duration::from_secs(20);
pub const BUDGET: u64 = 1 << 20;
pub const RING_VA: u64 = 0x10_0000_0000;
pub const PUSH_VA: u64 = 0x20_0000_0000;
pub const RING_ENTRIES_LOG2: u8 = 6;
const PUSH_SIZE: u64 = 256 << 10;

/// The graphics runlist's engines.
pub fn graphics() -> EngineSet {
    EngineSet::GRAPHICS | EngineSet::COPY0
}

pub struct Channel {
    pub id: HostChannel,
    pub space: SpaceHandle,
    pub userd: u64,
    pub ring: u64,
    pub push: u64,
    pub push_va: u64,
    pub pushed: u64,
    pub put: u32,
}

pub struct Rig {
    pub gpu: Executor,
    pub memory: Arc<Mapping>,
    /// VRAM address of the first byte of `memory`.
    pub base: u64,
    pub events: Vec<GpuEvent>,
    free: u64,
    listed: Vec<HostChannel>,
    rings: u64,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(Workers::ONE)
    }

    /// So many threads execute grids.
    pub fn with(workers: Workers) -> Self {
        let mut gpu = Executor::new(ExecutorConfig { vram: 80 << 20, workers }).unwrap();
        let (start, size) = (gpu.info().tenant_vram, gpu.info().tenant_vram_size);
        let shared = gpu.share_vram(start, size).unwrap();
        let pieces: Vec<_> = shared
            .iter()
            .map(|piece| FilePiece { fd: piece.fd.as_fd(), offset: piece.offset, size: piece.size })
            .collect();
        let memory = Arc::new(Mapping::contiguous(&pieces, Access::ReadWrite).unwrap());
        Self { gpu, memory, base: start.0, events: Vec::new(), free: start.0, listed: Vec::new(), rings: 0 }
    }

    /// Fresh VRAM.
    pub fn alloc(&mut self, size: u64) -> u64 {
        let start = self.free.next_multiple_of(0x20_0000.min(size.next_power_of_two()).max(0x1000));
        self.free = start + size;
        assert!(self.free <= self.base + self.memory.size(), "out of VRAM");
        start
    }

    pub fn write(&self, address: u64, data: &[u8]) {
        self.memory.write(address - self.base, data).unwrap();
    }

    pub fn read(&self, address: u64, size: usize) -> Vec<u8> {
        let mut data = vec![0; size];
        self.memory.read(address - self.base, &mut data).unwrap();
        data
    }

    pub fn read_u32(&self, address: u64) -> u32 {
        u32::from_le_bytes(self.read(address, 4).try_into().unwrap())
    }

    pub fn read_u64(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.read(address, 8).try_into().unwrap())
    }

    /// System memory at a bus address.
    pub fn system_memory(&mut self, iova: u64, size: u64) -> Mapping {
        let fd = create_memory_file(c"rig-system", size).unwrap();
        let mapping = Mapping::of_file(fd.as_fd(), 0, size, Access::ReadWrite).unwrap();
        let backing = Some(DmaBacking { fd, offset: 0 });
        self.gpu.dma_map(DmaMapping { iova, size, writable: true, backing, owner: None }).unwrap();
        mapping
    }

    pub fn space(&mut self) -> SpaceHandle {
        self.gpu.create_space().unwrap()
    }

    pub fn update(&mut self, space: SpaceHandle, unmap: &[HostRange], map: &[HostMapping]) {
        self.gpu.update_space(space, unmap, map, BUDGET).unwrap();
    }

    /// Maps VRAM with 4 KiB pages.
    pub fn map(&mut self, space: SpaceHandle, va: u64, address: u64, size: u64) {
        self.update(space, &[], &[mapping(va, size, 12, vram(address))]);
    }

    /// Fresh VRAM at a virtual address.
    pub fn buffer(&mut self, space: SpaceHandle, va: u64, size: u64) -> u64 {
        let address = self.alloc(size);
        self.map(space, va, address, size);
        address
    }

    /// A channel that is neither enabled nor listed.
    pub fn idle_channel(&mut self, space: SpaceHandle, engines: EngineSet) -> Channel {
        self.idle_channel_with(space, engines, None)
    }

    /// The same, with the graphics context of another one.
    pub fn idle_channel_with(
        &mut self,
        space: SpaceHandle,
        engines: EngineSet,
        context_of: Option<HostChannel>,
    ) -> Channel {
        let (ring, userd, push) = (self.alloc(0x1000), self.alloc(0x1000), self.alloc(PUSH_SIZE));
        let index = self.rings;
        self.rings += 1;
        let (ring_va, push_va) = (RING_VA + index * 0x1000, PUSH_VA + index * PUSH_SIZE);
        self.map(space, ring_va, ring, 0x1000);
        self.map(space, push_va, push, PUSH_SIZE);
        let spec = ChannelSpec {
            context_of,
            space,
            gpfifo: GpuVa(ring_va),
            gpfifo_entries_log2: RING_ENTRIES_LOG2,
            userd: HostVram(userd + 0x200),
            engines,
        };
        let id = self.gpu.create_channel(spec).unwrap();
        Channel { id, space, userd: userd + 0x200, ring, push, push_va, pushed: 0, put: 0 }
    }

    pub fn list(&mut self, id: HostChannel) {
        self.listed.push(id);
        self.gpu.commit_runlist(&self.listed).unwrap();
    }

    pub fn unlist(&mut self, id: HostChannel) {
        self.listed.retain(|listed| *listed != id);
        self.gpu.commit_runlist(&self.listed).unwrap();
    }

    /// A channel that runs.
    pub fn channel(&mut self, space: SpaceHandle, engines: EngineSet) -> Channel {
        let channel = self.idle_channel(space, engines);
        self.start(&channel);
        channel
    }

    /// Destroys a channel. Its memory is used again if it is the last one that was made.
    pub fn destroy(&mut self, channel: &Channel) {
        self.listed.retain(|listed| *listed != channel.id);
        self.gpu.destroy_channel(channel.id).unwrap();
        if channel.push + PUSH_SIZE == self.free {
            self.free = channel.ring;
            self.rings -= 1;
        }
    }

    /// Lets an idle channel run.
    pub fn start(&mut self, channel: &Channel) {
        self.gpu.enable_channel(channel.id, true).unwrap();
        self.list(channel.id);
    }

    /// Writes words into the push buffer and an entry for them into the ring, without telling.
    pub fn prepare(&mut self, channel: &mut Channel, words: &[u32]) {
        let size = words.len() as u64 * 4;
        if channel.pushed + size > PUSH_SIZE {
            self.wait_done(channel);
            channel.pushed = 0;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(channel.push + channel.pushed, &bytes);
        let va = channel.push_va + channel.pushed;
        channel.pushed += size;
        // As nouveau marks what clients push.
        self.prepare_entry(channel, va | 1 << 41 | (words.len() as u64) << 42);
    }

    pub fn prepare_entry(&mut self, channel: &mut Channel, entry: u64) {
        self.write(channel.ring + u64::from(channel.put) * 8, &entry.to_le_bytes());
        channel.put = (channel.put + 1) % (1 << RING_ENTRIES_LOG2);
    }

    pub fn ring_doorbell(&mut self, channel: &Channel) {
        self.write(channel.userd + 0x8c, &channel.put.to_le_bytes());
        self.gpu.doorbell(channel.id).unwrap();
    }

    pub fn submit(&mut self, channel: &mut Channel, words: &[u32]) {
        self.prepare(channel, words);
        self.ring_doorbell(channel);
    }

    pub fn done(&mut self, channel: &Channel) -> bool {
        self.gpu.channel_progress(channel.id).unwrap() == channel.put
    }

    pub fn wait_done(&mut self, channel: &Channel) {
        self.wait(|rig| rig.done(channel));
    }

    pub fn wait(&mut self, condition: impl Fn(&mut Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            self.gpu.take_events(&mut self.events);
            assert!(start.elapsed() < PATIENCE, "waited in vain; events: {:?}", self.events);
            std::thread::sleep(Duration::from_micros(50));
        }
        self.gpu.take_events(&mut self.events);
    }

    /// Lets anything that should not happen have its chance.
    pub fn settle(&mut self) {
        std::thread::sleep(Duration::from_millis(30));
        self.gpu.take_events(&mut self.events);
    }

    pub fn run(&mut self, channel: &mut Channel, words: &[u32]) {
        self.submit(channel, words);
        self.wait_done(channel);
    }

    /// The first event that `wanted` accepts, as soon as there is one.
    pub fn wait_event<T>(&mut self, wanted: impl Fn(&GpuEvent) -> Option<T>) -> T {
        self.wait(|rig| rig.events.iter().any(|event| wanted(event).is_some()));
        self.events.iter().find_map(wanted).unwrap()
    }

    /// Events that stop channels, by channel.
    pub fn errors(&self) -> BTreeMap<HostChannel, GpuEvent> {
        let stops = self.events.iter().filter(|event| !matches!(event, GpuEvent::Preempted(_)));
        stops.filter_map(|event| Some((event.channel()?, *event))).collect()
    }
}

pub fn vram(address: u64) -> HostTarget {
    HostTarget::Vram(HostVram(address))
}

pub fn system(iova: u64) -> HostTarget {
    HostTarget::System { iova: Iova(iova), coherent: true }
}

pub fn mapping(va: u64, size: u64, page_shift: u8, target: HostTarget) -> HostMapping {
    let pages = (size >> page_shift) as u32;
    HostMapping { va: GpuVa(va), pages, page_shift, target, read_only: false, kind: 0 }
}

pub fn range(va: u64, size: u64, page_shift: u8) -> HostRange {
    HostRange { va: GpuVa(va), pages: (size >> page_shift) as u32, page_shift }
}

pub fn inc(subchannel: u32, method: u16, data: &[u32]) -> Vec<u32> {
    let mut words = vec![1 << 29 | (data.len() as u32) << 16 | subchannel << 13 | u32::from(method) >> 2];
    words.extend(data);
    words
}

pub fn fixed(subchannel: u32, method: u16, data: &[u32]) -> Vec<u32> {
    let mut words = vec![3 << 29 | (data.len() as u32) << 16 | subchannel << 13 | u32::from(method) >> 2];
    words.extend(data);
    words
}

pub fn immediate(subchannel: u32, method: u16, data: u32) -> Vec<u32> {
    vec![4 << 29 | data << 16 | subchannel << 13 | u32::from(method) >> 2]
}

pub fn hi(address: u64) -> u32 {
    (address >> 32) as u32
}

pub fn lo(address: u64) -> u32 {
    address as u32
}

/// Binds the copy class as nouveau does.
pub fn bind_copy() -> Vec<u32> {
    inc(4, host::SET_OBJECT, &[u32::from(CLASS_COPY)])
}

/// Launches a copy of lines between pitch surfaces, with more bits if wanted.
pub fn copy_lines(from: u64, to: u64, pitch: u32, length: u32, count: u32, bits: u32) -> Vec<u32> {
    let operands = [hi(from), lo(from), hi(to), lo(to), pitch, pitch, length, count];
    let mut words = inc(4, copy::OFFSET_IN_UPPER, &operands);
    words.extend(inc(4, copy::LAUNCH_DMA, &[0x386 | bits]));
    words
}

/// A semaphore operation of the host unit.
pub fn semaphore(va: u64, payload: u64, execute: u32) -> Vec<u32> {
    inc(0, host::SEM_ADDR_LO, &[lo(va), hi(va), lo(payload), hi(payload), execute])
}

pub fn pattern(seed: u8, size: usize) -> Vec<u8> {
    (0..size).map(|index| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed).collect()
}
