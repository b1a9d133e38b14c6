//! Rows 17, 21, 23, 30 and 40, as a GF100 has them.

use anyhow::{Result, ensure};

use super::driver::{CHANNELS, Gpu};
use super::regs::*;
use super::space::Space;
use super::{Engine, Rig};
use crate::attack::random::Random;
use crate::attack::tool::{End, NOWHERE, TO, Target, Tool};
use crate::attack::work::{by_two, hangs, limited, notifications};
use crate::attack::{Outcome, Seen, Stage};

/// Row 17.
pub fn doorbells(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    for id in 2..16 {
        rig.gpu.channel(&mut rig.space, id, Engine::Graphics)?;
    }
    let gpu = &rig.gpu;
    let channel = |count: u64| u16::try_from(count % u64::from(CHANNELS)).unwrap_or(0);
    let rings = by_two(time, 64, |count| gpu.ring(channel(count), 0));
    Ok(limited(&rig, format!("{rings} doorbells")))
}

/// Row 17.
pub fn registers(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let card = rig.gpu.card;
    let accesses = by_two(time, 64, |count| match count % 4 {
        0 => drop(card.reg(PMC_INTR)),
        1 => card.set(PBUS_WINDOW, 0x10),
        2 => drop(card.reg(PTIMER_TIME)),
        _ => card.set(PRAMIN + 0xff00, 1),
    });
    Ok(limited(&rig, format!("{accesses} register accesses")))
}

/// Row 21: the engine is reset under its work.
pub fn repeated_hangs(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    hangs(&mut rig, time, |tool| {
        tool.card().set(PMC_ENABLE, 1 << 8 | 1 << 7 | 1 << 6);
        tool.card().set(PMC_ENABLE, 1 << 12 | 1 << 8 | 1 << 7 | 1 << 6);
    })
}

/// Row 23.
pub fn interrupts(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    rig.gpu.card.set(PMC_INTR_EN, 1);
    rig.gpu.card.set(PTIMER_INTR_EN, 1);
    notifications(&mut rig, time, |tool| {
        let card = tool.card();
        // Alarms in the past and just ahead, none acknowledged; then everything at once, so that the level
        // moves.
        card.set(PTIMER_ALARM, card.reg(PTIMER_TIME).wrapping_add(64));
        card.set(XVE_MSI_REARM, 0xff);
        card.set(PMC_INTR_EN, 0);
        card.set(PMC_INTR_EN, 1);
        card.set(PTIMER_INTR, 1);
    })
}

/// Row 30: resets at any point of bring-up.
pub fn resets(stage: &mut Stage) -> Result<Seen> {
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

/// Row 40: everything that might be worth a line in somebody's log.
pub fn logs(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let (vram, mut rounds) = (rig.gpu.vram, 0u64);
    while time.goes_on() {
        for id in 2..CHANNELS {
            rig.gpu.bind(id, Target::Vram(vram + u64::from(id) * 0x1000));
            rig.gpu.start(id);
            rig.gpu.unbind(id);
        }
        rig.gpu.commit_at(Target::Peer(0), 0xffff);
        rig.gpu.flush_directory(Target::Vram((1 << 40) - 0x1000));
        rig.gpu.card.set(PBUS_BAR1, 0xbfff_ffff);
        rig.gpu.card.bar1.load32(0x10_0000)?;
        rig.gpu.card.set(0x00_0c0c, 0xbad);
        rig.gpu.card.set(PROM, 0xbad);
        rounds += 1;
        if rounds.is_multiple_of(8) {
            // BAR1 must show the channel's USERD again before it can fault.
            rig.gpu.bind_windows();
            let end = rig.copy_page(TO, NOWHERE);
            ensure!(matches!(end, End::Fault(_) | End::Lost), "a copy from nowhere ended with {end:?}");
            if end == End::Lost {
                break;
            }
            rig.revive()?;
        }
    }
    Ok(limited(&rig, format!("{} refused requests", rounds * 130)))
}
