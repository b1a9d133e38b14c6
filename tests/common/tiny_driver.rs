//! A tiny GF100 driver: brings any GF100 function up as a real driver does (by registers, BAR1, BAR3 and PRAMIN
//! only) and submits copies. Native and mediated GPUs are driven by the same code.
//!
//! VRAM is handed out from the bottom and never taken back. BAR3 shows the first part of VRAM as it is; BAR1 shows
//! the USERD pages of all channels.

#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]
#![allow(dead_code, reason = "each test uses a part of the driver")]

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gpuvmk::chip::gf100::methods::{host, m2mf, pcopy, stream};
use gpuvmk::chip::gf100::mmu::{LargePages, Pde, Pte};
use gpuvmk::chip::gf100::ramin;
use gpuvmk::chip::gf100::regs::{falcon, fecs, gpccs, pbus, pce0, pce1, pci, pfb, pfifo, pmc};
use gpuvmk::chip::registers::Reg;
use gpuvmk::chip::{Aperture, Engine, PhysicalAddress};
use gpuvmk::pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk::pci::{DmaBacking, DmaMapping, InterruptSink, PciFunction, Region};

/// VRAM that BAR3 shows.
const BAR3_VRAM: u64 = 32 << 20;
/// Channels with a USERD page in the poll area.
const CHANNELS: u16 = 128;
/// Entries of a ring, as log2.
const RING_LOG2: u32 = 6;
/// Bytes of a ring slot's pushbuffer.
const PUSH_SIZE: u64 = 0x400;
/// Bytes of a context image.
const CONTEXT_SIZE: u64 = 0x4000;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn vram(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::Vram, address }
}

pub fn system(address: u64) -> PhysicalAddress {
    PhysicalAddress { aperture: Aperture::SystemCoherent, address }
}

/// Counts messages.
#[derive(Default)]
pub struct Messages(pub AtomicU32);

impl InterruptSink for Messages {
    fn set_intx(&self, _asserted: bool) {}

    fn fire_msi(&self, _vector: u16) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// System memory of the driver's machine.
pub struct SystemRam {
    pub iova: u64,
    pub memory: Mapping,
}

/// An address space: its directory and its small-page tables, by directory index.
#[derive(Clone)]
pub struct Space {
    pub directory: u64,
    tables: BTreeMap<u64, u64>,
}

/// A channel with its ring.
pub struct Channel {
    pub id: u16,
    pub instance: u64,
    pub userd: u64,
    /// Virtual address of the ring; pushbuffers and the fence follow it.
    base_va: u64,
    /// The same place in VRAM.
    base: u64,
    engine: Engine,
    put: u32,
    fence: u32,
}

/// The driver.
pub struct TinyDriver {
    function: Arc<dyn PciFunction>,
    pub messages: Arc<Messages>,
    pub vram_size: u64,
    next_vram: u64,
    window: u32,
    runlist: Vec<u16>,
    userd: u64,
}

impl TinyDriver {
    /// Resets the function and brings it up.
    pub fn bring_up(function: Arc<dyn PciFunction>) -> Self {
        let messages = Arc::<Messages>::default();
        function.reset();
        function.connect_interrupts(Some(messages.clone()));
        let mut driver = Self {
            function,
            messages,
            vram_size: 0,
            next_vram: 0x1_0000,
            window: u32::MAX,
            runlist: Vec::new(),
            userd: 0,
        };
        driver.set_up_pci();
        driver.set_up_memory();
        driver.set_up_engines();
        driver.set_up_fifo();
        driver
    }

    // --- Registers --------------------------------------------------------------------------------------------

    pub fn read(&self, reg: Reg) -> u32 {
        let mut data = [0; 4];
        self.function.read(Region::Bar(0), u64::from(reg.0), &mut data).unwrap();
        u32::from_le_bytes(data)
    }

    pub fn write(&self, reg: Reg, value: u32) {
        self.function.write(Region::Bar(0), u64::from(reg.0), &value.to_le_bytes()).unwrap();
    }

