//! Rows 7 and 25: memory as the processor and the copy engine see it.

use anyhow::{Result, ensure};
use gpuvmk_attacks::VICTIM_MARK;

use super::channel::End;
use super::driver::{Target, pointer};
use super::regs::*;
use super::space::Space;
use super::{Engine, FROM, HONEST, Rig};
use crate::attack::random::Random;
use crate::attack::{Outcome, Seen, Stage, low, place};
use crate::dma_memory::{DmaMemory, Piece};

/// Bytes of VRAM that are searched at a time.
const PIECE: u64 = 1 << 20;

/// Row 7: the window anywhere but in the partition.
pub fn pramin(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let (card, mut random) = (rig.gpu.card, Random::new(7));
    let end = low(rig.gpu.vram >> 16);
    let (mut looks, mut values) = (0u64, std::collections::BTreeSet::new());
    while time.goes_on() {
        let beyond = end + random.below(0x00ff_ffff - end);
        // VRAM just behind the partition and anywhere beyond, a peer, memory above all RAM.
        for window in
            [end, end + 0x10, beyond, 0x00ff_ffff, 1 << 24 | end, 2 << 24 | 0x00f0_0000, 3 << 24 | beyond]
        {
            card.set(PBUS_WINDOW, window);
            let places = [0, 4, 0xf_fff8, random.below(0x3_fffe) * 4];
            for place in places {
                let found = [card.reg(PRAMIN + place), card.reg(PRAMIN + place + 4)];
                ensure!(found != VICTIM_MARK, "the victim's mark at {place:#x} of window {window:#x}");
                values.insert(found[0]);
                card.set(PRAMIN + place, 0xbad_bad);
                let after = card.reg(PRAMIN + place);
                ensure!(after != 0xbad_bad, "window {window:#x} keeps what is written");
                looks += 1;
            }
        }
    }
    let shown: Vec<String> = values.iter().take(4).map(|value| format!("{value:#x}")).collect();
    Ok(Seen::new(
        Outcome::Values,
        format!("{looks} looks beyond the partition, all read {}", shown.join(" or ")),
    ))
}

/// Row 7: tables of BAR1 and BAR3 that name what is not the guest's.
pub fn tables(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let mut random = Random::new(77);
    let block = rig.gpu.memory.take(0x1000, 0x1000)?;
    let mut space = Space::new(rig.gpu.memory)?;
    let (vram, card) = (rig.gpu.vram, rig.gpu.card);
    let mut looks = 0u64;
    while time.goes_on() {
        let beyond = vram + u64::from(random.word()) * 4096 % ((1 << 40) - vram);
        for target in
            [Target::Vram(vram), Target::Vram(beyond), Target::Peer(0), Target::Memory(beyond | 1 << 36)]
        {
            space.map(rig.gpu.memory, 0, target, 0x1000)?;
            space.write_into(rig.gpu.memory, block);
            let value = 1 << 31 | pointer(Target::Memory(block.physical));
            for (register, bar) in [(PBUS_BAR1, &card.bar1), (PBUS_BAR3, &card.bar3)] {
                card.set(register, value);
                rig.gpu.flush(&space);
                for place in [0, 0x7f8, 0xff8] {
                    let found = bar.load64(place)?;
                    let mark = u64::from(VICTIM_MARK[0]) | u64::from(VICTIM_MARK[1]) << 32;
                    ensure!(found != mark, "the victim's mark through a BAR at {target:x?}");
                    bar.store64(place, 0xbad_bad)?;
                    ensure!(bar.load64(place)? != 0xbad_bad, "{target:x?} keeps what is written");
                    looks += 1;
                }
            }
        }
        rig.gpu.acknowledge();
    }
    let outcome = if rig.gpu.is_lost() { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(outcome, format!("{looks} looks through foreign entries, none showed or kept anything")))
}

/// Row 25: all VRAM by the copy engine, into memory, where the victim's mark is looked for.
pub fn residue(stage: &mut Stage) -> Result<Seen> {
    let mut rig = Rig::new(stage, Engine::Copy(0))?;
    let buffer = rig.gpu.memory.take(place(PIECE), 0x1000)?;
    let va = 0x6000_0000u64;
    rig.space.map(rig.gpu.memory, va, Target::Memory(buffer.physical), PIECE)?;
    let (mut marks, mut used, mut at) = (0u64, 0u64, 0);
    while at < rig.gpu.vram {
        rig.space.map(rig.gpu.memory, FROM, Target::Vram(at), PIECE)?;
        rig.gpu.flush(&rig.space);
        let work = Engine::Copy(0).copy(va, FROM, 0x1000, [0x1000, low(PIECE >> 12)]);
        let end = rig.gpu.run(&mut rig.channel, &work, HONEST);
        ensure!(end == End::Done, "copying the attacker's own VRAM ended with {end:?}");
        let (found, not_zero) = search(rig.gpu.memory, buffer);
        marks += found;
        used += not_zero;
        at += PIECE;
    }
    ensure!(marks == 0, "{marks} marks of the victim in the attacker's VRAM");
    let text = format!("{} MiB searched, 0 marks of the victim, {used} words not zero", rig.gpu.vram >> 20);
    Ok(Seen::new(Outcome::Values, text))
}

/// How often the victim's mark is in `piece`, and how many words are not zero.
fn search(memory: &DmaMemory, piece: Piece) -> (u64, u64) {
    let (mut marks, mut used, mut last) = (0, 0, 0);
    for at in (0..piece.size).step_by(4) {
        let word = memory.load32(piece, at);
        marks += u64::from([last, word] == VICTIM_MARK);
        used += u64::from(word != 0);
        last = word;
    }
    (marks, used)
}
