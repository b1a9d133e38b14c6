//! Attacks on the vGPU of a chip with a GSP, and the driver that they are made with. What generations do
//! differently is in a table ([`generation`]); the attacks are the same.

mod boots;
mod calls;
mod channels;
mod driver;
mod falcons;
mod fsp;
mod generation;
mod kernel;
mod lies;
mod nvidia;
mod queues;
mod registers;
mod rpc;
mod shaders;
mod space;
mod tables;

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::tool::{End, FROM, HONEST, Lines, TO, Target, Tool};
use super::usual::{self, Chip, on_rig};
use super::{Means, Seen, Stage, Time, machine, work};
use crate::attack::card::Card;
use crate::dma_memory::{DmaMemory, Piece};
use crate::push::Commands;
use driver::{Channel, Gpu};
use generation::{Boot, Generation};
use space::Space;

/// The attack of a name on a chip that FSP boots.
pub fn by_fsp(name: &str) -> Option<Means> {
    means(name).or_else(|| usual::means::<ByFsp>(name))
}

/// The attack of a name on a chip that falcons boot.
pub fn by_falcons(name: &str) -> Option<Means> {
    means(name).or_else(|| usual::means::<ByFalcons>(name))
}

/// Whether a chip with this identification has a GSP, and falcons boot it.
pub fn is_booted_by_falcons(identification: u32) -> Result<bool> {
    Generation::of_identification(identification)
        .map(|generation| matches!(generation.boot, Boot::Falcons(_)))
}

/// The attack of a name, where it is not the same as on other chips.
fn means(name: &str) -> Option<Means> {
    Some(match name {
        "bar0-window" => registers::window,
        "bar-roots" => tables::bar_roots,
        "boot-abuse" => boots::boots,
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
        "shader-abuse" => shaders::abuse,
        "shader-hangs" => shaders::hangs,
        "kernel-endless" => kernel::endless,
        "kernel-tables-change" => kernel::tables_change,
        "kernel-channels" => kernel::channels,
        "kernel-doorbell-flood" => kernel::doorbells,
        "r550-lies" => lies::lies,
        "table-loops" => tables::loops,
        "table-flood" => tables::flood,
        "repeated-hangs" => |stage| on_rig::<ByFsp>(stage, |rig, time| work::hangs(rig, time, |_| {})),
        "interrupt-storm" => registers::interrupts,
        "reset-loop" => queues::resets,
        "crash-loop" => crash,
        "clock-jumps" => registers::clock_jumps,
        _ => return None,
    })
}

/// Chips for attacks that are made in the same way on each: those that FSP boots.
struct ByFsp;
/// Those that falcons boot.
struct ByFalcons;

/// Declares a chip, with the bits of an address in VRAM and the mirror of configuration space.
macro_rules! chip {
    ($name:ident, $bits:literal, $mirror:path) => {
        impl Chip for $name {
            const BITS: u32 = 52;
            const VRAM_BITS: u32 = $bits;
            const ODD: &'static [usize] = &registers::ODD;
            const HOT: &'static [(u32, u32)] = &registers::HOT;
            const PRIVILEGED: &'static [u32] = &registers::PRIVILEGED;
            const OUTPUTS: &'static [u32] = &registers::OUTPUTS;
            const PEERS: &'static [u32] = &registers::PEERS;
            const MIRROR: u32 = $mirror;

            fn constants(card: &Card) -> Result<Vec<u32>> {
                Ok(Generation::of(card)?.constants())
            }

            fn counters() -> Vec<u32> {
                registers::COUNTERS.to_vec()
            }

            fn rig(stage: &mut Stage) -> Result<impl Tool> {
                Rig::new(stage)
            }
        }
    };
}

chip!(ByFsp, 52, registers::MIRROR);
chip!(ByFalcons, 37, registers::OLD_MIRROR);

/// Row 30: the machine crashes with work under way, with GSP just asked to boot, with GSP up.
fn crash(stage: &mut Stage) -> Result<Seen> {
    let round = stage.round;
    match round % 3 {
        0 => Rig::new(stage)?.begin_endless(),
        1 => {
            stage.card.reset()?;
            stage.memory.start_again();
            let page = stage.memory.take(0x1000, 0x1000)?;
            boots::ask(&stage.card, &mut stage.memory, page.physical)?;
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
        Self::of(Gpu::bring_up(&stage.card, &mut stage.memory)?)
    }

    /// One on a GPU that was brought up.
    fn of(mut gpu: Gpu<'a>) -> Result<Self> {
        let mut space = Space::new(gpu.memory, gpu.generation.format)?;
        let [from, to] = [gpu.memory.take(0x1000, 0x1000)?, gpu.memory.take(0x1000, 0x1000)?];
        space.map(gpu.memory, FROM, Target::Memory(from.physical), 0x1000)?;
        space.map(gpu.memory, TO, Target::Memory(to.physical), 0x1000)?;
        gpu.open(&space)?;
        let channel = gpu.channel(&mut space, 3)?;
        Ok(Self { gpu, space, channel, from, to })
    }

    /// The same, and the attack's time, of which bringing the GPU up is not.
    fn timed(stage: &'a mut Stage) -> Result<(Self, Time)> {
        let (time, began) = (stage.time, Instant::now());
        Ok((Self::new(stage)?, time.after_bring_up(began)))
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
        self.space.format.entry(target)
    }

    fn names_own(&self, entry: u64, memory: u64) -> bool {
        match self.space.format.named(entry) {
            Some(Target::Vram(address)) => address < self.gpu.vram,
            Some(Target::Memory(address)) => address < memory,
            Some(Target::Peer(_)) | None => false,
        }
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