    /// Waits until `done` says so of a register.
    pub fn poll(&self, reg: Reg, what: &str, done: impl Fn(u32) -> bool) {
        wait_until(what, || done(self.read(reg)));
    }

    fn config(&self, offset: u64, value: u32) {
        self.function.write(Region::Config, offset, &value.to_le_bytes()).unwrap();
    }

    // --- Bring-up ---------------------------------------------------------------------------------------------

    fn set_up_pci(&self) {
        // Memory space and bus mastering.
        self.config(0x04, 0x6);
        let mut capabilities = [0; 4];
        self.function.read(Region::Config, 0x34, &mut capabilities[..1]).unwrap();
        let mut at = u64::from(capabilities[0]);
        while at != 0 {
            let mut header = [0; 4];
            self.function.read(Region::Config, at, &mut header).unwrap();
            if header[0] == 0x05 {
                self.config(at, u32::from_le_bytes(header) | 1 << 16);
            }
            at = u64::from(header[1]);
        }
        assert_eq!(self.read(pmc::NV_PMC_BOOT_0) >> 20 & 0x1ff, 0x0c0, "a GF100");
    }

    fn set_up_memory(&mut self) {
        let partitions = self.read(pfb::NV_PTOP_FBP_COUNT);
        let mib = (0..partitions).map(|number| self.read(pfb::NV_PFBP_FBPA_CSTATUS.at(number)));
        self.vram_size = mib.map(|mib| u64::from(mib) << 20).sum();

        // Tables for BAR3 and BAR1 through PRAMIN, as long as there is nothing else.
        let mut bar3 = self.new_space();
        self.map(&mut bar3, 0, vram(0), BAR3_VRAM.min(self.vram_size));
        let block = self.window_block(&bar3);
        self.write(pbus::NV_PBUS_BAR2_BLOCK, 1 << 31 | page(block));

        self.userd = self.alloc(u64::from(CHANNELS) * ramin::USERD_SIZE, 0x1000);
        self.zero(self.userd, u64::from(CHANNELS) * ramin::USERD_SIZE);
        let mut bar1 = self.new_space();
        let userd = self.userd;
        self.map(&mut bar1, 0, vram(userd), u64::from(CHANNELS) * ramin::USERD_SIZE);
        let block = self.window_block(&bar1);
        self.write(pbus::NV_PBUS_BAR1_BLOCK, 1 << 31 | page(block));
    }

    fn window_block(&mut self, space: &Space) -> u64 {
        let block = self.alloc(ramin::INSTANCE_SIZE, 0x1000);
        self.write_vram_u64(block + ramin::PAGE_DIRECTORY_LO, space.directory);
        self.write_vram_u64(block + ramin::VA_LIMIT_LO, (1 << 40) - 1);
        block
    }

    fn set_up_engines(&self) {
        self.write(pmc::NV_PMC_ENABLE, 0);
        self.write(pmc::NV_PMC_ENABLE, 1 << 12 | 1 << 8 | 1 << 7 | 1 << 6);
        let falcons = [
            (fecs::NV_PGRAPH_PRI_FECS_CODE_INDEX, fecs::NV_PGRAPH_PRI_FECS_CODE_DATA),
            (gpccs::NV_PGRAPH_PRI_GPCCS_CODE_INDEX, gpccs::NV_PGRAPH_PRI_GPCCS_CODE_DATA),
            (pce0::NV_PCE0_CODE_INDEX, pce0::NV_PCE0_CODE_DATA),
            (pce1::NV_PCE1_CODE_INDEX, pce1::NV_PCE1_CODE_DATA),
        ];
        for (index, data) in falcons {
            self.write(index, falcon::INCREMENT_ON_WRITE);
            for word in 0..16 {
                self.write(data, 0xf8 + word);
            }
        }
        self.write(fecs::NV_PGRAPH_PRI_FECS_DMA_CONTROL, 0);
        self.write(fecs::NV_PGRAPH_PRI_FECS_CPU_CONTROL, falcon::START);
        let mailbox = fecs::NV_PGRAPH_PRI_FECS_CC_SCRATCH.at(0);
        self.poll(mailbox, "FECS to start", |value| value >> 31 != 0);
        let starts = [
            (pce0::NV_PCE0_ACCESS_EN, pce0::NV_PCE0_CPU_CONTROL),
            (pce1::NV_PCE1_ACCESS_EN, pce1::NV_PCE1_CPU_CONTROL),
        ];
        for (access, control) in starts {
            self.write(access, 3);
            self.write(control, falcon::START);
        }
    }

