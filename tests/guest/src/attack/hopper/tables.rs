//! Rows 7, 10 and 13: directories that no walk gets to the end of, and roots of the BARs that are not the guest's.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use gpuvmk_attacks::VICTIM_MARK;

use super::Rig;
use super::driver::words;
use super::gsp;
use super::space::{directory_entry, entry, slot};
use crate::attack::random::Random;
use crate::attack::tool::{End, HERE, TO, Target, Tool};
use crate::attack::{Outcome, Seen, Stage};
use crate::push::split;

/// The longest that the flush of a hostile space may stop the processor that asks for it.
const FLUSH_LIMIT: Duration = Duration::from_secs(3);
/// Levels of directories.
const LEVELS: usize = 5;

/// Row 10: each level names the root, itself, VRAM beyond the partition, and the end of all addresses.
pub fn loops(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage)?;
    let (mut rounds, mut stopped, mut slowest) = (0u64, 0u64, Duration::ZERO);
    while time.goes_on() {
        for level in 0..LEVELS {
            rig.space.table(rig.gpu.memory, HERE)?;
            let itself = rig.space.table_of(level, HERE).unwrap_or(rig.space.root);
            for target in [
                Target::Memory(rig.space.root.physical),
                Target::Memory(itself.physical),
                Target::Vram(rig.gpu.vram - 0x1000),
                Target::Vram(rig.gpu.vram),
                Target::Vram((1 << 52) - 0x1000),
                Target::Memory((1 << 52) - 0x1000),
            ] {
                // The other half of the range is that of the channel's own ring: level 0 has but two entries.
                let va = if level == 0 { 1 << 56 | HERE } else { HERE + (1 << 37) };
                rig.space.table(rig.gpu.memory, va)?;
                rig.space.set_directory(rig.gpu.memory, level, va, directory_entry(target));
                slowest = slowest.max(timed_flush(&rig)?);
                if level > 0 {
                    match rig.copy_page(TO, va) {
                        End::Done => {}
                        End::Lost => return Ok(Seen::new(Outcome::Quarantined, "the vGPU was taken away")),
                        End::Silent => bail!("a copy through {target:x?} neither ended nor failed"),
                        End::Fault(_) | End::Error => {
                            stopped += 1;
                            rig.revive()?;
                        }
                    }
                }
                rig.space.set_directory(rig.gpu.memory, level, va, 0);
                rounds += 1;
            }
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
    rig.gpu.card.reg(super::driver::CHIP);
    let took = start.elapsed();
    ensure!(took < FLUSH_LIMIT, "a flush took {took:?}");
    Ok(took)
}

/// Row 13: a whole directory of directories of tables, all of them the same few, each a page of valid entries.
pub fn flood(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage)?;
    let page = rig.gpu.memory.take(0x1000, 0x1000)?;
    for at in (0..0x1000).step_by(8) {
        rig.gpu.memory.store64(page, at, entry(Target::Memory(rig.from.physical)));
    }
    let dual = rig.gpu.memory.take(0x1000, 0x1000)?;
    for at in (8..0x1000).step_by(16) {
        rig.gpu.memory.store64(dual, at, directory_entry(Target::Memory(page.physical)));
    }
    let (mut named, mut slowest) = (0u64, Duration::ZERO);
    // A gigabyte more at a time: two directories of 512 MiB, of 256 tables each.
    while time.goes_on() && named < 1 << 17 {
        let va = (1 << 40) + named * (2 << 20);
        for half in [va, va + (512 << 20)] {
            rig.space.table(rig.gpu.memory, half)?;
            rig.space.set_directory(rig.gpu.memory, 3, half, directory_entry(Target::Memory(dual.physical)));
        }
        named += 512;
        slowest = slowest.max(timed_flush(&rig)?);
        if rig.is_lost() {
            let text = format!(
                "the vGPU was taken away after {named} tables; slowest flush {} ms",
                slowest.as_millis()
            );
            return Ok(Seen::new(Outcome::Quarantined, text));
        }
    }
    let end = rig.copies_honestly(1);
    let text =
        format!("{named} tables, then a copy ended with {end:?}; slowest flush {} ms", slowest.as_millis());
    Ok(Seen::new(if end == End::Done { Outcome::Limited } else { end.outcome() }, text))
}

/// Row 7: BAR2's root by RPC, BAR1's in VRAM, both onto what is not the guest's.
pub fn bar_roots(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage)?;
    let (mut random, mut looks) = (Random::new(78), 0u64);
    let (vram, card) = (rig.gpu.vram, rig.gpu.card);
    // A whole path of tables for address 0, whose page the attack chooses.
    let table = rig.space.table(rig.gpu.memory, 0)?;
    let first = rig.space.table_of(1, 0).map_or(0, |table| table.physical);
    let mark = u64::from(VICTIM_MARK[0]) | u64::from(VICTIM_MARK[1]) << 32;
    while time.goes_on() {
        let beyond = vram + u64::from(random.word()) * 4096;
        for target in
            [Target::Vram(vram), Target::Vram(beyond), Target::Peer(0), Target::Memory(beyond | 1 << 40)]
        {
            rig.gpu.memory.store64(table, slot(0), entry(target));
            for bar in [0, 1] {
                // The tables; then a directory that is itself beyond the partition. One that names no table turns
                // translation off: then the window shows the partition, as after a reset.
                for root in [directory_entry(Target::Memory(first)), directory_entry(target)] {
                    let [high, low] = split(root);
                    rig.gpu.call(gsp::UPDATE_BAR_PDE, &words(&[bar, 0, low, high, 56, 0]))?;
                    rig.flush();
                    let memory = if bar == 0 { &card.bar1 } else { &card.bar3 };
                    let found = memory.load64(0)?;
                    ensure!(found != mark, "the victim's mark through a BAR at {target:x?}");
                    memory.store64(0x7f8, 0xbad_bad)?;
                    let kept = memory.load64(0x7f8)? == 0xbad_bad;
                    ensure!(!kept || root == 0, "{target:x?} keeps what is written");
                    looks += 1;
                }
            }
        }
    }
    let outcome = if rig.is_lost() { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(outcome, format!("{looks} looks through foreign entries, none showed or kept anything")))
}
