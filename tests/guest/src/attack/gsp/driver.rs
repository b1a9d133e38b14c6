//! A driver for chips with a GSP that lives in a program: boots the virtual GSP, makes objects and channels
//! by RPCs, and keeps all tables, rings and commands in guest memory; only USERD must lie in VRAM.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::generation::Generation;
use super::rpc::{self, Gsp, put};
use super::space::Space;
use crate::attack::card::Card;
use crate::attack::tool::{End, Target};
use crate::attack::{low, place};
use crate::dma_memory::{DmaMemory, Piece};
use crate::push::{Commands, Subchannel, split};

pub const CHIP: u32 = 0x00_0000;
pub const WINDOW_VIEW: u32 = 0x70_0000;
/// Drops translations: directory's address (lower, upper), command.
const INVALIDATE_LOWER: u32 = 0xb8_30a0;
const INVALIDATE_UPPER: u32 = 0xb8_30a4;
const INVALIDATE: u32 = 0xb8_30b0;
/// The directory lies in system memory.
const IN_MEMORY: u32 = 1 << 1;
/// New work: a channel's token.
pub const DOORBELL: u32 = 0xbb_0090;

/// Classes.
const ROOT: u32 = 0x0000;
const DEVICE_CLASS: u32 = 0x0080;
const SPACE_CLASS: u32 = 0x90f1;
/// Controls.
const SET_PAGE_DIRECTORY: u32 = 0x0080_1813;
pub const SCHEDULE: u32 = 0xa06f_0103;
pub const BIND: u32 = 0xa06f_0104;
/// Handles.
pub const CLIENT: u32 = 0xc1d0_0000;
pub const DEVICE: u32 = 0xde1d_0000;
pub const SPACE: u32 = 0x90f1_0000;
pub const CHANNEL: u32 = 0xf1f0_0000;
const OBJECT: u32 = 0xb5b5_0000;
/// The copy engine with a runlist of its own: as the resource manager numbers engines, and the runlist.
pub const ENGINE: u32 = 10;
pub const RUNLIST: u32 = 1;

/// Where USERDs lie in VRAM; GP_GET and GP_PUT in one.
pub const USERD: u64 = 0x20_0000;
const USERD_BYTES: u64 = 0x200;
const GP_GET: u64 = 0x88;
const GP_PUT: u64 = 0x8c;

/// Bytes of what a channel is made with, as nouveau's versions have it.
const CHANNEL_BYTES: usize = 0x170;
/// Entries of a ring; bytes of a slot's pushbuffer; where in a channel's memory they and the fence lie.
const RING: u32 = 64;
const PUSH: usize = 0x400;
const PUSHES: u64 = 0x1000;
const FENCE: u64 = PUSHES + PUSH as u64 * RING as u64;
const BYTES: usize = 0x1_2000;
/// The subchannels of the host unit and of the copy class.
pub const HOST: Subchannel = Subchannel(0);
pub const COPY: Subchannel = Subchannel(4);
/// Subchannels of the graphics engine's classes.
pub const THREED: Subchannel = Subchannel(0);
pub const COMPUTE: Subchannel = Subchannel(1);

/// The engine that a channel is of, and the object that it has there.
#[derive(Debug, Clone, Copy)]
struct Seat {
    engine: u32,
    runlist: u32,
    subchannel: Subchannel,
    class: u32,
    /// What the object is made with.
    parameters: &'static [u32],
}

/// A GPU whose GSP is up, with a client, a device and an address space.
#[derive(Debug)]
pub struct Gpu<'a> {
    pub card: &'a Card,
    pub memory: &'a mut DmaMemory,
    pub gsp: Gsp,
    pub generation: &'static Generation,
    /// Bytes of VRAM.
    pub vram: u64,
    /// Bytes of what a channel is made with, in the version that is spoken.
    pub channel_bytes: usize,
}

/// A channel.
#[derive(Debug, Clone)]
pub struct Channel {
    pub id: u16,
    pub va: u64,
    pub memory: Piece,
    put: u32,
    fence: u32,
    seat: Seat,
}

impl<'a> Gpu<'a> {
    /// Resets the function and boots its GSP.
    pub fn bring_up(card: &'a Card, memory: &'a mut DmaMemory) -> Result<Self> {
        card.reset()?;
        memory.start_again();
        let generation = Generation::of(card)?;
        let vram = generation.vram(card);
        let gsp = Gsp::boot(card, memory)?;
        Ok(Self { card, memory, gsp, generation, vram, channel_bytes: CHANNEL_BYTES })
    }

    /// An RPC and its answer.
    pub fn call(&mut self, function: u32, body: &[u8]) -> Result<rpc::Message> {
        self.gsp.call(self.card, self.memory, function, body)
    }

    /// Makes an object: the status.
    pub fn alloc(&mut self, parent: u32, object: u32, class: u32, parameters: &[u8]) -> Result<u32> {
        let size = u32::try_from(parameters.len())?;
        let body = [&words(&[CLIENT, parent, object, class, 0, size, 0, 0]), parameters].concat();
        let answer = self.call(rpc::ALLOC, &body)?;
        Ok(if answer.result == 0 { answer.word(16) } else { answer.result })
    }

