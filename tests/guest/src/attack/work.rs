//! Rows 13, 17, 20 to 22, 29 and 39: work that never ends, that fails, that is taken away, and as much of it
//! as two processors can make.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};

use super::random::Random;
use super::tool::{End, FROM, HONEST, Lines, NOWHERE, TO, Target, Tool};
use super::{Outcome, Seen, Time};
use crate::sys;

/// Has two processors do `act` until the time is over; returns how often it was done.
pub fn by_two(time: Time, batch: u64, act: impl Fn(u64) + Sync) -> u64 {
    let count = AtomicU64::new(0);
    let work = || {
        // Once, however late it is: an attack that tried nothing would pass.
        loop {
            for _ in 0..batch {
                act(count.fetch_add(1, Ordering::Relaxed));
            }
            if !time.goes_on() {
                break;
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    count.into_inner()
}

/// What came of something that went on until the time was over.
pub fn limited(tool: &dyn Tool, text: String) -> Seen {
    if tool.is_lost() {
        return Seen::new(Outcome::Quarantined, format!("{text}; the vGPU was taken away"));
    }
    Seen::new(Outcome::Limited, text)
}

/// Row 13: each flush finds other entries than the last one.
pub fn flushes(tool: &mut dyn Tool, time: Time) -> Result<Seen> {
    /// Entries that change.
    const PAGES: u64 = 512;
    const BASE: u64 = 0x30_0000_0000;
    let [one, other] = tool.pages().map(|piece| tool.entry(Target::Memory(piece.physical)));
    let places = (0..PAGES).map(|page| tool.place(BASE + page * 4096)).collect::<Result<Vec<_>>>()?;
    let tool = &*tool;
    let count = by_two(time, 1, |round| {
        for (page, (table, at)) in (0..).zip(&places) {
            // Every other page, so that no two changes are one run.
            let raw = if (page + round) % 2 == 0 { one } else { other };
            tool.memory().store64(*table, *at, raw);
        }
        tool.flush();
    });
    Ok(limited(tool, format!("{count} flushes with up to {PAGES} changed entries")))
}

/// Row 20.
pub fn endless_copy(tool: &mut dyn Tool, time: Time) -> Result<Seen> {
    let mut stopped = 0u64;
    while time.goes_on() {
        tool.begin_endless();
        let mut end = End::Silent;
        while time.goes_on() && end == End::Silent {
            end = tool.end(Duration::from_millis(100));
        }
        match end {
            End::Silent => {}
            End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
            End::Done => bail!("a copy of 16 TiB was done"),
            End::Fault(_) | End::Error => stopped += 1,
        }
        let start = Instant::now();
        tool.revive()?;
        ensure!(start.elapsed() < Duration::from_secs(3), "taking it away took {:?}", start.elapsed());
    }
    let end = tool.copies_honestly(0x20);
    ensure!(end == End::Done, "honest work after it ended with {end:?}");
    let outcome = if stopped > 0 { Outcome::Quarantined } else { Outcome::Limited };
    Ok(Seen::new(outcome, format!("it ran until it was taken away; {stopped} times it was stopped")))
}

/// Row 21: `meanwhile` is done while the engine hangs.
pub fn hangs(tool: &mut dyn Tool, time: Time, meanwhile: impl Fn(&dyn Tool)) -> Result<Seen> {
    let mut hangs = 0u64;
    while time.goes_on() {
        tool.begin_endless();
        thread::sleep(Duration::from_millis(5));
        meanwhile(tool);
        if tool.is_lost() {
            break;
        }
        tool.revive()?;
        hangs += 1;
    }
    Ok(limited(tool, format!("{hangs} hangs")))
}

/// Row 22.
pub fn faults(tool: &mut dyn Tool, time: Time) -> Result<Seen> {
    let mut faults = 0u64;
    while time.goes_on() {
        match tool.copy_page(TO, NOWHERE) {
            End::Fault(_) => faults += 1,
            End::Lost => break,
            end => bail!("a copy from nowhere ended with {end:?}"),
        }
        tool.revive()?;
    }
    Ok(limited(tool, format!("{faults} faults")))
}

/// Row 23: `meanwhile` sees to it that every notification interrupts.
pub fn notifications(tool: &mut dyn Tool, time: Time, meanwhile: impl Fn(&dyn Tool)) -> Result<Seen> {
    let mut rounds = 0u64;
    while time.goes_on() {
        let end = tool.notify();
        meanwhile(tool);
        match end {
            End::Done | End::Silent => rounds += 1,
            End::Lost => break,
            end => bail!("a channel that only notifies ended with {end:?}"),
        }
    }
    Ok(limited(tool, format!("{} notifications", rounds * 50)))
}

/// Row 29: when the function's reset is over, nothing of what it did may land in memory any more. `tool`
/// makes a fresh one; `way` is what happens to the function, by turns.
pub fn reset_under_way<T: Tool>(mut tool: T, way: u64) -> Result<()> {
    /// How long memory is watched after a reset.
    const WATCHED: Duration = Duration::from_millis(60);
    const WRITTEN: u32 = 0x0ddd_a7a0;
    const CLEAN: u32 = 0xc1ea_0000;
    let [from, to] = tool.pages();
    tool.memory().fill(from, WRITTEN);
    tool.memory().fill(to, 0);
    tool.begin_endless();
    let start = Instant::now();
    while tool.memory().load32(to, 0x800) != WRITTEN {
        ensure!(start.elapsed() < HONEST, "the copy never began");
        thread::sleep(Duration::from_millis(1));
    }
    let what = match way % 3 {
        0 => "a function reset",
        1 => {
            tool.card().sleep_and_wake()?;
            "D3 and a function reset"
        }
        _ => {
            tool.card().set_bus_master(false)?;
            "bus mastering off and a function reset"
        }
    };
    tool.card().reset()?;
    tool.memory().fill(to, CLEAN);
    thread::sleep(WATCHED);
    let dirty = (0..0x1000).step_by(4).any(|at| tool.memory().load32(to, at) != CLEAN);
    ensure!(!dirty, "memory was written after {what}");
    Ok(())
}

/// Row 39: `set_timer` writes the GPU's own timer.
pub fn clock_jumps(
    tool: &mut dyn Tool,
    time: Time,
    set_timer: impl Fn(&dyn Tool, &mut Random),
) -> Result<Seen> {
    /// An hour, a day, a year.
    const JUMPS: [i64; 3] = [3600, 86_400, 31_536_000];
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock stands before 1970")?;
    let now = i64::try_from(now.as_secs())?;
    let (mut copies, mut random) = (0u64, Random::new(39));
    while time.goes_on() {
        for jump in JUMPS {
            sys::set_clock(now + jump)?;
            set_timer(tool, &mut random);
            let end = tool.copy(TO, FROM, Lines { count: 64, pitch: 0 }, HONEST);
            sys::set_clock(now - jump)?;
            ensure!(end == End::Done, "work under jumping clocks ended with {end:?}");
            copies += 1;
        }
    }
    sys::set_clock(now)?;
    Ok(Seen::new(Outcome::Values, format!("{copies} copies while the clocks jumped, all done")))
}