    fn set_up_fifo(&self) {
        self.write(pmc::NV_PMC_ENABLE_PBDMA, u32::MAX);
        self.write(pfifo::NV_PFIFO_ENABLE, 1);
        self.write(pfifo::NV_PFIFO_USERD_POLL, 1 << 28);
        for unit in 0..3 {
            self.write(pfifo::NV_PPBDMA_INTR_EN_0.at(unit), u32::MAX);
        }
        self.write(pfifo::NV_PFIFO_INTR_0, u32::MAX);
        self.write(pfifo::NV_PFIFO_INTR_ENGINE_EN, 1);
        self.write(pfifo::NV_PFIFO_INTR_EN_0, u32::MAX);
        self.write(pmc::NV_PMC_INTR_EN_0, 1);
    }

    /// Lets the next message out.
    pub fn rearm(&self) {
        self.function.write(Region::Bar(0), u64::from(pci::NV_XVE_MSI_REARM.0), &[0xff]).unwrap();
    }

    // --- Memory -----------------------------------------------------------------------------------------------

    pub fn alloc(&mut self, size: u64, align: u64) -> u64 {
        let start = self.next_vram.next_multiple_of(align);
        self.next_vram = start + size;
        assert!(self.next_vram <= self.vram_size.min(BAR3_VRAM), "the tiny driver is out of VRAM");
        start
    }

    fn bar3_is_up(&self) -> bool {
        self.read(pbus::NV_PBUS_BAR2_BLOCK) >> 31 != 0
    }

    /// Writes VRAM: through BAR3 once it is up, through PRAMIN before.
    pub fn write_vram(&mut self, address: u64, data: &[u8]) {
        let through_bar3 = self.bar3_is_up();
        for (piece, at) in data.chunks(8).zip((address..).step_by(8)) {
            if through_bar3 {
                self.function.write(Region::Bar(3), at, piece).unwrap();
            } else {
                let (window, offset) = ((at >> 16) as u32, at & 0xffff);
                if window != self.window {
                    self.write(pbus::NV_PBUS_BAR0_WINDOW, window);
                    self.window = window;
                }
                self.function.write(Region::Bar(0), 0x70_0000 + offset, piece).unwrap();
            }
        }
    }

    pub fn read_vram(&self, address: u64, data: &mut [u8]) {
        for (piece, at) in data.chunks_mut(8).zip((address..).step_by(8)) {
            self.function.read(Region::Bar(3), at, piece).unwrap();
        }
    }

    pub fn write_vram_u64(&mut self, address: u64, value: u64) {
        self.write_vram(address, &value.to_le_bytes());
    }

    pub fn write_vram_u32(&mut self, address: u64, value: u32) {
        self.write_vram(address, &value.to_le_bytes());
    }

    pub fn read_vram_u32(&self, address: u64) -> u32 {
        let mut data = [0; 4];
        self.read_vram(address, &mut data);
        u32::from_le_bytes(data)
    }

    fn zero(&mut self, address: u64, size: u64) {
        let zeros = vec![0; 0x1000];
        for at in (address..address + size).step_by(0x1000) {
            self.write_vram(at, &zeros);
        }
    }

    /// Offers `size` bytes of system memory at `iova`.
    pub fn system_ram(&self, iova: u64, size: u64) -> SystemRam {
        let fd = create_memory_file(c"ram", size).unwrap();
        let memory = Mapping::of_file(fd.as_fd(), 0, size, Access::ReadWrite).unwrap();
        let backing = Some(DmaBacking { fd, offset: 0 });
        self.function.dma_map(DmaMapping { iova, size, writable: true, backing }).unwrap();
        SystemRam { iova, memory }
    }

    // --- Address spaces ---------------------------------------------------------------------------------------

