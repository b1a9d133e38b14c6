//! Rows 7, 10 and 13: directories that no walk gets to the end of, and roots of the BARs that are not the
//! guest's.

use anyhow::{Result, ensure};
use gpuvmk_attacks::VICTIM_MARK;

use super::Rig;
use super::driver::words;
use super::rpc;
use super::space::slot;
use crate::attack::random::Random;
use crate::attack::registers::OwnMemory;
use crate::attack::tool::{End, HERE, Target, Tool};
use crate::attack::walks::{self, Walks};
use crate::attack::{Outcome, Seen, Stage};
use crate::push::split;

/// Row 10: each level names the root, itself, VRAM beyond the partition, and the end of all addresses.
pub fn loops(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let (mut walks, format) = (Walks::default(), rig.space.format);
    while time.goes_on() {
        for level in 0..format.directories().len() {
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
                // Not in the channel's own part of the range: level 0 has but two or four entries.
                let va = if level == 0 { 1 << format.root_shift() | HERE } else { HERE + (1 << 37) };
                rig.space.table(rig.gpu.memory, va)?;
                rig.space.set_directory(rig.gpu.memory, level, va, format.directory_entry(target));
                walks.flush(&rig)?;
                let end = if level > 0 { walks.copy(&mut rig, va, target)? } else { End::Done };
                if end == End::Lost {
                    return Ok(walks::lost());
                }
                if end.stopped() {
                    rig.revive()?;
                }
                rig.space.set_directory(rig.gpu.memory, level, va, 0);
                walks.tried();
            }
        }
    }
    walks.seen()
}

/// Row 13: a whole directory of directories of tables, all of them the same few, each a page of valid
/// entries.
pub fn flood(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let format = rig.space.format;
    let page = rig.gpu.memory.take(0x1000, 0x1000)?;
    for at in (0..0x1000).step_by(8) {
        rig.gpu.memory.store64(page, at, format.entry(Target::Memory(rig.from.physical)));
    }
    let dual = rig.gpu.memory.take(0x1000, 0x1000)?;
    for at in (8..0x1000).step_by(16) {
        rig.gpu.memory.store64(dual, at, format.directory_entry(Target::Memory(page.physical)));
    }
    let (mut walks, mut named) = (Walks::default(), 0u64);
    // The level above dual entries.
    let level = format.directories().len() - 2;
    // A gigabyte more at a time: two directories of 512 MiB, of 256 tables each.
    while time.goes_on() && named < 1 << 17 {
        let va = (1 << 40) + named * (2 << 20);
        for half in [va, va + (512 << 20)] {
            rig.space.table(rig.gpu.memory, half)?;
            let named = format.directory_entry(Target::Memory(dual.physical));
            rig.space.set_directory(rig.gpu.memory, level, half, named);
        }
        named += 512;
        walks.flush(&rig)?;
        if rig.is_lost() {
            break;
        }
    }
    Ok(walks.flooded(&mut rig, named))
}

/// Row 7: BAR2's root by RPC, BAR1's in VRAM, both onto what is not the guest's.
pub fn bar_roots(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    let (mut random, mut looks) = (Random::new(78), 0u32);
    let mut own: [OwnMemory; 2] = Default::default();
    let (vram, card, format) = (rig.gpu.vram, rig.gpu.card, rig.space.format);
    // A whole path of tables for address 0, whose page the attack chooses.
    let table = rig.space.table(rig.gpu.memory, 0)?;
    let first = rig.space.table_of(1, 0).map_or(0, |table| table.physical);
    let mark = u64::from(VICTIM_MARK[0]) | u64::from(VICTIM_MARK[1]) << 32;
    while time.goes_on() {
        // An entry has no room for more.
        let beyond = vram + u64::from(random.word()) * 4096 % ((1 << format.vram_bits()) - vram);
        for target in
            [Target::Vram(vram), Target::Vram(beyond), Target::Peer(0), Target::Memory(beyond | 1 << 40)]
        {
            rig.gpu.memory.store64(table, slot(0), format.entry(target));
            for bar in [0, 1] {
                // The tables; then a directory that is itself beyond the partition. One that names no table
                // turns translation off: then the window shows the partition, as after a reset.
                for root in [Target::Memory(first), target].map(|target| format.directory_entry(target)) {
                    let [high, low] = split(root);
                    rig.gpu
                        .call(rpc::UPDATE_BAR_PDE, &words(&[bar, 0, low, high, format.root_shift(), 0]))?;
                    rig.flush();
                    let memory = if bar == 0 { &card.bar1 } else { &card.bar3 };
                    let found = memory.load64(0)?;
                    ensure!(found != mark, "the victim's mark through a BAR at {target:x?}");
                    looks += 1;
                    let own = &mut own[usize::from(bar == 1)];
                    let found = memory.load64(0x7f8)?;
                    if root == 0 {
                        own.forget();
                        continue;
                    }
                    own.expect(0x7f8, found, &format_args!("at {target:x?}"))?;
                    let stored = 0xbad << 32 | u64::from(looks);
                    memory.store64(0x7f8, stored)?;
                    own.stored(0x7f8, stored, memory.load64(0x7f8)?);
                }
            }
        }
    }
    let outcome = if rig.is_lost() { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(outcome, format!("{looks} looks through foreign entries, none showed or kept anything")))
}
