//! A driver that speaks to GSP as NVIDIA's 550.163.01 does, and has channels that it marks as its kernel's:
//! no hardware has them, the device process carries out what they are told.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Rig;
use super::driver::{CHANNEL, DEVICE, Gpu, HOST, SCHEDULE, SPACE, userd};
use super::rpc::{self, Gsp, put};
use super::space::Space;
use crate::attack::place;
use crate::attack::tool::Target;
use crate::attack::{Stage, Time};
use crate::dma_memory::{DmaMemory, Piece};
use crate::push::{Commands, split};

/// The first message of a driver, whose length says which version it speaks; it is not answered.
const SYSTEM_INFO: u32 = 72;
const SYSTEM_INFO_BYTES: usize = 880;
/// Bytes of what a channel is made with, and where in it is whose the channel is.
pub const CHANNEL_BYTES: usize = 0x168;
pub const PRIVILEGE: usize = 0xf4;
/// The driver's kernel's.
pub const KERNELS: u32 = 2;

/// Words of a page, and entries of a ring in one.
const WORDS: usize = 0x400;
const ENTRIES: u64 = 0x200;
/// Pages that a ring and a segment are seen over where they have no end: all that there may be.
const RING_PAGES: u64 = 1024;
const SEGMENT_PAGES: u64 = 2048;
/// log2 of the entries of a ring without an end.
pub const ENDLESS: u32 = 19;
/// The timer, which is read after all that was written before.
const TIMER: u32 = 0x9400;

/// A GPU with one space and one channel of a user's in it, whose GSP speaks NVIDIA's version.
pub fn rig(stage: &mut Stage) -> Result<Rig<'_>> {
    let mut gpu = Gpu::bring_up(&stage.card, &mut stage.memory)?;
    let info = gpu.gsp.element(SYSTEM_INFO, &[0; SYSTEM_INFO_BYTES]);
    gpu.gsp.push(gpu.memory, &info);
    Gsp::ring(gpu.card);
    gpu.channel_bytes = CHANNEL_BYTES;
    Rig::of(gpu)
}

/// The same, and the attack's time, of which bringing the GPU up is not.
pub fn timed(stage: &mut Stage) -> Result<(Rig<'_>, Time)> {
    let (time, began) = (stage.time, Instant::now());
    Ok((rig(stage)?, time.after_bring_up(began)))
}

/// A page of ring entries and one of commands, which may be seen again and again up to the largest ring and
/// the largest segment.
#[derive(Debug, Clone, Copy)]
pub struct Pushbuffer {
    pub va: u64,
    ring: Piece,
    commands: Piece,
    /// log2 of the ring's entries.
    pub log2: u32,
}

impl Pushbuffer {
    /// One of a page each, at this address of a space.
    pub fn new(memory: &mut DmaMemory, space: &mut Space, va: u64) -> Result<Self> {
        Self::over(memory, space, va, [1, 1])
    }

    /// One without an end.
    pub fn endless(memory: &mut DmaMemory, space: &mut Space, va: u64) -> Result<Self> {
        Ok(Self { log2: ENDLESS, ..Self::over(memory, space, va, [RING_PAGES, SEGMENT_PAGES])? })
    }

    fn over(memory: &mut DmaMemory, space: &mut Space, va: u64, pages: [u64; 2]) -> Result<Self> {
        let [ring, commands] = [memory.take(0x1000, 0x1000)?, memory.take(0x1000, 0x1000)?];
        let this = Self { va, ring, commands, log2: ENTRIES.ilog2() };
        for (first, piece, count) in [(va, ring, pages[0]), (this.segment(), commands, pages[1])] {
            for page in 0..count {
                space.map(memory, first + page * 0x1000, Target::Memory(piece.physical), 0x1000)?;
            }
        }
        Ok(this)
    }

    /// Where the commands are.
    pub const fn segment(&self) -> u64 {
        self.va + RING_PAGES * 0x1000
    }

