//! A core with a driver's helpers around it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::recorder::{PATIENCE, Recorder};
use crate::Core;
use gpuvmk_backend::*;
use gpuvmk_chip::addr::GuestChannel;
use gpuvmk_chip::gf100::mmu::{LargePages, Pde, Pte};
use gpuvmk_chip::gf100::ramin::*;
use gpuvmk_chip::{Aperture, EngineSet, PhysicalAddress};
use gpuvmk_pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk_pci::{DmaBacking, DmaMapping};

pub fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

pub fn system(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::SystemCoherent, address }
}

/// How a page is mapped.
#[derive(Clone, Copy, Default)]
pub struct PageFlags {
    pub read_only: bool,
    pub privileged: bool,
    pub kind: u8,
}

/// Page tables under construction.
pub struct Space {
    pub directory: u64,
    tables: HashMap<(u64, u8), u64>,
    pub large: LargePages,
    pub limit: u64,
}

/// A channel with its memory.
pub struct Channel {
    pub number: u16,
    pub instance: u64,
    pub userd: u64,
    pub ring: u64,
    pub push: u64,
    pub push_va: u64,
    pub pushed: u64,
    pub put: u32,
    pub graphics_image: u64,
    pub copy_images: [u64; 2],
}

pub const RING_VA: u64 = 0x1000_0000;
pub const PUSH_VA: u64 = 0x2000_0000;
pub const RING_ENTRIES_LOG2: u32 = 6;
const PUSH_SIZE: u64 = 256 << 10;

pub struct Rig {
    pub core: Arc<Core>,
    pub events: Arc<Recorder>,
    pub free: Mutex<u64>,
    listed: Mutex<Vec<u16>>,
    runlist: u64,
}

impl Rig {
    pub fn new() -> Self {
        Self::with_vram(64 << 20)
    }

    pub fn with_vram(size: u64) -> Self {
        let events = Arc::new(Recorder::default());
        let receiver = events.clone();
        Self { events, ..Self::with_events(size, |_| receiver) }
    }

    /// A rig whose core tells somebody else.
    pub fn with_events(size: u64, events: impl FnOnce(&Arc<Core>) -> Arc<dyn EngineEvents>) -> Self {
        Self::of(Core::new(size).unwrap(), events)
    }

    /// A rig around a core that somebody else has made.
    pub fn of(core: Core, events: impl FnOnce(&Arc<Core>) -> Arc<dyn EngineEvents>) -> Self {
        let core = Arc::new(core);
        core.connect_events(events(&core));
        let events = Arc::new(Recorder::default());
        let rig = Self { core, events, free: Mutex::new(1 << 20), listed: Mutex::default(), runlist: 0x1000 };
        rig.core.set_fifo_state(Self::running());
        rig
    }

    pub fn running() -> FifoState {
        FifoState { enabled: true, pbdma_mask: 7, ready: EngineSet::all(), large_pages_64k: false }
    }

    /// Fresh VRAM.
    pub fn alloc(&self, size: u64) -> u64 {
        let mut free = self.free.lock().unwrap();
        let start = free.next_multiple_of(0x2_0000.min(size.next_power_of_two()).max(0x1000));
        *free = start + size;
        assert!(*free <= self.core.vram_size());
        start
    }

    pub fn write(&self, address: u64, data: &[u8]) {
        self.core.write_memory(vram(address), data).unwrap();
    }

    pub fn read(&self, address: u64, size: usize) -> Vec<u8> {
        let mut data = vec![0; size];
        self.core.read_memory(vram(address), &mut data).unwrap();
        data
    }

    pub fn write_u32(&self, address: u64, word: u32) {
        self.write(address, &word.to_le_bytes());
    }

    pub fn read_u32(&self, address: u64) -> u32 {
        u32::from_le_bytes(self.read(address, 4).try_into().unwrap())
    }

    pub fn write_u64(&self, address: u64, word: u64) {
        self.write(address, &word.to_le_bytes());
    }

