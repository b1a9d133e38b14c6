//! Rows 29, 30 and 39: resets, power states and clocks.

use std::fs;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use super::driver::{Gpu, Target};
use super::regs::*;
use super::space::Space;
use super::{End, Engine, FROM, HONEST, Rig, TO};
use crate::attack::random::Random;
use crate::attack::{Outcome, Seen, Stage};
use crate::sys;

/// How long memory is watched after a reset.
const WATCHED: Duration = Duration::from_millis(60);
const WRITTEN: u32 = 0x0ddd_a7a0;
const CLEAN: u32 = 0xc1ea_0000;

/// Row 29: when the function's reset is over, nothing of what it did may land in memory any more.
pub fn reset_in_dma(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let (mut resets, mut way) = (0u64, 0u32);
    while time.goes_on() {
        let mut rig = Rig::new(stage, Engine::Graphics)?;
        rig.gpu.memory.fill(rig.from, WRITTEN);
        rig.gpu.memory.fill(rig.to, 0);
        let work = Engine::Graphics.copy(TO, FROM, 0, [0x1000, u32::MAX]);
        let commands = rig.gpu.fenced(&mut rig.channel, &work);
        rig.gpu.submit(&mut rig.channel, &commands);
        for _ in 0..2000 {
            if rig.gpu.memory.load32(rig.to, 0x800) == WRITTEN {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        ensure!(rig.gpu.memory.load32(rig.to, 0x800) == WRITTEN, "the copy never began");
        let what = match way % 3 {
            0 => "function reset",
            1 => {
                rig.gpu.card.sleep_and_wake()?;
                "D3 and function reset"
            }
            _ => {
                rig.gpu.card.set_bus_master(false)?;
                "bus mastering off and function reset"
            }
        };
        rig.gpu.card.reset()?;
        rig.gpu.memory.fill(rig.to, CLEAN);
        thread::sleep(WATCHED);
        let dirty = (0..0x1000).step_by(4).any(|at| rig.gpu.memory.load32(rig.to, at) != CLEAN);
        ensure!(!dirty, "memory was written after {what}");
        way += 1;
        resets += 1;
    }
    Ok(Seen::new(Outcome::Values, format!("{resets} resets while a copy wrote, no write landed afterwards")))
}

/// Row 30.
pub fn reset_loop(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let (mut random, mut resets) = (Random::new(30), 0u64);
    while time.goes_on() {
        let mut gpu = Gpu::bring_up(&stage.card, &mut stage.memory)?;
        let mut space = Space::new(gpu.memory)?;
        // As far as luck will have it.
        for step in 0..random.below(8) {
            let id = u16::try_from(step).unwrap_or(0);
            let mut channel = gpu.unbound_channel(&mut space, id, Engine::Copy(0))?;
            gpu.bind(id, Target::Memory(channel.block.physical));
            if step % 2 == 0 {
                gpu.start(id);
                gpu.commit_raw(&[(step, 4)]);
                let work = Engine::Copy(0).copy(channel.va, channel.va, 0, [0x1000, u32::MAX]);
                let commands = gpu.fenced(&mut channel, &work);
                gpu.submit(&mut channel, &commands);
            }
        }
        if random.below(2) == 0 {
            gpu.card.set(PFIFO_PREEMPT, 0);
            gpu.flush(&space);
        }
        gpu.card.reset()?;
        resets += 1;
    }
    Ok(Seen::new(Outcome::Values, format!("{resets} resets")))
}

/// Row 39.
pub fn clock_jumps(stage: &mut Stage) -> Result<Seen> {
    /// An hour, a day, a year.
    const JUMPS: [i64; 3] = [3600, 86_400, 31_536_000];
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
    let now = i64::try_from(now.as_secs())?;
    let mut copies = 0u64;
    let mut random = Random::new(39);
    while time.goes_on() {
        for jump in JUMPS {
            let commands =
                rig.gpu.fenced(&mut rig.channel, &Engine::Graphics.copy(TO, FROM, 0, [0x1000, 64]));
            rig.gpu.submit(&mut rig.channel, &commands);
            sys::set_clock(now + jump)?;
            rig.gpu.card.set(PTIMER_NUMERATOR, random.word());
            rig.gpu.card.set(PTIMER_DENOMINATOR, 0);
            rig.gpu.card.set(PTIMER_TIME, random.word());
            rig.gpu.card.set(PTIMER_ALARM, random.word());
            sys::set_clock(now - jump)?;
            let end = rig.gpu.end(&rig.channel, HONEST);
            ensure!(end == End::Done, "work under jumping clocks ended with {end:?}");
            copies += 1;
        }
    }
    sys::set_clock(now)?;
    // Nobody else's clock: the kernel of this guest is asked whether it is well.
    ensure!(fs::read_to_string("/proc/uptime").is_ok(), "the guest's kernel does not answer");
    Ok(Seen::new(Outcome::Values, format!("{copies} copies while the clocks jumped, all done")))
}
