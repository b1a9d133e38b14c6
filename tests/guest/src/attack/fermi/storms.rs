//! Rows 13, 17, 20 to 23 and 40: as much of everything as two processors can make.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::channel::{End, OBJECT};
use super::driver::{CHANNELS, Gpu, Target};
use super::regs::*;
use super::space::{entry, slot};
use super::{Engine, FROM, HONEST, Rig, TO};
use crate::attack::{Outcome, Seen, Stage, Time};
use crate::push::Commands;

/// Lines of an endless copy: each a page, over and over the same.
const ENDLESS: u32 = u32::MAX;
/// Where nothing is mapped.
const NOWHERE: u64 = 0x3f_0000_0000;

/// Has two processors do `act` until the time is over; returns how often it was done.
fn by_two(time: Time, act: impl Fn(u64) + Sync) -> u64 {
    let count = AtomicU64::new(0);
    let work = || {
        while time.goes_on() {
            for _ in 0..64 {
                act(count.fetch_add(1, Ordering::Relaxed));
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    count.into_inner()
}

fn limited(gpu: &Gpu<'_>, text: String) -> Seen {
    if gpu.is_lost() {
        return Seen::new(Outcome::Quarantined, format!("{text}; the vGPU was taken away"));
    }
    Seen::new(Outcome::Limited, text)
}

/// Row 17.
pub fn doorbells(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    for id in 2..16 {
        rig.gpu.channel(&mut rig.space, id, Engine::Graphics)?;
    }
    let gpu = &rig.gpu;
    let channel = |count: u64| u16::try_from(count % u64::from(CHANNELS)).unwrap_or(0);
    let rings = by_two(time, |count| gpu.ring(channel(count), 0));
    Ok(limited(gpu, format!("{rings} doorbells")))
}

/// Row 17.
pub fn registers(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let card = rig.gpu.card;
    let accesses = by_two(time, |count| match count % 4 {
        0 => drop(card.reg(PMC_INTR)),
        1 => card.set(PBUS_WINDOW, 0x10),
        2 => drop(card.reg(PTIMER_TIME)),
        _ => card.set(PRAMIN + 0xff00, 1),
    });
    Ok(limited(&rig.gpu, format!("{accesses} register accesses")))
}

/// Row 13: each flush finds other entries than the last one.
pub fn flushes(stage: &mut Stage) -> Result<Seen> {
    /// Entries that change.
    const PAGES: u64 = 2048;
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let base = 0x30_0000_0000;
    let table = rig.space.table(rig.gpu.memory, base)?;
    let [one, other] = [rig.from, rig.to].map(|piece| entry(Target::Memory(piece.physical)));
    let gpu = &rig.gpu;
    let count = AtomicU64::new(0);
    let work = || {
        let mut round = 0;
        while time.goes_on() {
            round += 1;
            for page in 0..PAGES {
                // Every other page, so that no two changes are one run.
                let raw = if (page + round) % 2 == 0 { one } else { other };
                gpu.memory.store64(table, slot(base + page * 4096), raw);
            }
            gpu.flush(&rig.space);
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    Ok(limited(gpu, format!("{} flushes with up to {PAGES} changed entries", count.into_inner())))
}

/// Row 20.
pub fn endless_copy(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let work = endless(Engine::Graphics);
    let mut stopped = 0u64;
    while time.goes_on() {
        let commands = rig.gpu.fenced(&mut rig.channel, &work);
        rig.gpu.submit(&mut rig.channel, &commands);
        let end = until_over(&rig, time);
        match end {
            End::Silent => {}
            End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
            End::Done => bail!("a copy of 16 TiB was done"),
            _ => stopped += 1,
        }
        let start = Instant::now();
        rig.revive()?;
        ensure!(start.elapsed() < Duration::from_secs(3), "taking it away took {:?}", start.elapsed());
    }
    let end = rig.copies_page(0x20);
    ensure!(end == End::Done, "honest work after it ended with {end:?}");
    let outcome = if stopped > 0 { Outcome::Quarantined } else { Outcome::Limited };
    Ok(Seen::new(outcome, format!("it ran until it was taken away; {stopped} times it was stopped")))
}

/// A copy that never ends.
fn endless(engine: Engine) -> Commands {
    engine.copy(TO, FROM, 0, [0x1000, ENDLESS])
}

fn until_over(rig: &Rig<'_>, time: Time) -> End {
    while time.goes_on() {
        match rig.gpu.end(&rig.channel, Duration::from_millis(100)) {
            End::Silent => {}
            end => return end,
        }
    }
    End::Silent
}

/// Row 21.
pub fn repeated_hangs(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let work = endless(Engine::Graphics);
    let mut hangs = 0u64;
    while time.goes_on() {
        let commands = rig.gpu.fenced(&mut rig.channel, &work);
        rig.gpu.submit(&mut rig.channel, &commands);
        thread::sleep(Duration::from_millis(5));
        // The engine is reset under it, and the channel taken away and made again.
        rig.gpu.card.set(PMC_ENABLE, 1 << 8 | 1 << 7 | 1 << 6);
        rig.gpu.card.set(PMC_ENABLE, 1 << 12 | 1 << 8 | 1 << 7 | 1 << 6);
        rig.revive()?;
        hangs += 1;
    }
    Ok(limited(&rig.gpu, format!("{hangs} hangs")))
}

/// Row 22.
pub fn faults(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let mut faults = 0u64;
    while time.goes_on() {
        match rig.copies(TO, NOWHERE, HONEST) {
            End::Fault(_) => faults += 1,
            End::Lost => return Ok(limited(&rig.gpu, format!("{faults} faults"))),
            end => bail!("a copy from nowhere ended with {end:?}"),
        }
        rig.revive()?;
    }
    Ok(limited(&rig.gpu, format!("{faults} faults")))
}

/// Row 23.
pub fn interrupts(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let card = rig.gpu.card;
    card.set(PMC_INTR_EN, 1);
    card.set(PTIMER_INTR_EN, 1);
    let mut commands = Commands::new();
    for _ in 0..100 {
        commands.methods(OBJECT, 0x20, &[0]);
    }
    let mut rounds = 0u64;
    while time.goes_on() {
        let fenced = rig.gpu.fenced(&mut rig.channel, &commands);
        rig.gpu.submit(&mut rig.channel, &fenced);
        // Alarms in the past and just ahead, none acknowledged; then everything at once, so that the level moves.
        card.set(PTIMER_ALARM, card.reg(PTIMER_TIME).wrapping_add(64));
        card.set(XVE_MSI_REARM, 0xff);
        card.set(PMC_INTR_EN, 0);
        card.set(PMC_INTR_EN, 1);
        card.set(PTIMER_INTR, 1);
        rounds += 1;
        if rounds.is_multiple_of(32) {
            let end = rig.gpu.end(&rig.channel, HONEST);
            ensure!(end == End::Done, "a channel that only notifies ended with {end:?}");
        }
    }
    Ok(limited(&rig.gpu, format!("{} notifications and {rounds} alarms", rounds * 100)))
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
            let end = rig.copies(TO, NOWHERE, HONEST);
            rig.revive()?;
            ensure!(matches!(end, End::Fault(_) | End::Lost), "a copy from nowhere ended with {end:?}");
        }
    }
    Ok(limited(&rig.gpu, format!("{} refused requests", rounds * 130)))
}
