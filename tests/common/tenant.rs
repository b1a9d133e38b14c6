//! A tenant at the aggregator's door, without a vGPU: it speaks the protocol itself, so that it can also say
//! what no vGPU would. Its ring, pushbuffers and data lie in its VRAM window, as a guest's do.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    reason = "helpers of tests may fail as tests do"
)]

use std::os::fd::AsFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpuvmk::addr::{Gpa, GpuVa, GuestChannel, GuestVram};
use gpuvmk::aggregator::link::{AggregatorLink, EventHandler, Grant, LinkError};
use gpuvmk::aggregator::protocol::{
    Doorbell, Event, GuestMapping, GuestTarget, Hello, PROTOCOL_VERSION, Request, SpaceId, TenantLimits,
};
use gpuvmk::chip::gf100::methods::{host, m2mf, pcopy};
use gpuvmk::chip::gf100::ramin;
use gpuvmk::chip::stream::DMA::SEC_OP;
use gpuvmk::chip::{Chip, EngineSet};
use gpuvmk::pci::mapping::{Access, FilePiece, Mapping, create_memory_file};
use gpuvmk::scheduler::share::Share;

/// Virtual addresses of the tenant's VRAM and of its system memory.
pub const VRAM_VA: u64 = 0x10_0000_0000;
pub const RAM_VA: u64 = 0x20_0000_0000;
/// Bytes of system memory.
pub const RAM: u64 = 8 << 20;
/// Per channel, from the bottom of VRAM: USERD, ring, fence and 64 pushbuffers.
const CHANNEL_BYTES: u64 = 0x20000;
const RING: u64 = 0x1000;
const FENCE: u64 = 0x2000;
const WAIT: u64 = FENCE + 0x100;
const PUSH: u64 = 0x3000;
const PUSH_BYTES: u64 = 0x400;
pub const RING_LOG2: u8 = 6;
/// Copied data lies above this.
pub const DATA: u64 = 8 << 20;

pub fn hello(name: &str, vram: u64) -> Hello {
    Hello {
        version: PROTOCOL_VERSION,
        name: name.to_owned(),
        chip: Chip::GF100.into(),
        vram,
        channels: 8,
        share: Share::default(),
        limits: TenantLimits::default(),
    }
}

struct Forward(Mutex<Sender<Event>>);

impl EventHandler for Forward {
    fn event(&self, event: Event) {
        let _ = self.0.lock().unwrap().send(event);
    }

    fn lost(&self, _reason: &str) {
        let _ = self.0.lock().unwrap().send(Event::Lost);
    }
}

/// A tenant with all its VRAM and memory mapped in address space 0.
pub struct Tenant {
    pub link: Arc<dyn AggregatorLink>,
    pub window: Mapping,
    pub ram: Mapping,
    pub events: Receiver<Event>,
    pub vram: u64,
    put: [u32; 8],
    fence: [u32; 8],
}

impl Tenant {
    pub fn new(link: Arc<dyn AggregatorLink>, grant: &Grant) -> Self {
        let pieces: Vec<_> = grant
            .window
            .iter()
            .map(|piece| FilePiece { fd: piece.fd.as_fd(), offset: piece.offset, size: piece.size })
            .collect();
        let window = Mapping::contiguous(&pieces, Access::ReadWrite).unwrap();
        let file = create_memory_file(c"guest-ram", RAM).unwrap();
        let ram = Mapping::of_file(file.as_fd(), 0, RAM, Access::ReadWrite).unwrap();
        // Nobody else makes its pages.
        ram.populate(0, RAM).unwrap();
        let (sender, events) = channel();
        link.connect(Arc::new(Forward(Mutex::new(sender))));
        let map = Request::DmaMap { gpa: Gpa(0), size: RAM, offset: 0, writable: true };
        link.request(&map, Some(file)).unwrap();
        let tenant = Self { link, window, ram, events, vram: grant.vram, put: [0; 8], fence: [0; 8] };
        tenant.make_space();
        tenant
    }

    /// Address space 0 with everything that the tenant has.
    pub fn make_space(&self) {
        self.try_make_space().unwrap();
    }