    /// The last entry of the ring.
    pub const fn last(&self) -> u32 {
        (1 << self.log2) - 1
    }

    /// Writes commands again and again until the page is full, and nothing behind them; every entry of the
    /// ring names `words` words from there on.
    pub fn fill(&self, memory: &DmaMemory, commands: &Commands, words: u64) {
        let bytes = commands.to_bytes();
        let (said, _) = bytes.as_chunks::<4>();
        let all = WORDS - WORDS % said.len().max(1);
        let mut again = said.iter().cycle().take(all).map(|word| u32::from_le_bytes(*word));
        for at in 0..WORDS {
            memory.store32(self.commands, at * 4, again.next().unwrap_or(0));
        }
        for entry in 0..ENTRIES {
            memory.store64(self.ring, place(entry * 8), self.segment() | words << 42);
        }
    }

    /// Writes commands once, which every entry of the ring names.
    pub fn write(&self, memory: &DmaMemory, commands: &Commands) {
        let bytes = commands.to_bytes();
        let (said, _) = bytes.as_chunks::<4>();
        for (at, word) in said.iter().take(WORDS).enumerate() {
            memory.store32(self.commands, at * 4, u32::from_le_bytes(*word));
        }
        for entry in 0..ENTRIES {
            memory.store64(self.ring, place(entry * 8), self.segment() | (said.len() as u64) << 42);
        }
    }
}

/// What a channel of the kernel's is made with: its number, its ring, its space and its engine.
pub fn parameters(id: u16, push: &Pushbuffer, space: u32, engine: u32) -> Vec<u8> {
    let mut parameters = Gpu::channel_parameters(id, push.va, userd(id));
    put(&mut parameters, 0x10, &[1 << push.log2]);
    put(&mut parameters, 0x1c, &[space]);
    put(&mut parameters, 0x80, &[engine]);
    put(&mut parameters, PRIVILEGE, &[KERNELS]);
    parameters.truncate(CHANNEL_BYTES);
    parameters
}

/// Makes a channel of the kernel's and lets it run: the status.
pub fn make(gpu: &mut Gpu<'_>, id: u16, push: &Pushbuffer, space: u32) -> Result<u32> {
    let (handle, class) = (CHANNEL + u32::from(id), gpu.generation.channel);
    let status = gpu.alloc(DEVICE, handle, class, &parameters(id, push, space, super::driver::ENGINE))?;
    if status == 0 { gpu.control(handle, SCHEDULE, &[1, 0]) } else { Ok(status) }
}

/// The same in the space of all.
pub fn make_here(gpu: &mut Gpu<'_>, id: u16, push: &Pushbuffer) -> Result<u32> {
    make(gpu, id, push, SPACE)
}

/// Stores GP_PUT, rings, and waits until the processor has its answer: how long that took.
pub fn ring(gpu: &Gpu<'_>, id: u16, put: u32) -> Duration {
    let start = Instant::now();
    gpu.ring(id, put);
    gpu.card.reg(TIMER);
    start.elapsed()
}

/// Whether GSP has told that a channel was stopped. What it told is forgotten.
pub fn was_stopped(gpu: &mut Gpu<'_>, id: u16) -> bool {
    gpu.gsp.listen(gpu.memory);
    let stopped =
        gpu.gsp.events.iter().any(|event| event.function == rpc::STOPPED && event.word(4) == u32::from(id));
    gpu.gsp.events.clear();
    stopped
}

/// A wait for a value, or its release.
pub fn semaphore(address: u64, value: u32, execute: u32) -> Commands {
    let [high, low] = split(address);
    let mut commands = Commands::new();
    commands.methods(HOST, 0x5c, &[low, high, value, 0, execute]);
    commands
}

/// Says that page tables have changed: those of all spaces.
pub fn invalidation() -> Commands {
    let mut commands = Commands::new();
    commands.methods(HOST, 0x28, &[0, 0, 1, 9 << 27]);
    commands
}
