//! A tiny GF100 driver: brings any GF100 function up as a real driver does (by registers, BAR1, BAR3 and
//! PRAMIN only) and submits copies. Native and mediated GPUs are driven by the same code.
//!
//! VRAM is handed out from the bottom and never taken back. BAR3 shows the first part of VRAM as it is; BAR1
//! shows the USERD pages of all channels.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]
#![allow(dead_code, reason = "each test uses a part of the driver")]

mod channels;
mod commands;
mod memory;

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gpuvmk::chip::gf100::engines::ids;
use gpuvmk::chip::gf100::methods::{host, m2mf, pcopy};
use gpuvmk::chip::gf100::mmu::{LargePages, Pde, Pte};
use gpuvmk::chip::gf100::ramin;
use gpuvmk::chip::gf100::regs::{falcon, fecs, gpccs, pbus, pce0, pce1, pci, pfb, pfifo, pmc};
use gpuvmk::chip::registers::Reg;
use gpuvmk::chip::stream::DMA::SEC_OP;
use gpuvmk::chip::{Aperture, Engine, PhysicalAddress};
use gpuvmk::pci::mapping::{Access, Mapping, create_memory_file};
use gpuvmk::pci::{DmaBacking, DmaMapping, InterruptSink, PciFunction, Region};

/// VRAM that BAR3 shows.
const BAR3_VRAM: u64 = 32 << 20;
/// The largest address that there is.
const EVERYTHING: u64 = (1 << 40) - 1;
/// Channels with a USERD page in the poll area.
const CHANNELS: u16 = 128;
/// Entries of a ring, as log2.
pub const RING_LOG2: u32 = 6;
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

    fn message_sent(&self, _vector: u16) {}
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
    bar1: Option<Space>,
    bar3_is_up: bool,
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
            bar1: None,
            bar3_is_up: false,
        };
        driver.set_up_pci();
        driver.set_up_memory();
        driver.set_up_engines();
        driver.set_up_fifo();
        driver
    }

    /// The address space that BAR1 shows.
    pub fn bar1_space(&self) -> Space {
        self.bar1.clone().unwrap()
    }

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

        self.set_up_bar3();

        self.userd = self.alloc(u64::from(CHANNELS) * ramin::USERD_SIZE, 0x1000);
        self.zero(self.userd, u64::from(CHANNELS) * ramin::USERD_SIZE);
        let mut bar1 = self.new_space();
        let userd = self.userd;
        self.map(&mut bar1, 0, vram(userd), u64::from(CHANNELS) * ramin::USERD_SIZE);
        let block = self.alloc(ramin::INSTANCE_SIZE, 0x1000);
        self.fill_window_block(block, &bar1, EVERYTHING);
        self.write(pbus::NV_PBUS_BAR1_BLOCK, 1 << 31 | page(block));
        self.bar1 = Some(bar1);
    }

    /// Through PRAMIN, as long as there is nothing else, only what shows the tables themselves; the rest
    /// through BAR3.
    fn set_up_bar3(&mut self) {
        let block = self.alloc(ramin::INSTANCE_SIZE, 0x1000);
        let (mut space, table) = self.space_with_table();
        let tables = self.next_vram;
        self.fill_window_block(block, &space, tables - 1);
        self.map(&mut space, 0, vram(0), tables);
        self.write(pbus::NV_PBUS_BAR2_BLOCK, 1 << 31 | page(block));
        self.bar3_is_up = true;

        // Up to the limit everything was written; behind it, nothing.
        self.zero_but_first_entry(space.directory, LargePages::K128.directory_entries());
        let used = tables >> 12;
        let rest = LargePages::K128.table_entries(12) - used;
        (used..used + rest).for_each(|entry| self.write_vram_u64(table + entry * 8, 0));
        self.map(&mut space, tables, vram(tables), BAR3_VRAM.min(self.vram_size) - tables);
        self.fill_window_block(block, &space, EVERYTHING);
        self.write(pbus::NV_PBUS_BAR2_BLOCK, 1 << 31 | page(block));
        self.flush(&space);
    }

    fn fill_window_block(&mut self, block: u64, space: &Space, limit: u64) {
        self.write_vram_u64(block + ramin::PAGE_DIRECTORY_LO, space.directory);
        self.write_vram_u64(block + ramin::VA_LIMIT_LO, limit);
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
            self.write(index, falcon::CODE_INDEX::INCREMENT_ON_WRITE.mask());
            for word in 0..16 {
                self.write(data, 0xf8 + word);
            }
        }
        self.write(fecs::NV_PGRAPH_PRI_FECS_DMA_CONTROL, 0);
        self.write(fecs::NV_PGRAPH_PRI_FECS_CPU_CONTROL, falcon::CPU_CONTROL::START.mask());
        let mailbox = fecs::NV_PGRAPH_PRI_FECS_CC_SCRATCH.at(0);
        self.poll(mailbox, "FECS to start", |value| value >> 31 != 0);
        let starts = [
            (pce0::NV_PCE0_ACCESS_EN, pce0::NV_PCE0_CPU_CONTROL),
            (pce1::NV_PCE1_ACCESS_EN, pce1::NV_PCE1_CPU_CONTROL),
        ];
        for (access, control) in starts {
            self.write(access, 3);
            self.write(control, falcon::CPU_CONTROL::START.mask());
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
}

fn page(address: u64) -> u32 {
    (address >> 12) as u32
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