    pub fn new_space(&mut self) -> Space {
        let size = LargePages::K128.directory_entries() * 8;
        let directory = self.alloc(size, 0x1000);
        self.zero(directory, size);
        Space { directory, tables: BTreeMap::new() }
    }

    /// Maps whole small pages; no flush.
    pub fn map(&mut self, space: &mut Space, va: u64, target: PhysicalAddress, size: u64) {
        for offset in (0..size).step_by(0x1000) {
            let target = PhysicalAddress { address: target.address + offset, ..target };
            let pte = Pte { target, read_only: false, privileged: false, kind: 0 };
            self.write_pte(space, va + offset, pte.encode());
        }
    }

    /// Writes one small-page entry as it is.
    pub fn write_pte(&mut self, space: &mut Space, va: u64, raw: u64) {
        let index = LargePages::K128.directory_index(va);
        let table = match space.tables.get(&index) {
            Some(table) => *table,
            None => {
                let size = LargePages::K128.table_entries(12) * 8;
                let table = self.alloc(size, 0x1000);
                self.zero(table, size);
                let pde = Pde { large: None, small: Some(vram(table)) };
                self.write_vram_u64(space.directory + index * 8, pde.encode());
                space.tables.insert(index, table);
                table
            }
        };
        self.write_vram_u64(table + LargePages::K128.table_index(va, 12) * 8, raw);
    }

    pub fn flush(&self, space: &Space) {
        self.poll(pfb::NV_PFB_PRI_MMU_CTRL, "a free flush slot", |value| value & 0xff_0000 != 0);
        self.write(pfb::NV_PFB_PRI_MMU_INVALIDATE_PDB, (space.directory >> 12 << 4) as u32);
        self.write(pfb::NV_PFB_PRI_MMU_INVALIDATE, 0x8000_0001);
        self.poll(pfb::NV_PFB_PRI_MMU_CTRL, "the flush", |value| value & 0x8000 != 0);
    }

    // --- Channels ---------------------------------------------------------------------------------------------

    /// A channel as nouveau makes one: bound, started and on the runlist; then stopped, preempted, given its
    /// engine context, and started again. Its ring lies at `base_va`.
    pub fn new_channel(&mut self, space: &mut Space, id: u16, engine: Engine, base_va: u64) -> Channel {
        let ring_size = ramin::GPFIFO_ENTRY_SIZE << RING_LOG2;
        let size = (0x1000 + (PUSH_SIZE << RING_LOG2) + CONTEXT_SIZE + 0x1000).next_multiple_of(0x1000);
        assert!(ring_size <= 0x1000);
        let base = self.alloc(size, 0x1000);
        self.zero(base, size);
        self.map(space, base_va, vram(base), size);
        self.flush(space);

        let userd = self.userd + u64::from(id) * ramin::USERD_SIZE;
        self.zero(userd, ramin::USERD_SIZE);
        let instance = self.alloc(ramin::INSTANCE_SIZE, 0x1000);
        self.zero(instance, ramin::INSTANCE_SIZE);
        let words = [
            (ramin::RAMFC_USERD_LO, userd as u32),
            (ramin::RAMFC_USERD_HI, (userd >> 32) as u32),
            (ramin::RAMFC_SIGNATURE, ramin::SIGNATURE),
            (ramin::RAMFC_ACQUIRE, 0xffff_f902),
            (ramin::RAMFC_GP_BASE_LO, base_va as u32),
            (ramin::RAMFC_GP_BASE_HI, (base_va >> 32) as u32 | RING_LOG2 << 16),
            (0x54, 2),
            (0x84, 0x2040_0000),
            (0x94, 0x3000_0fff),
            (0x9c, 0x100),
            (0xa4, 0x1f1f_1f1f),
            (0xa8, 0x1f1f_1f1f),
            (0xac, 0x1f),
            (0xb8, 0xf800_0000),
            (0xf8, 0x1000_3080),
            (0xfc, 0x1000_0010),
            (ramin::PAGE_DIRECTORY_LO, space.directory as u32),
            (ramin::PAGE_DIRECTORY_HI, (space.directory >> 32) as u32),
            (ramin::VA_LIMIT_LO, u32::MAX),
            (ramin::VA_LIMIT_HI, 0xff),
        ];
        for (offset, value) in words {
            self.write_vram_u32(instance + offset, value);
        }
        let channel = Channel { id, instance, userd, base_va, base, engine, put: 0, fence: 0 };
        self.bind(&channel);
        self.start(id);
        self.runlist.retain(|other| *other != id);
        self.runlist.push(id);
        self.commit_runlist();
        self.stop(id);
        self.preempt(id);
        let context = base_va + 0x1000 + (PUSH_SIZE << RING_LOG2);
        let pointer = match engine {
            Engine::Graphics => ramin::GRAPHICS_CONTEXT_LO,
            Engine::Copy(0) => ramin::COPY0_CONTEXT_LO,
            Engine::Copy(_) => ramin::COPY1_CONTEXT_LO,
        };
        self.write_vram_u64(instance + pointer, context | u64::from(ramin::CONTEXT_VIRTUAL));
        self.start(id);
        channel
    }