    /// Controls an object: the status.
    pub fn control(&mut self, object: u32, command: u32, parameters: &[u8]) -> Result<u32> {
        let size = u32::try_from(parameters.len())?;
        let body = [&words(&[CLIENT, object, command, 0, size, 0]), parameters].concat();
        let answer = self.call(rpc::CONTROL, &body)?;
        Ok(if answer.result == 0 { answer.word(12) } else { answer.result })
    }

    /// Frees an object: the status.
    pub fn free(&mut self, object: u32) -> Result<u32> {
        Ok(self.call(rpc::FREE, &words(&[CLIENT, 0, object, 0]))?.result)
    }

    /// A client with a device and the address space `space`.
    pub fn open(&mut self, space: &Space) -> Result<()> {
        ensure!(self.alloc(0, CLIENT, ROOT, &[])? == 0, "no client");
        ensure!(self.alloc(CLIENT, DEVICE, DEVICE_CLASS, &[0; 0x38])? == 0, "no device");
        self.open_space(SPACE, Target::Memory(space.root.physical))
            .and_then(|status| ensure_ok(status, "no address space"))
    }

    /// Another address space with this directory: the status.
    pub fn open_space(&mut self, handle: u32, directory: Target) -> Result<u32> {
        // The driver keeps the tables.
        let mut parameters = words(&[0, 8]);
        parameters.resize(0x30, 0);
        let status = self.alloc(DEVICE, handle, SPACE_CLASS, &parameters)?;
        if status != 0 {
            return Ok(status);
        }
        let (aperture, address) = match directory {
            Target::Vram(address) => (0, address),
            Target::Memory(address) => (1, address),
            Target::Peer(address) => (3, address),
        };
        let [high, low] = split(address);
        self.control(DEVICE, SET_PAGE_DIRECTORY, &words(&[low, high, 2, aperture, handle, 0, 0, 0]))
    }

    /// Parameters of a channel with its ring at `ring` and USERD at `userd`.
    pub fn channel_parameters(id: u16, ring: u64, userd: u64) -> Vec<u8> {
        let mut parameters = vec![0; CHANNEL_BYTES];
        let ([ring_high, ring_low], [userd_high, userd_low], id) = (split(ring), split(userd), u32::from(id));
        put(&mut parameters, 8, &[ring_low, ring_high, RING, (id % 8) << 8 | (id / 8) << 12 | 1 << 21]);
        put(&mut parameters, 0x1c, &[SPACE]);
        put(&mut parameters, 0x80, &[ENGINE]);
        put(&mut parameters, 0xa8, &[userd_low, userd_high, 0x200, 0, 2, 0]);
        parameters
    }

    /// A channel that runs, with a copy object.
    pub fn channel(&mut self, space: &mut Space, id: u16) -> Result<Channel> {
        let class = self.generation.copy;
        let parameters = &[1, ENGINE];
        let seat = Seat { engine: ENGINE, runlist: RUNLIST, subchannel: COPY, class, parameters };
        self.channel_of(space, id, seat)
    }

    /// A channel of the graphics engine that runs, with a compute object.
    pub fn compute_channel(&mut self, space: &mut Space, id: u16) -> Result<Channel> {
        const GRAPHICS: u32 = 1;
        let class = self.generation.compute;
        let parameters = &[];
        self.channel_of(
            space,
            id,
            Seat { engine: GRAPHICS, runlist: 0, subchannel: COMPUTE, class, parameters },
        )
    }

    fn channel_of(&mut self, space: &mut Space, id: u16, seat: Seat) -> Result<Channel> {
        let va = 0x1000_0000 + u64::from(id) * 0x10_0000;
        let memory = self.memory.take(BYTES, 0x1000)?;
        space.map(self.memory, va, Target::Memory(memory.physical), BYTES as u64)?;
        let mut channel = Channel { id, va, memory, put: 0, fence: 0, seat };
        self.install(&mut channel)?;
        Ok(channel)
    }

    /// Makes the GSP's side of a channel.
    pub fn install(&mut self, channel: &mut Channel) -> Result<()> {
        let (id, userd) = (u32::from(channel.id), userd(channel.id));
        channel.put = 0;
        for offset in [GP_GET, GP_PUT] {
            self.write_vram(userd + offset, 0);
        }
        let Seat { engine, class, parameters: object, .. } = channel.seat;
        let mut parameters = Self::channel_parameters(channel.id, channel.va, userd);
        put(&mut parameters, 0x80, &[engine]);
        parameters.truncate(self.channel_bytes);
        ensure_ok(self.alloc(DEVICE, CHANNEL + id, self.generation.channel, &parameters)?, "no channel")?;
        ensure_ok(self.alloc(CHANNEL + id, OBJECT + id, class, &words(object))?, "no object")?;
        ensure_ok(self.control(CHANNEL + id, BIND, &words(&[engine]))?, "not bound")?;
        ensure_ok(self.control(CHANNEL + id, SCHEDULE, &[1, 0])?, "not scheduled")
    }

