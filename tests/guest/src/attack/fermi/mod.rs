//! Attacks on the vGPU of a GF100, and the driver that they are made with.

mod channel;
mod channels;
mod driver;
mod firmware;
mod life;
mod registers;
mod regs;
mod space;
mod storms;
mod tables;
mod windows;

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Means, Stage};
use channel::{Channel, End, Engine};
use driver::{Gpu, Target};
use space::Space;

/// How long honest work may take, however busy the machine is.
const HONEST: Duration = Duration::from_secs(10);
/// Where copies come from and go to.
const FROM: u64 = 0x4000_0000;
const TO: u64 = 0x4800_0000;

/// The attack of a name.
pub fn means(name: &str) -> Option<Means> {
    Some(match name {
        "widths" => registers::widths,
        "bar0-fuzz" => registers::fuzz,
        "privileged-registers" => registers::privileged,
        "rom-and-fuses" => registers::rom,
        "config-mirror" => registers::mirror,
        "display-and-buses" => registers::display,
        "peer-registers" => registers::peer,
        "global-counters" => registers::counters,
        "falcon-firmware" => firmware::falcons,
        "copy-firmware" => firmware::copy_engines,
        "context-patch-list" => firmware::patch_list,
        "pramin-window" => windows::pramin,
        "bar-window-tables" => windows::tables,
        "residue-scan" => windows::residue,
        "foreign-vram" => tables::foreign_vram,
        "foreign-memory" => tables::foreign_memory,
        "dma-to-mmio" => tables::mmio,
        "table-loops" => tables::loops,
        "rewrite-race" => tables::race,
        "garbage-entries" => tables::garbage,
        "table-flood" => tables::flood,
        "memory-taken" => tables::memory_taken,
        "foreign-instances" => channels::foreign_instances,
        "runlist-abuse" => channels::runlists,
        "ring-abuse" => channels::rings,
        "illegal-methods" => channels::illegal_methods,
        "endless-acquire" => channels::endless_acquire,
        "channel-exhaustion" => channels::exhaustion,
        "endless-copy" => storms::endless_copy,
        "repeated-hangs" => storms::repeated_hangs,
        "fault-storm" => storms::faults,
        "flush-storm" => storms::flushes,
        "doorbell-storm" => storms::doorbells,
        "register-storm" => storms::registers,
        "interrupt-storm" => storms::interrupts,
        "log-flood" => storms::logs,
        "reset-in-dma" => life::reset_in_dma,
        "reset-loop" => life::reset_loop,
        "clock-jumps" => life::clock_jumps,
        _ => return None,
    })
}

/// Brings the GPU up and has each engine copy a page.
pub fn works(stage: &mut Stage) -> Result<()> {
    for engine in [Engine::Graphics, Engine::Copy(0), Engine::Copy(1)] {
        let mut rig = Rig::new(stage, engine)?;
        let end = rig.copies_page(0x1234_5678);
        ensure!(end == End::Done, "an honest copy on {engine:?} ended with {end:?}");
    }
    Ok(())
}

/// A GPU with one space and one channel in it, and a page of memory on either side of a copy.
struct Rig<'a> {
    gpu: Gpu<'a>,
    space: Space,
    channel: Channel,
    from: crate::dma_memory::Piece,
    to: crate::dma_memory::Piece,
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

    /// Copies one page from `from` to `to`.
    fn copies(&mut self, to: u64, from: u64, limit: Duration) -> End {
        let work = self.channel.engine.copy(to, from, 0x1000, [0x1000, 1]);
        self.gpu.run(&mut self.channel, &work, limit)
    }

    /// Copies the honest page, filled with `value`; an engine that moved something else has erred.
    fn copies_page(&mut self, value: u32) -> End {
        self.gpu.memory.fill(self.from, value);
        self.gpu.memory.fill(self.to, !value);
        let end = self.copies(TO, FROM, HONEST);
        let moved = (0..0x1000).step_by(4).all(|at| self.gpu.memory.load32(self.to, at) == value);
        if end == End::Done && !moved { End::EngineError } else { end }
    }

    /// The channel again, after it was stopped.
    fn revive(&mut self) -> Result<()> {
        self.gpu.revive(&mut self.channel, &self.space)
    }
}
