//! A driver of a GH100 at the seam below its register face: page tables in its own VRAM, channels by slot,
//! Hopper's host and copy methods.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "helpers of tests may fail as tests do"
)]

mod tables;

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpuvmk::addr::GpuVa;
use gpuvmk::backend::{ChannelRefusal, EngineEvents, FlushScope, GspBackend, GspChannel};
use gpuvmk::chip::addr::GuestChannel;
use gpuvmk::chip::channel_event::{ChannelStop, MmuFault, StopCause};
use gpuvmk::chip::gh100::methods::{CLASS_COPY, SUBCHANNEL_COPY, copy, host};
use gpuvmk::chip::gmmu::Gmmu;
use gpuvmk::chip::{Aperture, Engine, EngineSet, PhysicalAddress};
use gpuvmk::pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk::pci::{DmaBacking, DmaMapping};

pub use tables::Tables;

/// Guest-physical address and bytes of the driver's system memory.
pub const RAM: u64 = 0x1_0000_0000;
pub const RAM_BYTES: u64 = 8 << 20;

/// Where the driver keeps things in its VRAM: tables, then channels, then data from [`DATA`] on.
const CHANNELS: u64 = 4 << 20;
const CHANNEL_BYTES: u64 = 0x2_0000;
pub const DATA: u64 = 16 << 20;

/// Virtual addresses: VRAM in pages of 2 MiB and of 64 KiB, system memory in pages of 4 KiB.
pub const VRAM_VA: u64 = 0x7f_0000_0000;
/// Where VRAM is in big pages, as far up as the format reaches.
const BIG_VA: u64 = 0x1ff_0000_0000_0000;
pub const RAM_VA: u64 = 0x10_0000;

/// Inside a channel's piece of VRAM.
const USERD: u64 = 0;
const RING: u64 = 0x1000;
const FENCE: u64 = 0x2000;
const PUSH: u64 = 0x3000;
const PUSH_BYTES: u64 = 0x400;
const RING_LOG2: u8 = 6;
const GP_PUT: u64 = 0x8c;

/// What the driver was told.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    NonStall(Engine),
    Fault(GuestChannel, MmuFault),
    Stopped(GuestChannel),
    Lost,
}

#[derive(Default)]
struct Notes(Mutex<Vec<Told>>);

impl Notes {
    fn add(&self, told: Told) {
        self.0.lock().unwrap().push(told);
    }
}

impl EngineEvents for Notes {
    fn monitor(&self, _size: Option<(u16, u16)>) {}

    fn non_stall(&self, engine: Engine) {
        self.add(Told::NonStall(engine));
    }

    fn message_delivered(&self, engines: EngineSet) {
        engines.engines().for_each(|engine| self.non_stall(engine));
    }

    fn unsent(&self) {}

    fn stopped(&self, stop: ChannelStop<GuestChannel>) {
        self.add(match stop.cause {
            StopCause::Fault(fault) => Told::Fault(stop.channel, fault),
            _ => Told::Stopped(stop.channel),
        });
    }

    fn fault(&self, fault: MmuFault) {
        panic!("no access of the host's own is refused: {fault:?}");
    }

    fn preempted(&self, channel: GuestChannel) {
        panic!("nobody asked for a preemption of {channel:?}");
    }

    fn patch_register(&self, _offset: u32, _value: u32) {
        panic!("there are no contexts with patch lists");
    }

    fn lost(&self, _reason: &str) {
        self.add(Told::Lost);
    }
}

/// The driver.
pub struct GspDriver<B> {
    pub back: Arc<B>,
    pub ram: Mapping,
    pub tables: Tables,
    notes: Arc<Notes>,
    put: [u32; 8],
    fence: [u32; 8],
}

fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

impl<B: GspBackend> GspDriver<B> {
    /// A driver with all its memory mapped in one address space. The back's events are its own from now on.
    pub fn new(back: Arc<B>) -> Self {
        Self::with_tables(back, Gmmu::V3)
    }

    /// The same with page tables of a format.
    pub fn with_tables(back: Arc<B>, format: Gmmu) -> Self {
        let notes = Arc::new(Notes::default());
        back.connect_events(notes.clone());
        let file = create_memory_file(c"guest-ram", RAM_BYTES).unwrap();
        let ram = Mapping::of_file(file.as_fd(), 0, RAM_BYTES, Access::ReadWrite).unwrap();
        let backing = Some(DmaBacking { fd: file, offset: 0 });
        back.dma_map(DmaMapping { iova: RAM, size: RAM_BYTES, writable: true, backing, owner: None })
            .unwrap();
        let mut driver = Self { back, ram, tables: Tables::new(format), notes, put: [0; 8], fence: [0; 8] };
        driver.map_everything();
        driver
    }

    /// Writes the tables anew, as after a reset.
    pub fn map_everything(&mut self) {
        self.tables = Tables::new(self.tables.format());
        (self.put, self.fence) = ([0; 8], [0; 8]);
        let big_va = self.big_va();
        let (back, tables) = (&*self.back, &mut self.tables);
        tables.clear(back);
        for offset in (0..back.vram_size()).step_by(2 << 20) {
            tables.map(back, VRAM_VA + offset, 21, vram(offset));
        }
        for offset in (0..back.vram_size()).step_by(1 << 16) {
            tables.map(back, big_va + offset, 16, vram(offset));
        }
        for offset in (0..RAM_BYTES).step_by(1 << 12) {
            let target = PhysicalAddress { aperture: Aperture::SystemCoherent, address: RAM + offset };
            tables.map(back, RAM_VA + offset, 12, target);
        }
    }