    /// The same channel anew.
    pub fn revive(&mut self, channel: &mut Channel) -> Result<()> {
        self.free(CHANNEL + u32::from(channel.id))?;
        self.gsp.listen(self.memory);
        self.gsp.events.clear();
        self.install(channel)
    }

    /// Writes a word of VRAM through the window.
    pub fn write_vram(&self, address: u64, word: u32) {
        self.card.set(self.generation.window, low(address >> 16));
        self.card.set(WINDOW_VIEW + low(address & 0xffff), word);
    }

    /// Drops the GPU's translations of a space.
    pub fn flush(&self, space: &Space) {
        let [high, low] = split(space.root.physical);
        self.card.set(INVALIDATE_LOWER, low >> 8 | high << 24 | IN_MEMORY);
        self.card.set(INVALIDATE_UPPER, high >> 8);
        self.card.set(INVALIDATE, 0x8000_0001);
    }

    /// Commands that bind the channel's class, followed by `work` and a fence.
    pub fn fenced(channel: &mut Channel, work: &Commands) -> Commands {
        channel.fence += 1;
        let [high, low] = split(channel.va + FENCE);
        let mut commands = Commands::new();
        commands.methods(channel.seat.subchannel, 0, &[channel.seat.class]);
        commands.extend(work);
        // Once the engine is idle.
        commands.methods(HOST, 0x5c, &[low, high, channel.fence, 0, 1 | 1 << 20]);
        commands.methods(HOST, 0x20, &[0]);
        commands
    }

    /// Writes commands into the next pushbuffer and its entry into the ring, and rings.
    pub fn submit(&self, channel: &mut Channel, commands: &Commands) {
        let bytes = commands.to_bytes();
        let push = place(PUSHES) + channel.put as usize * PUSH;
        let (words, _) = bytes.as_chunks::<4>();
        for (index, word) in words.iter().take(PUSH / 4).enumerate() {
            self.memory.store32(channel.memory, push + index * 4, u32::from_le_bytes(*word));
        }
        self.submit_entry(channel, (channel.va + push as u64) | 1 << 41 | (words.len() as u64) << 42);
    }

    /// Writes an entry into the ring as it is, and rings.
    pub fn submit_entry(&self, channel: &mut Channel, entry: u64) {
        self.memory.store64(channel.memory, channel.put as usize * 8, entry);
        channel.put = (channel.put + 1) % RING;
        self.ring_on(channel.seat.runlist, channel.id, channel.put);
    }

    /// Stores GP_PUT and rings.
    pub fn ring(&self, id: u16, put: u32) {
        self.ring_on(RUNLIST, id, put);
    }

    fn ring_on(&self, runlist: u32, id: u16, put: u32) {
        self.write_vram(userd(id) + GP_PUT, put);
        self.card.set(DOORBELL, self.generation.token(runlist, id.into()));
    }

    /// Does `work` and waits for its end.
    pub fn run(&mut self, channel: &mut Channel, work: &Commands, limit: Duration) -> End {
        let commands = Self::fenced(channel, work);
        self.submit(channel, &commands);
        self.end(channel, limit)
    }

    /// Waits for the end of what was submitted.
    pub fn end(&mut self, channel: &Channel, limit: Duration) -> End {
        let start = Instant::now();
        loop {
            if self.memory.load32(channel.memory, place(FENCE)) == channel.fence {
                return End::Done;
            }
            self.gsp.listen(self.memory);
            let stopped = self
                .gsp
                .events
                .iter()
                .find(|event| event.function == rpc::STOPPED && event.word(4) == u32::from(channel.id));
            if let Some(event) = stopped {
                /// The kind of error that has an address.
                const MMU_FAULT: u32 = 31;
                let address = u64::from(event.word(0x20)) << 32 | u64::from(event.word(0x1c));
                return if event.word(0x10) == MMU_FAULT { End::Fault(address) } else { End::Error };
            }
            if self.card.reg(CHIP) == u32::MAX {
                return End::Lost;
            }
            if start.elapsed() > limit {
                return End::Silent;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// The VRAM address of a channel's USERD.
pub fn userd(id: u16) -> u64 {
    USERD + u64::from(id) * USERD_BYTES
}

/// The words that copy lines of a page.
pub fn copy(to: u64, from: u64, pitch: u32, count: u32) -> Commands {
    let ([to_high, to_low], [from_high, from_low]) = (split(to), split(from));
    let mut commands = Commands::new();
    commands.methods(COPY, 0x400, &[from_high, from_low, to_high, to_low, pitch, pitch, 0x1000, count]);
    commands.methods(COPY, 0x300, &[0x386]);
    commands
}

/// Words as bytes.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub fn ensure_ok(status: u32, what: &str) -> Result<()> {
    (status == 0).then_some(()).with_context(|| format!("{what}: status {status:#x}"))
}
