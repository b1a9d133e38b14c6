//! Attacks on the vGPU of a GH100, and the driver that they are made with.

mod calls;
mod channels;
mod driver;
mod gsp;
mod queues;
mod registers;
mod space;
mod tables;

use std::time::Duration;

use anyhow::{Result, ensure};

use super::tool::{End, FROM, HONEST, Lines, TO, Target, Tool};
use super::usual::{self, Chip, on_rig};
use super::{Means, Seen, Stage, machine, work};
use crate::attack::card::Card;
use crate::dma_memory::{DmaMemory, Piece};
use crate::push::Commands;
use driver::{Channel, Gpu};
use space::Space;

/// The attack of a name.
pub fn means(name: &str) -> Option<Means> {
    Some(match name {
        "bar0-window" => registers::window,
        "bar-roots" => tables::bar_roots,
        "boot-abuse" => queues::boots,
        "queue-pointers" => queues::pointers,
        "queue-elements" => queues::elements,
        "queue-race" => queues::race,
        "continuations" => queues::continuations,
        "rpc-fuzz" => calls::fuzz,
        "control-fuzz" => calls::controls,
        "object-flood" => calls::flood,
        "rpc-storm" => calls::storm,
        "unload-under-way" => calls::unload,
        "log-flood" => calls::logs,
        "schedule-abuse" => channels::schedules,
        "foreign-channels" => channels::foreign,
        "foreign-tokens" => channels::tokens,
        "channel-exhaustion" => channels::exhaustion,
        "ring-abuse" => channels::rings,
        "illegal-methods" => channels::illegal_methods,
        "endless-acquire" => channels::endless_acquire,
        "doorbell-storm" => channels::doorbells,
        "register-storm" => registers::storm,
        "table-loops" => tables::loops,
        "table-flood" => tables::flood,
        "repeated-hangs" => |stage| on_rig::<Hopper>(stage, |rig, time| work::hangs(rig, time, |_| {})),
        "interrupt-storm" => registers::interrupts,
        "reset-loop" => queues::resets,
        "crash-loop" => crash,
        "clock-jumps" => registers::clock_jumps,
        _ => return usual::means::<Hopper>(name),
    })
}

/// The chip, for attacks that are made in the same way on each.
struct Hopper;

impl Chip for Hopper {
    const BITS: u32 = 52;
    const ODD: &'static [usize] = &registers::ODD;
    const HOT: &'static [(u32, u32)] = &registers::HOT;
    const PRIVILEGED: &'static [u32] = &registers::PRIVILEGED;
    const OUTPUTS: &'static [u32] = &registers::OUTPUTS;
    const PEERS: &'static [u32] = &registers::PEERS;
    const MIRROR: u32 = registers::MIRROR;

    fn constants() -> Vec<u32> {
        registers::constants()
    }

    fn counters() -> Vec<u32> {
        registers::COUNTERS.to_vec()
    }

    fn rig(stage: &mut Stage) -> Result<impl Tool> {
        Rig::new(stage)
    }
}

/// Row 30: the machine crashes with work under way, with GSP just asked to boot, with GSP up.
fn crash(stage: &mut Stage) -> Result<Seen> {
    let round = stage.round;
    match round % 3 {
        0 => Rig::new(stage)?.begin_endless(),
        1 => {
            stage.card.reset()?;
            stage.memory.start_again();
            let page = stage.memory.take(0x1000, 0x1000)?;
            gsp::ask_fsp(&stage.card, &mut stage.memory, page.physical)?;
        }
        _ => drop(Gpu::bring_up(&stage.card, &mut stage.memory)?),
    }
    machine::crash(round)
}

/// Brings the GPU up and copies a page.
pub fn works(stage: &mut Stage) -> Result<()> {
    let end = Rig::new(stage)?.copies_honestly(0x1234_5678);
    ensure!(end == End::Done, "an honest copy ended with {end:?}");
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
    fn new(stage: &'a mut Stage) -> Result<Self> {
        let mut gpu = Gpu::bring_up(&stage.card, &mut stage.memory)?;
        let mut space = Space::new(gpu.memory)?;
        let [from, to] = [gpu.memory.take(0x1000, 0x1000)?, gpu.memory.take(0x1000, 0x1000)?];
        space.map(gpu.memory, FROM, Target::Memory(from.physical), 0x1000)?;
        space.map(gpu.memory, TO, Target::Memory(to.physical), 0x1000)?;
        gpu.open(&space)?;
        let channel = gpu.channel(&mut space, 3)?;
        Ok(Self { gpu, space, channel, from, to })
    }

    fn submit(&mut self, work: &Commands) {
        let commands = Gpu::fenced(&mut self.channel, work);
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
        let address = entry & 0x000f_ffff_ffff_f000;
        entry & 1 != 0 && if entry >> 1 & 3 == 0 { address < self.gpu.vram } else { address < memory }
    }

    fn place(&mut self, va: u64) -> Result<(Piece, usize)> {
        Ok((self.space.table(self.gpu.memory, va)?, space::slot(va)))
    }

    fn flush(&self) {
        self.gpu.flush(&self.space);
    }

    fn copy(&mut self, to: u64, from: u64, lines: Lines, limit: Duration) -> End {
        self.gpu.run(&mut self.channel, &driver::copy(to, from, lines.pitch, lines.count), limit)
    }

    fn begin_endless(&mut self) {
        self.submit(&driver::copy(TO, FROM, 0, u32::MAX));
    }

    fn end(&mut self, limit: Duration) -> End {
        self.gpu.end(&self.channel, limit)
    }

    fn revive(&mut self) -> Result<()> {
        self.gpu.revive(&mut self.channel)
    }

    fn notify(&mut self) -> End {
        let mut commands = Commands::new();
        (0..50).for_each(|_| commands.methods(driver::HOST, 0x20, &[0]));
        self.gpu.run(&mut self.channel, &commands, HONEST)
    }
}