    /// The same for a tenant whose memory may not be what it was.
    pub fn try_make_space(&self) -> Result<(), LinkError> {
        self.link.request(&Request::CreateSpace(SpaceId(0)), None)?;
        self.map(VRAM_VA, GuestTarget::Vram(GuestVram(0)), self.vram)?;
        let ram = GuestTarget::System { address: Gpa(0), coherent: true };
        self.map(RAM_VA, ram, RAM)
    }

    pub fn map(&self, va: u64, target: GuestTarget, size: u64) -> Result<(), LinkError> {
        let map = vec![GuestMapping {
            va: GpuVa(va),
            pages: (size / 0x1000) as u32,
            page_shift: 12,
            target,
            read_only: false,
            kind: 0,
        }];
        self.link.request(&Request::UpdateSpace { space: SpaceId(0), unmap: vec![], map }, None)
    }

    fn base(id: u16) -> u64 {
        u64::from(id) * CHANNEL_BYTES
    }

    /// Channel `id` on copy engine 0 or 1, or on graphics with any other number, started; call
    /// [`Tenant::list`] afterwards.
    pub fn channel(&mut self, id: u16, engine: u8) {
        self.try_channel(id, engine).unwrap();
    }

    /// The same for a tenant that may be in no state to have it.
    pub fn try_channel(&mut self, id: u16, engine: u8) -> Result<(), LinkError> {
        let base = Self::base(id);
        self.window.fill(base, CHANNEL_BYTES, 0).unwrap();
        self.put[usize::from(id)] = 0;
        self.fence[usize::from(id)] = 0;
        let engines = match engine {
            0 => EngineSet::COPY0,
            1 => EngineSet::COPY1,
            _ => EngineSet::GRAPHICS,
        };
        let create = Request::CreateChannel {
            context_of: None,
            channel: GuestChannel(id),
            space: SpaceId(0),
            gpfifo: GpuVa(VRAM_VA + base + RING),
            gpfifo_entries_log2: RING_LOG2,
            userd: GuestVram(base),
            engines,
        };
        self.link.request(&create, None)?;
        self.link.request(&Request::EnableChannel { channel: GuestChannel(id), enabled: true }, None)
    }

    pub fn list(&self, ids: &[u16]) {
        let list = ids.iter().map(|id| GuestChannel(*id)).collect();
        self.link.request(&Request::SetRunlist(list), None).unwrap();
    }

    /// Writes a pushbuffer and its ring entry, and rings.
    pub fn submit(&mut self, id: u16, words: &[u32]) {
        let base = Self::base(id);
        let slot = u64::from(self.put[usize::from(id)]);
        let push = base + PUSH + slot * PUSH_BYTES;
        assert!(words.len() as u64 * 4 <= PUSH_BYTES);
        for (word, at) in words.iter().zip((push..).step_by(4)) {
            self.window.write_u32(at, *word).unwrap();
        }
        let va = VRAM_VA + push;
        let entry = va & 0xffff_fffc | (va >> 32) << 32 | (words.len() as u64) << 42;
        self.window.write_u64(base + RING + slot * 8, entry).unwrap();
        let gp_put = (slot as u32 + 1) % (1 << RING_LOG2);
        self.put[usize::from(id)] = gp_put;
        self.window.write_u32(base + ramin::USERD_GP_PUT, gp_put).unwrap();
        self.link.doorbell(Doorbell { channel: GuestChannel(id), gp_put });
    }

    /// Submits a copy between virtual addresses, with a fence and a notification behind it.
    pub fn copy(&mut self, id: u16, engine: u8, from: u64, to: u64, size: u64) {
        let line = size.min(0x1000) as u32;
        let copy = copy_words(engine, from, to, line, (size / u64::from(line)) as u32);
        self.fence[usize::from(id)] += 1;
        let fence_va = VRAM_VA + Self::base(id) + FENCE;
        let fence = [
            method(host::WFI, 1),
            0,
            method(host::SEMAPHORE_A, 4),
            (fence_va >> 32) as u32,
            fence_va as u32,
            self.fence[usize::from(id)],
            host::SEMAPHORE_D::OPERATION::RELEASE | host::SEMAPHORE_D::RELEASE_SIZE.mask(),
            method(host::NON_STALL_INTERRUPT, 1),
            0,
        ];
        self.submit(id, &[&copy[..], &fence].concat());
    }