    /// Where VRAM is mapped in big pages.
    pub fn big_va(&self) -> u64 {
        BIG_VA & self.tables.format().va_max()
    }

    pub fn flush(&self) {
        let page_directory = vram(Tables::ROOT);
        self.back.flush_tlb(FlushScope { page_directory, hub_only: false });
    }

    pub fn write(&self, address: u64, data: &[u8]) {
        self.back.write_memory(vram(address), data).unwrap();
    }

    pub fn read(&self, address: u64, size: usize) -> Vec<u8> {
        let mut data = vec![0; size];
        self.back.read_memory(vram(address), &mut data).unwrap();
        data
    }

    fn base(slot: u16) -> u64 {
        CHANNELS + u64::from(slot) * CHANNEL_BYTES
    }

    /// A channel as the virtual GSP would ask for it.
    pub fn wish(slot: u16, engines: EngineSet) -> GspChannel {
        GspChannel {
            context_of: None,
            page_directory: vram(Tables::ROOT),
            gpfifo: GpuVa(VRAM_VA + Self::base(slot) + RING),
            gpfifo_entries_log2: RING_LOG2,
            userd: Self::base(slot) + USERD,
            engines,
        }
    }

    /// A channel that runs, with a copy object.
    pub fn channel(&mut self, slot: u16, engines: EngineSet) {
        self.try_channel(slot, engines).unwrap();
    }

    /// The same for a guest that may be in no state to have it.
    pub fn try_channel(&mut self, slot: u16, engines: EngineSet) -> Result<(), ChannelRefusal> {
        self.write(Self::base(slot), &[0; PUSH as usize]);
        (self.put[usize::from(slot)], self.fence[usize::from(slot)]) = (0, 0);
        self.back.create_channel(GuestChannel(slot), Self::wish(slot, engines))?;
        let engine = engines.engines().find(|engine| *engine != Engine::Graphics).unwrap();
        self.back.create_object(GuestChannel(slot), CLASS_COPY.into(), engine)?;
        self.back.schedule_channel(GuestChannel(slot), true)
    }

    /// Writes a pushbuffer and its ring entry, and rings.
    pub fn submit(&mut self, slot: u16, words: &[u32]) {
        let base = Self::base(slot);
        let put = &mut self.put[usize::from(slot)];
        let push = base + PUSH + u64::from(*put) * PUSH_BYTES;
        assert!(words.len() as u64 * 4 <= PUSH_BYTES);
        let entry = base + RING + u64::from(*put) * 8;
        *put = (*put + 1) % (1 << RING_LOG2);
        let put = *put;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(push, &bytes);
        // As nouveau marks what clients push.
        let value = (VRAM_VA + push) | 1 << 41 | (words.len() as u64) << 42;
        self.write(entry, &value.to_le_bytes());
        self.write(base + USERD + GP_PUT, &put.to_le_bytes());
        self.back.doorbell(GuestChannel(slot), put);
    }

    /// Submits a copy between virtual addresses, with a fence and a notification behind it.
    pub fn copy(&mut self, slot: u16, from: u64, to: u64, size: u32) {
        let line = size.min(0x1000);
        let operands = [hi(from), lo(from), hi(to), lo(to), line, line, line, size / line];
        let fence = &mut self.fence[usize::from(slot)];
        *fence += 1;
        let value = *fence;
        let fence_va = VRAM_VA + Self::base(slot) + FENCE;
        let words = [
            methods(SUBCHANNEL_COPY, host::SET_OBJECT, &[CLASS_COPY.into()]),
            methods(SUBCHANNEL_COPY, copy::OFFSET_IN_UPPER, &operands),
            methods(SUBCHANNEL_COPY, copy::LAUNCH_DMA, &[0x386]),
            methods(0, host::SEM_ADDR_LO, &[lo(fence_va), hi(fence_va), value, 0, 0x10_0001]),
            methods(0, host::NON_STALL_INTERRUPT, &[0]),
        ];
        self.submit(slot, &words.concat());
    }

    pub fn done(&self, slot: u16) -> bool {
        self.read(Self::base(slot) + FENCE, 4) == self.fence[usize::from(slot)].to_le_bytes()
    }

    /// Waits for the fence as long as that; true when it has passed.
    pub fn finishes_within(&self, slot: u16, limit: Duration) -> bool {
        let start = Instant::now();
        while !self.done(slot) {
            if start.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    pub fn finish(&self, slot: u16) {
        wait_until("the fence", || self.done(slot));
    }

    /// What was told since the last call.
    pub fn told(&self) -> Vec<Told> {
        std::mem::take(&mut *self.notes.0.lock().unwrap())
    }

    /// Waits until `wanted` was told, and returns all that was until then.
    pub fn wait_told(&self, wanted: impl Fn(&Told) -> bool) -> Vec<Told> {
        let mut all = Vec::new();
        wait_until("an event", || {
            all.extend(self.told());
            all.iter().any(&wanted)
        });
        all
    }
}

/// Methods of a subchannel, at increasing addresses.
pub fn methods(subchannel: u8, method: u16, data: &[u32]) -> Vec<u32> {
    let head = 1 << 29 | (data.len() as u32) << 16 | u32::from(subchannel) << 13 | u32::from(method) >> 2;
    [&[head], data].concat()
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

pub fn pattern(seed: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| seed ^ (at as u8).wrapping_mul(31) ^ (at >> 10) as u8).collect()
}

fn hi(address: u64) -> u32 {
    (address >> 32) as u32
}

fn lo(address: u64) -> u32 {
    address as u32
}