    pub fn bind(&self, channel: &Channel) {
        let value = 0xc000_0000 | page(channel.instance);
        self.write(pfifo::NV_PFIFO_CHAN_INST.at(u32::from(channel.id)), value);
    }

    pub fn unbind(&mut self, id: u16) {
        self.stop(id);
        self.preempt(id);
        self.runlist.retain(|other| *other != id);
        self.commit_runlist();
        self.write(pfifo::NV_PFIFO_CHAN_INST.at(u32::from(id)), 0);
    }

    pub fn start(&self, id: u16) {
        self.write(pfifo::NV_PFIFO_CHAN_STATE.at(u32::from(id)), 0x001f_0001);
    }

    pub fn stop(&self, id: u16) {
        let state = pfifo::NV_PFIFO_CHAN_STATE.at(u32::from(id));
        self.write(state, self.read(state) & !1);
    }

    pub fn preempt(&self, id: u16) {
        self.write(pfifo::NV_PFIFO_PREEMPT, u32::from(id));
        self.poll(pfifo::NV_PFIFO_PREEMPT, "the preemption", |value| value & 1 << 20 == 0);
    }

    pub fn commit_runlist(&mut self) {
        let list = self.alloc(0x1000, 0x1000);
        let entries = self.runlist.clone();
        for (id, at) in entries.iter().zip((list..).step_by(8)) {
            self.write_vram_u64(at, u64::from(*id) | u64::from(ramin::RUNLIST_ENTRY_CHANNEL) << 32);
        }
        self.write(pfifo::NV_PFIFO_RUNLIST_BASE, page(list));
        self.write(pfifo::NV_PFIFO_RUNLIST, 0x01f0_0000 | entries.len() as u32);
        self.poll(pfifo::NV_PFIFO_RUNLIST_STATUS, "the runlist", |value| value & 1 << 20 == 0);
    }

    /// Submits words: into the next pushbuffer, into the ring, and rings.
    pub fn submit(&mut self, channel: &mut Channel, words: &[u32]) {
        assert!(words.len() as u64 * 4 <= PUSH_SIZE);
        let slot = u64::from(channel.put);
        let next = (channel.put + 1) % (1 << RING_LOG2);
        // The slot must be free: the GPU has fetched far enough.
        wait_until("room in the ring", || self.read_vram_u32(channel.userd + ramin::USERD_GP_GET) != next);
        let push = 0x1000 + slot * PUSH_SIZE;
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write_vram(channel.base + push, &bytes);
        let va = channel.base_va + push;
        let entry = va & 0xffff_fffc | (va >> 32) << 32 | (words.len() as u64) << 42;
        self.write_vram_u64(channel.base + slot * ramin::GPFIFO_ENTRY_SIZE, entry);
        channel.put = next;
        self.ring(channel.id, next);
    }

    /// Stores GP_PUT in the poll area.
    pub fn ring(&self, id: u16, put: u32) {
        let at = u64::from(id) * ramin::USERD_SIZE + ramin::USERD_GP_PUT;
        self.function.write(Region::Bar(1), at, &put.to_le_bytes()).unwrap();
    }