    pub fn done(&self, id: u16) -> bool {
        self.window.read_u32(Self::base(id) + FENCE).unwrap() == self.fence[usize::from(id)]
    }

    pub fn finish(&self, id: u16) {
        wait_until("the fence", || self.done(id));
    }

    pub fn finishes_within(&self, id: u16, limit: Duration) -> bool {
        let start = Instant::now();
        while !self.done(id) {
            if start.elapsed() > limit {
                return false;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }

    /// Words that wait on the channel for a value that never comes, unless [`Tenant::release`] writes it.
    pub fn acquire_for_ever(&mut self, id: u16) {
        let words = Self::acquire(id);
        self.submit(id, &words);
    }

    /// The same, with a notification of copy engine 0 or 1 behind it.
    pub fn acquire_and_notify(&mut self, id: u16, engine: u8) {
        let notify = [method(host::NON_STALL_INTERRUPT, 1), 0];
        self.submit(id, &[&bind(engine)[..], &Self::acquire(id), &notify].concat());
    }

    fn acquire(id: u16) -> [u32; 5] {
        let va = VRAM_VA + Self::base(id) + WAIT;
        [
            method(host::SEMAPHORE_A, 4),
            (va >> 32) as u32,
            va as u32,
            0xdead,
            host::SEMAPHORE_D::OPERATION::ACQUIRE,
        ]
    }

    /// Writes what a channel waits for, as a processor does: without a doorbell.
    pub fn release(&self, id: u16) {
        self.window.write_u32(Self::base(id) + WAIT, 0xdead).unwrap();
    }

    pub fn next_event(&self) -> Event {
        self.events.recv_timeout(Duration::from_secs(10)).expect("an event")
    }
}

/// Binds an engine and copies lines with it that follow each other.
pub fn copy_words(engine: u8, from: u64, to: u64, line: u32, count: u32) -> Vec<u32> {
    let (hi, lo) = (|address: u64| (address >> 32) as u32, |address: u64| address as u32);
    let tail = [line, line, line, count];
    let words = match engine {
        0 | 1 => {
            let linear = pcopy::EXEC::SRC_LINEAR.mask() | pcopy::EXEC::DST_LINEAR.mask();
            let places = [method(pcopy::SRC_ADDRESS_HIGH, 8), hi(from), lo(from), hi(to), lo(to)];
            [&places[..], &tail, &[method(pcopy::EXEC, 1), linear]].concat()
        }
        _ => {
            let linear = m2mf::EXEC::LINEAR_IN.mask() | m2mf::EXEC::LINEAR_OUT.mask();
            let target = [method(m2mf::OFFSET_OUT_HIGH, 2), hi(to), lo(to)];
            let source = [method(m2mf::OFFSET_IN_HIGH, 2), hi(from), lo(from), method(m2mf::PITCH_IN, 4)];
            [&target[..], &source, &tail, &[method(m2mf::EXEC, 1), linear]].concat()
        }
    };
    [&bind(engine)[..], &words].concat()
}

/// Binds copy engine 0 or 1, or M2MF, to a channel's subchannel 0.
fn bind(engine: u8) -> [u32; 2] {
    let (class, number) = match engine {
        0 => (pcopy::CLASS_COPY0, gpuvmk::chip::gf100::engines::COPY0_NUMBER),
        1 => (pcopy::CLASS_COPY1, gpuvmk::chip::gf100::engines::COPY1_NUMBER),
        _ => (m2mf::CLASS, gpuvmk::chip::gf100::engines::GRAPHICS_NUMBER),
    };
    [method(host::SET_OBJECT, 1), u32::from(class) | u32::from(number) << 16]
}

pub fn method(method: u16, count: u32) -> u32 {
    SEC_OP::INC_METHOD << 29 | count << 16 | u32::from(method) >> 2
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited in vain for {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

pub fn pattern(seed: u8, size: u64) -> Vec<u8> {
    (0..size).map(|at| seed ^ (at as u8) ^ (at >> 12) as u8).collect()
}
