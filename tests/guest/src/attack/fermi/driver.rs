//! A driver for a GF100 that lives in a program: brings the GPU up by registers, and keeps everything that
//! the GPU reads in guest memory, where it can be written fast and wrongly.
//!
//! It knows the chip from public documentation only, and shares nothing with the GPU's own models.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::regs::*;
use super::space::Space;
use crate::attack::card::Card;
use crate::attack::tool::Target;
use crate::attack::{low, place};
use crate::dma_memory::{DmaMemory, Piece};

/// How long a register command may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Channels that the chip has.
pub const CHANNELS: u16 = 128;
/// Bytes of a channel's USERD page.
pub const USERD: u64 = 0x1000;
/// GP_GET and GP_PUT in it.
pub const GP_GET: u64 = 0x88;
pub const GP_PUT: u64 = 0x8c;
/// Where the USERD pages lie in VRAM.
const USERD_VRAM: u64 = 0x10_0000;

/// A target as fields that know VRAM by 0 have it (instance blocks, registers): kind, address.
pub fn by_zero(target: Target) -> (u64, u64) {
    match target {
        Target::Vram(address) => (0, address),
        Target::Peer(address) => (1, address),
        Target::Memory(address) => (2, address),
    }
}

/// A GPU that was brought up.
#[derive(Debug)]
pub struct Gpu<'a> {
    pub card: &'a Card,
    pub memory: &'a mut DmaMemory,
    /// Bytes of VRAM.
    pub vram: u64,
    pub runlist: Vec<u16>,
    list: Piece,
    /// What BAR1's and BAR3's registers say.
    windows: [u32; 2],
}

impl<'a> Gpu<'a> {
    /// Resets the function and brings it up.
    pub fn bring_up(card: &'a Card, memory: &'a mut DmaMemory) -> Result<Self> {
        card.reset()?;
        memory.start_again();
        let chip = card.reg(PMC_BOOT_0) >> 20 & 0x1ff;
        ensure!(chip == 0xc0, "the GPU is {chip:#x} instead of a GF100");
        let sizes = (0..card.reg(PTOP_PARTITIONS) & 0x1f).map(|at| card.reg(PFBPA_SIZE + at * PFBPA_STRIDE));
        let vram = sizes.map(|mebibytes| u64::from(mebibytes) << 20).sum();
        let list = memory.take(0x1000, 0x1000)?;
        let mut gpu = Self { card, memory, vram, runlist: Vec::new(), list, windows: [0; 2] };
        gpu.set_up_windows()?;
        gpu.set_up_engines()?;
        gpu.set_up_fifo();
        Ok(gpu)
    }

    /// BAR1 shows the USERD pages at its start, BAR3 the first VRAM as it is.
    fn set_up_windows(&mut self) -> Result<()> {
        let shown = [(USERD_VRAM, u64::from(CHANNELS) * USERD), (0, 16 << 20)];
        for (window, (base, size)) in self.windows.iter_mut().zip(shown) {
            let mut space = Space::new(self.memory)?;
            space.map(self.memory, 0, Target::Vram(base), size.min(self.vram))?;
            let block = self.memory.take(0x1000, 0x1000)?;
            space.write_into(self.memory, block);
            *window = 1 << 31 | pointer(Target::Memory(block.physical));
        }
        self.bind_windows();
        Ok(())
    }

    /// Has BAR1 and BAR3 show what they should.
    pub fn bind_windows(&self) {
        let [bar1, bar3] = self.windows;
        self.card.set(PBUS_BAR1, bar1);
        self.card.set(PBUS_BAR3, bar3);
    }

    fn set_up_engines(&self) -> Result<()> {
        self.card.set(PMC_ENABLE, 0);
        self.card.set(PMC_ENABLE, 1 << 12 | 1 << 8 | 1 << 7 | 1 << 6);
        for falcon in [FECS, GPCCS, PCE0, PCE1] {
            self.upload(falcon, (0..16).map(|word| 0xf8 + word));
        }
        self.card.set(FECS + FALCON_DMA, 0);
        self.card.set(FECS + FALCON_CONTROL, FALCON_START);
        self.poll(FECS_MAILBOX, |value| value >> 31 != 0)?;
        for falcon in [PCE0, PCE1] {
            self.card.set(falcon + FALCON_ACCESS, 3);
            self.card.set(falcon + FALCON_CONTROL, FALCON_START);
        }
        Ok(())
    }

    /// Uploads code into a falcon.
    pub fn upload(&self, falcon: u32, code: impl Iterator<Item = u32>) {
        self.card.set(falcon + FALCON_CODE_INDEX, FALCON_NEXT_ON_WRITE);
        code.for_each(|word| self.card.set(falcon + FALCON_CODE, word));
    }

    fn set_up_fifo(&self) {
        self.card.set(PMC_ENABLE_PBDMA, u32::MAX);
        self.card.set(PFIFO_ENABLE, 1);
        self.card.set(PFIFO_USERD_POLL, 1 << 28);
        for unit in 0..PPBDMAS {
            self.card.set(PPBDMA_INTR_EN + unit * PPBDMA_STRIDE, u32::MAX);
        }
        self.card.set(PFIFO_INTR, u32::MAX);
        self.card.set(PFIFO_INTR_ENGINE_EN, 1);
        self.card.set(PFIFO_INTR_EN, u32::MAX);
    }

