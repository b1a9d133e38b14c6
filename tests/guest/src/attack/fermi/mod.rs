//! Attacks on the vGPU of a GF100, and the driver that they are made with.

mod channel;
mod channels;
mod driver;
mod firmware;
mod registers;
mod regs;
mod space;
mod storms;
mod tables;
mod windows;

use std::time::Duration;

use anyhow::{Result, ensure};

use super::tool::{End, FROM, HONEST, Lines, TO, Target, Tool};
use super::usual::{self, Chip, on_rig};
use super::{Means, Seen, Stage, machine, memory, work};
use crate::attack::card::Card;
use crate::dma_memory::{DmaMemory, Piece};
use crate::push::Commands;
use channel::{Channel, Engine, OBJECT};
use driver::Gpu;
use space::Space;

/// The attack of a name.
pub fn means(name: &str) -> Option<Means> {
    Some(match name {
        "falcon-firmware" => firmware::falcons,
        "copy-firmware" => firmware::copy_engines,
        "context-patch-list" => firmware::patch_list,
        "pramin-window" => windows::pramin,
        "bar-window-tables" => windows::tables,
        "residue-scan" => |stage| memory::residue(&mut Rig::new(stage, Engine::Copy(0))?),
        "table-loops" => tables::loops,
        "table-flood" => tables::flood,
        "foreign-instances" => channels::foreign_instances,
        "instance-race" => channels::race,
        "runlist-abuse" => channels::runlists,
        "ring-abuse" => channels::rings,
        "illegal-methods" => channels::illegal_methods,
        "endless-acquire" => channels::endless_acquire,
        "channel-exhaustion" => channels::exhaustion,
        "repeated-hangs" => storms::repeated_hangs,
        "doorbell-storm" => storms::doorbells,
        "register-storm" => storms::registers,
        "interrupt-storm" => storms::interrupts,
        "log-flood" => storms::logs,
        "reset-loop" => storms::resets,
        "crash-loop" => crash,
        "clock-jumps" => clock_jumps,
        _ => return usual::means::<Fermi>(name),
    })
}

/// The chip, for attacks that are made in the same way on each.
struct Fermi;

impl Chip for Fermi {
    const BITS: u32 = 40;
    const VRAM_BITS: u32 = 40;
    const ODD: &'static [usize] = &registers::ODD;
    const HOT: &'static [(u32, u32)] = &registers::HOT;
    const PRIVILEGED: &'static [u32] = &registers::PRIVILEGED;
    const OUTPUTS: &'static [u32] = &registers::OUTPUTS;
    const PEERS: &'static [u32] = &registers::PEERS;
    const MIRROR: u32 = regs::XVE;

    fn constants(_: &Card) -> Result<Vec<u32>> {
        Ok(registers::constants())
    }

    fn counters() -> Vec<u32> {
        registers::counters()
    }

    fn rig(stage: &mut Stage) -> Result<impl Tool> {
        Rig::new(stage, Engine::Graphics)
    }
}

fn clock_jumps(stage: &mut Stage) -> Result<Seen> {
    on_rig::<Fermi>(stage, |rig, time| {
        work::clock_jumps(rig, time, |tool, random| {
            let card = tool.card();
            card.set(regs::PTIMER_NUMERATOR, random.word());
            card.set(regs::PTIMER_DENOMINATOR, 0);
            card.set(regs::PTIMER_TIME, random.word());
            card.set(regs::PTIMER_ALARM, random.word());
        })
    })
}

/// Row 30: the machine crashes with work under way, with the GPU just brought up, with a channel that has no
/// work.
fn crash(stage: &mut Stage) -> Result<Seen> {
    let round = stage.round;
    match round % 3 {
        0 => Rig::new(stage, Engine::Graphics)?.begin_endless(),
        1 => drop(Gpu::bring_up(&stage.card, &mut stage.memory)?),
        _ => drop(Rig::new(stage, Engine::Copy(0))?),
    }
    machine::crash(round)
}

/// Brings the GPU up and has each engine copy a page.
pub fn works(stage: &mut Stage) -> Result<()> {
    for engine in [Engine::Graphics, Engine::Copy(0), Engine::Copy(1)] {
        let mut rig = Rig::new(stage, engine)?;
        let end = rig.copies_honestly(0x1234_5678);
        ensure!(end == End::Done, "an honest copy on {engine:?} ended with {end:?}");
    }
    Ok(())
}

/// A GPU with one space and one channel in it, and a page of memory on either side of a copy.
struct Rig<'a> {
    gpu: Gpu<'a>,
    space: Space,
    channel: Channel,
    from: Piece,
    to: Piece,
}

impl<'a> Rig<'a> {
    fn new(stage: &'a mut Stage, engine: Engine) -> Result<Self> {
        let mut gpu = Gpu::bring_up(&stage.card, &mut stage.memory)?;
        let mut space = Space::new(gpu.memory)?;
        let [from, to] = [gpu.memory.take(0x1000, 0x1000)?, gpu.memory.take(0x1000, 0x1000)?];
        space.map(gpu.memory, FROM, Target::Memory(from.physical), 0x1000)?;
        space.map(gpu.memory, TO, Target::Memory(to.physical), 0x1000)?;
        let channel = gpu.channel(&mut space, 1, engine)?;
        Ok(Self { gpu, space, channel, from, to })
    }

    fn submit(&mut self, work: &Commands) {
        let commands = self.gpu.fenced(&mut self.channel, work);
        self.gpu.submit(&mut self.channel, &commands);
    }
}

impl Tool for Rig<'_> {
    fn card(&self) -> &Card {
        self.gpu.card
    }

    fn memory(&self) -> &DmaMemory {
        self.gpu.memory
    }

    fn take(&mut self, size: usize) -> Result<Piece> {
        Ok(self.gpu.memory.take(size, 0x1000)?)
    }

    fn vram(&self) -> u64 {
        self.gpu.vram
    }

    fn pages(&self) -> [Piece; 2] {
        [self.from, self.to]
    }

    fn entry(&self, target: Target) -> u64 {
        space::entry(target)
    }

    fn names_own(&self, entry: u64, memory: u64) -> bool {
        let address = (entry & 0xffff_fff0) << 8;
        entry & 1 != 0 && if entry >> 33 & 3 == 0 { address < self.gpu.vram } else { address < memory }
    }

    fn place(&mut self, va: u64) -> Result<(Piece, usize)> {
        Ok((self.space.table(self.gpu.memory, va)?, space::slot(va)))
    }

    fn flush(&self) {
        self.gpu.flush(&self.space);
    }

    fn copy(&mut self, to: u64, from: u64, lines: Lines, limit: Duration) -> End {
        let work = self.channel.engine.copy(to, from, lines.pitch, [0x1000, lines.count]);
        self.gpu.run(&mut self.channel, &work, limit)
    }

    fn begin_endless(&mut self) {
        self.submit(&self.channel.engine.copy(TO, FROM, 0, [0x1000, u32::MAX]));
    }

    fn end(&mut self, limit: Duration) -> End {
        self.gpu.end(&self.channel, limit)
    }

    fn revive(&mut self) -> Result<()> {
        self.gpu.revive(&mut self.channel, &self.space)
    }

    fn notify(&mut self) -> End {
        let mut commands = Commands::new();
        (0..50).for_each(|_| commands.methods(OBJECT, 0x20, &[0]));
        self.gpu.run(&mut self.channel, &commands, HONEST)
    }
}
