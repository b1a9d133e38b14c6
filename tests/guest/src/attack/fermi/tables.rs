//! Rows 10 and 13: directories that no walk gets to the end of.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use super::regs::PFB_MMU_CTRL;
use super::space::{COVERED, DIRECTORY, TABLE, entry, small_table};
use super::{Engine, Rig};
use crate::attack::tool::{End, HERE, TO, Target, Tool};
use crate::attack::{Outcome, Seen, Stage, place};

/// The longest that the flush of a hostile space may stop the processor that asks for it.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);

/// Row 10.
pub fn loops(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let (mut rounds, mut stopped, mut slowest) = (0u64, 0u64, Duration::ZERO);
    while time.goes_on() {
        let directory = rig.space.directory.physical;
        let own = rig.space.table(rig.gpu.memory, TO)?.physical;
        // What a directory entry at HERE may say: the directory as a table, by small and by large pages; a table as the
        // directory's table; VRAM beyond the partition; a table that begins at the end of memory.
        let large = |target: u64, address: u64| target | address >> 8 & 0xffff_fff0;
        let entries = [
            small_table(Target::Memory(directory)),
            large(3, directory),
            large(2, own) | small_table(Target::Memory(directory)),
            small_table(Target::Vram(rig.gpu.vram - 0x1000)),
            small_table(Target::Vram(rig.gpu.vram)),
            small_table(Target::Memory((1 << 40) - 0x1000)),
            u64::MAX,
        ];
        for raw in entries {
            rig.space.set_directory(rig.gpu.memory, HERE / COVERED, raw);
            slowest = slowest.max(timed_flush(&rig)?);
            match rig.copy_page(TO, HERE) {
                End::Done => {}
                End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
                End::Silent => bail!("a copy through {raw:#x} neither ended nor failed"),
                End::Fault(_) | End::Error => {
                    stopped += 1;
                    rig.space.set_directory(rig.gpu.memory, HERE / COVERED, 0);
                    rig.revive()?;
                }
            }
            rounds += 1;
        }
    }
    ensure!(stopped > 0, "none of {rounds} hostile directories stopped the channel");
    let text = format!(
        "{rounds} directories, {stopped} stopped the channel; slowest flush {} ms",
        slowest.as_millis()
    );
    Ok(Seen::new(Outcome::Quarantined, text))
}

fn timed_flush(rig: &Rig<'_>) -> Result<Duration> {
    let start = Instant::now();
    rig.flush();
    // A read comes back when what was written before has taken effect.
    rig.gpu.card.reg(PFB_MMU_CTRL);
    let took = start.elapsed();
    ensure!(took < FLUSH_LIMIT, "a flush took {took:?}");
    Ok(took)
}

/// Row 13: the whole address range, by as many tables as there is memory for, each named over and over.
pub fn flood(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let mut tables = Vec::new();
    for _ in 0..32 {
        let table = rig.gpu.memory.take(TABLE, 0x1000)?;
        for at in (0..TABLE).step_by(8) {
            rig.gpu.memory.store64(table, at, entry(Target::Memory(rig.from.physical)));
        }
        tables.push(small_table(Target::Memory(table.physical)));
    }
    let (mut named, mut slowest) = (0u64, Duration::ZERO);
    for index in (HERE / COVERED..DIRECTORY as u64 / 8).step_by(256) {
        for entry in index..index + 256 {
            let table = tables.get(place(entry % 32)).copied().unwrap_or(0);
            rig.space.set_directory(rig.gpu.memory, entry, table);
        }
        named += 256;
        slowest = slowest.max(timed_flush(&rig)?);
        if rig.is_lost() {
            let text = format!(
                "the vGPU was taken away after {named} tables; slowest flush {} ms",
                slowest.as_millis()
            );
            return Ok(Seen::new(Outcome::Quarantined, text));
        }
        if !time.goes_on() {
            break;
        }
    }
    let end = rig.copies_honestly(1);
    let text =
        format!("{named} tables, then a copy ended with {end:?}; slowest flush {} ms", slowest.as_millis());
    Ok(Seen::new(if end == End::Done { Outcome::Limited } else { end.outcome() }, text))
}