    /// Waits until a register says so.
    pub fn poll(&self, register: u32, done: impl Fn(u32) -> bool) -> Result<u32> {
        let start = Instant::now();
        loop {
            let value = self.card.reg(register);
            if done(value) {
                return Ok(value);
            }
            ensure!(start.elapsed() < PATIENCE, "register {register:#x} stays at {value:#x}");
            thread::sleep(Duration::from_micros(100));
        }
    }

    /// The VRAM address of a channel's USERD page.
    pub fn userd(&self, id: u16) -> u64 {
        USERD_VRAM + u64::from(id) * USERD
    }

    /// Stores GP_PUT in the poll area: the doorbell.
    pub fn ring(&self, id: u16, put: u32) {
        self.set_userd(id, GP_PUT, put);
    }

    /// Writes a word of a channel's USERD page.
    pub fn set_userd(&self, id: u16, offset: u64, word: u32) {
        // The poll area lies in the BAR.
        let _ = self.card.bar1.store32(place(u64::from(id) * USERD + offset), word);
    }

    /// A word of a channel's USERD page.
    pub fn get_userd(&self, id: u16, offset: u64) -> u32 {
        self.card.bar1.load32(place(u64::from(id) * USERD + offset)).unwrap_or(u32::MAX)
    }

    /// Binds a channel's number to an instance block.
    pub fn bind(&self, id: u16, block: Target) {
        self.card.set(PFIFO_CHAN_INST + u32::from(id) * 8, 0xc000_0000 | pointer(block));
    }

    /// Takes the instance block from a channel's number.
    pub fn unbind(&self, id: u16) {
        self.card.set(PFIFO_CHAN_INST + u32::from(id) * 8, 0);
    }

    pub fn start(&self, id: u16) {
        self.card.set(PFIFO_CHAN_STATE + u32::from(id) * 8, 0x001f_0001);
    }

    pub fn stop(&self, id: u16) {
        self.card.set(PFIFO_CHAN_STATE + u32::from(id) * 8, 0x001f_0000);
    }

    /// Takes a channel off its engine; an error if that does not end.
    pub fn preempt(&self, id: u16) -> Result<()> {
        self.card.set(PFIFO_PREEMPT, u32::from(id));
        self.poll(PFIFO_PREEMPT, |value| value & PENDING == 0)?;
        Ok(())
    }

    /// Commits the runlist.
    pub fn commit(&mut self) -> Result<()> {
        let entries: Vec<(u32, u32)> = self.runlist.iter().map(|id| (u32::from(*id), 4)).collect();
        self.commit_raw(&entries);
        self.poll(PFIFO_RUNLIST_STATUS, |value| value & PENDING == 0)?;
        Ok(())
    }

    /// Commits a runlist of these words, without waiting.
    pub fn commit_raw(&self, entries: &[(u32, u32)]) {
        for (index, (id, kind)) in entries.iter().enumerate() {
            self.memory.store64(self.list, index * 8, u64::from(*id) | u64::from(*kind) << 32);
        }
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        self.commit_at(Target::Memory(self.list.physical), count);
    }

    /// Commits the `count` words that lie at `place`.
    pub fn commit_at(&self, place: Target, count: u32) {
        self.card.set(PFIFO_RUNLIST_BASE, pointer(place));
        self.card.set(PFIFO_RUNLIST, 0x01f0_0000 | count & 0xffff);
    }

    /// Drops the GPU's translations of a space.
    pub fn flush(&self, space: &Space) {
        self.flush_directory(Target::Memory(space.directory.physical));
    }

    /// Drops the GPU's translations of a directory.
    pub fn flush_directory(&self, directory: Target) {
        let (target, address) = by_zero(directory);
        self.card.set(PFB_INVALIDATE_PDB, low(address >> 12 << 4 | target));
        self.card.set(PFB_INVALIDATE, INVALIDATE_ONE);
    }

    /// Clears everything that is pending.
    pub fn acknowledge(&self) {
        self.card.set(PFIFO_FAULT_ID, self.card.reg(PFIFO_FAULT_ID));
        for unit in 0..PPBDMAS {
            self.card.set(PPBDMA_INTR + unit * PPBDMA_STRIDE, u32::MAX);
        }
        self.card.set(PGRAPH_INTR, u32::MAX);
        for engine in 0..8 {
            self.card.set(PFIFO_INTR_ENGINE + engine * 4, u32::MAX);
        }
        self.card.set(PFIFO_INTR, u32::MAX);
    }

    /// Whether the vGPU answers with ones only: it was taken away from its guest.
    pub fn is_lost(&self) -> bool {
        self.card.reg(PMC_BOOT_0) == u32::MAX
    }
}

/// A page as registers have it: number in bits 27:0, target in bits 29:28.
pub fn pointer(target: Target) -> u32 {
    let (kind, address) = by_zero(target);
    low(address >> 12 & 0x0fff_ffff | kind << 28)
}