    pub fn read_u64(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.read(address, 8).try_into().unwrap())
    }

    /// System memory at a bus address.
    pub fn system_memory(&self, iova: u64, size: u64) -> Mapping {
        let fd = create_memory_file(c"rig-system", size).unwrap();
        let mapping = Mapping::of_file(std::os::fd::AsFd::as_fd(&fd), 0, size, Access::ReadWrite).unwrap();
        let backing = Some(DmaBacking { fd, offset: 0 });
        self.core.dma_map(DmaMapping { iova, size, writable: true, backing, owner: None }).unwrap();
        mapping
    }

    pub fn space(&self) -> Space {
        let directory = self.alloc(8192 * 8);
        Space { directory, tables: HashMap::new(), large: LargePages::K128, limit: (1 << 40) - 1 }
    }

    /// Maps pages of `shift` one behind the other.
    pub fn map_pages(
        &self,
        space: &mut Space,
        va: u64,
        target: PhysicalAddress,
        size: u64,
        shift: u8,
        flags: PageFlags,
    ) {
        for offset in (0..size).step_by(1 << shift) {
            let entry = self.pte_address(space, va + offset, shift);
            let target = PhysicalAddress { address: target.address + offset, ..target };
            let PageFlags { read_only, privileged, kind } = flags;
            self.write_u64(entry, Pte { target, read_only, privileged, kind }.encode());
        }
    }

    pub fn map(&self, space: &mut Space, va: u64, target: PhysicalAddress, size: u64) {
        self.map_pages(space, va, target, size, 12, PageFlags::default());
    }

    /// Where the entry of a page is; its table is made if there is none.
    pub fn pte_address(&self, space: &mut Space, va: u64, shift: u8) -> u64 {
        let index = space.large.directory_index(va);
        let table = match space.tables.get(&(index, shift)) {
            Some(&table) => table,
            None => {
                let table = self.alloc(space.large.table_entries(shift) * 8);
                space.tables.insert((index, shift), table);
                let pde = Pde {
                    large: space.tables.get(&(index, space.large.page_shift())).map(|&table| vram(table)),
                    small: space.tables.get(&(index, 12)).map(|&table| vram(table)),
                };
                self.write_u64(space.directory + index * 8, pde.encode());
                table
            }
        };
        table + space.large.table_index(va, shift) * 8
    }

    /// VRAM address that a mapped page has.
    pub fn read_target(&self, space: &mut Space, va: u64) -> u64 {
        let large = space.large.page_shift();
        let shift =
            if space.tables.contains_key(&(space.large.directory_index(va), large)) { large } else { 12 };
        let entry = self.pte_address(space, va, shift);
        let pte = Pte::decode(self.read_u64(entry)).unwrap();
        pte.target.address + (va & ((1 << shift) - 1))
    }

    pub fn flush(&self, space: &Space) {
        self.core.flush_tlb(FlushScope { page_directory: vram(space.directory), hub_only: false });
    }

    /// A channel with all contexts by physical address, bound, started and on the runlist.
    pub fn channel(&self, number: u16, space: &mut Space) -> Channel {
        let channel = self.unlisted_channel(number, space);
        self.core.enable_channel(GuestChannel(number), true);
        self.list(number);
        channel
    }

    /// A channel that is bound, but neither started nor listed.
    pub fn unlisted_channel(&self, number: u16, space: &mut Space) -> Channel {
        let (ring_va, push_va) =
            (RING_VA + u64::from(number) * 0x1000, PUSH_VA + u64::from(number) * PUSH_SIZE);
        let channel = Channel {
            number,
            instance: self.alloc(0x1000),
            userd: self.alloc(0x1000),
            ring: self.alloc(0x1000),
            push: self.alloc(PUSH_SIZE),
            push_va,
            pushed: 0,
            put: 0,
            graphics_image: self.alloc(0x2000),
            copy_images: [self.alloc(0x1000), self.alloc(0x1000)],
        };
        self.map(space, ring_va, vram(channel.ring), 0x1000);
        self.map(space, push_va, vram(channel.push), PUSH_SIZE);
        let at = |offset: u64| channel.instance + offset;
        self.write_u32(at(RAMFC_USERD_LO), channel.userd as u32);
        self.write_u32(at(RAMFC_SIGNATURE), SIGNATURE);
        self.write_u32(at(RAMFC_ACQUIRE), 0xffff_f902);
        self.write_u32(at(RAMFC_GP_BASE_LO), ring_va as u32);
        self.write_u32(at(RAMFC_GP_BASE_HI), (ring_va >> 32) as u32 | RING_ENTRIES_LOG2 << 16);
        self.write_u64(at(0xa4), 0x1f1f_1f1f_1f1f_1f1f);
        self.write_u32(at(0xac), 0x1f);
        self.write_u64(at(PAGE_DIRECTORY_LO), space.directory);
        self.write_u64(at(VA_LIMIT_LO), space.limit);
        self.write_u64(at(GRAPHICS_CONTEXT_LO), channel.graphics_image);
        self.write_u64(at(COPY0_CONTEXT_LO), channel.copy_images[0]);
        self.write_u64(at(COPY1_CONTEXT_LO), channel.copy_images[1]);
        self.core.bind_channel(GuestChannel(number), Some(vram(channel.instance)));
        channel
    }

    pub fn list(&self, number: u16) {
        self.listed.lock().unwrap().push(number);
        self.commit();
    }

    pub fn unlist(&self, number: u16) {
        self.listed.lock().unwrap().retain(|listed| *listed != number);
        self.commit();
    }

    fn commit(&self) {
        let listed = self.listed.lock().unwrap();
        for (index, number) in listed.iter().enumerate() {
            let entry = u64::from(*number) | u64::from(RUNLIST_ENTRY_CHANNEL) << 32;
            self.write_u64(self.runlist + index as u64 * RUNLIST_ENTRY_SIZE, entry);
        }
        self.core.commit_runlist(vram(self.runlist), listed.len() as u32);
    }

    /// Writes words into the push buffer and an entry for them into the ring, without telling.
    pub fn prepare(&self, channel: &mut Channel, words: &[u32]) {
        let size = words.len() as u64 * 4;
        if channel.pushed + size > PUSH_SIZE {
            self.wait_done(channel);
            channel.pushed = 0;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(channel.push + channel.pushed, &bytes);
        let va = channel.push_va + channel.pushed;
        channel.pushed += size;
        self.prepare_entry(channel, va | (words.len() as u64) << 42);
    }

    pub fn prepare_entry(&self, channel: &mut Channel, entry: u64) {
        self.write_u64(channel.ring + u64::from(channel.put) * 8, entry);
        channel.put = (channel.put + 1) % (1 << RING_ENTRIES_LOG2);
    }

    pub fn ring_doorbell(&self, channel: &Channel) {
        self.write_u32(channel.userd + USERD_GP_PUT, channel.put);
        self.core.doorbell(GuestChannel(channel.number), channel.put);
    }

    pub fn submit(&self, channel: &mut Channel, words: &[u32]) {
        self.prepare(channel, words);
        self.ring_doorbell(channel);
    }

    pub fn done(&self, channel: &Channel) -> bool {
        self.read_u32(channel.userd + USERD_GP_GET) == channel.put
    }

    pub fn wait_done(&self, channel: &Channel) {
        self.wait(|| self.done(channel));
    }

    pub fn wait(&self, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < PATIENCE, "waited in vain; events: {:?}", self.events.all());
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Lets anything that should not happen have its chance.
    pub fn settle(&self) {
        std::thread::sleep(Duration::from_millis(30));
    }

    pub fn run(&self, channel: &mut Channel, words: &[u32]) {
        self.submit(channel, words);
        self.wait_done(channel);
    }
}