    /// Binds the channel's class to subchannel 0.
    pub fn set_object(&mut self, channel: &mut Channel) {
        let object = class_of(channel.engine) | engine_number(channel.engine) << 16;
        self.submit(channel, &[method(host::SET_OBJECT, 1), object]);
    }

    /// Submits a copy of whole 4 KiB lines with a fence behind it.
    pub fn copy(&mut self, channel: &mut Channel, from: u64, to: u64, size: u64) {
        let lines = u32::try_from(size / 0x1000).unwrap();
        let mut words = match channel.engine {
            Engine::Graphics => m2mf_copy(from, to, lines),
            Engine::Copy(_) => pcopy_copy(from, to, lines),
        };
        words.extend(self.fence_words(channel));
        self.submit(channel, &words);
    }

    /// Submits a fence with a notification.
    pub fn fence(&mut self, channel: &mut Channel) {
        let words = self.fence_words(channel);
        self.submit(channel, &words);
    }

    fn fence_words(&self, channel: &mut Channel) -> Vec<u32> {
        channel.fence += 1;
        let va = channel.base_va + fence_offset();
        vec![
            method(host::WFI, 1),
            0,
            method(host::SEMAPHORE_A, 4),
            (va >> 32) as u32,
            va as u32,
            channel.fence,
            host::RELEASE | host::RELEASE_SHORT,
            method(host::NON_STALL_INTERRUPT, 1),
            0,
        ]
    }

    pub fn fence_passed(&self, channel: &Channel) -> bool {
        self.read_vram_u32(channel.base + fence_offset()) == channel.fence
    }

    /// Waits until everything submitted is done.
    pub fn finish(&self, channel: &Channel) {
        wait_until("the fence", || self.fence_passed(channel));
    }
}

fn fence_offset() -> u64 {
    0x1000 + (PUSH_SIZE << RING_LOG2) + CONTEXT_SIZE
}

fn page(address: u64) -> u32 {
    (address >> 12) as u32
}

fn method(method: u16, count: u32) -> u32 {
    stream::OP_INCREMENT << 29 | count << 16 | u32::from(method) >> 2
}

fn class_of(engine: Engine) -> u32 {
    u32::from(match engine {
        Engine::Graphics => m2mf::CLASS,
        Engine::Copy(0) => pcopy::CLASS_COPY0,
        Engine::Copy(_) => pcopy::CLASS_COPY1,
    })
}

fn engine_number(engine: Engine) -> u32 {
    u32::from(match engine {
        Engine::Graphics => host::ENGINE_GRAPHICS,
        Engine::Copy(0) => host::ENGINE_COPY0,
        Engine::Copy(_) => host::ENGINE_COPY1,
    })
}

fn m2mf_copy(from: u64, to: u64, lines: u32) -> Vec<u32> {
    let exec = m2mf::EXEC_LINEAR_IN | m2mf::EXEC_LINEAR_OUT;
    vec![
        method(m2mf::OFFSET_OUT_HIGH, 2),
        (to >> 32) as u32,
        to as u32,
        method(m2mf::OFFSET_IN_HIGH, 6),
        (from >> 32) as u32,
        from as u32,
        0x1000,
        0x1000,
        0x1000,
        lines,
        method(m2mf::EXEC, 1),
        exec,
    ]
}

fn pcopy_copy(from: u64, to: u64, lines: u32) -> Vec<u32> {
    let exec = pcopy::EXEC_SRC_LINEAR | pcopy::EXEC_DST_LINEAR;
    vec![
        method(pcopy::SRC_ADDRESS_HIGH, 8),
        (from >> 32) as u32,
        from as u32,
        (to >> 32) as u32,
        to as u32,
        0x1000,
        0x1000,
        0x1000,
        lines,
        method(pcopy::EXEC, 1),
        exec,
    ]
}

/// Waits with patience.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Bytes that differ from page to page.
pub fn pattern(seed: u8, size: usize) -> Vec<u8> {
    (0..size).map(|at| seed ^ (at as u8) ^ (at >> 12) as u8).collect()
}
