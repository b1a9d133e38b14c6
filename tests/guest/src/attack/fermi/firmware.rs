//! Row 6 and the two attacks that no list has: code and context images of the guest's.

use anyhow::{Result, ensure};

use super::driver::{by_zero, pointer};
use super::regs::*;
use super::{Engine, Rig};
use crate::attack::random::Random;
use crate::attack::tool::{End, HONEST, Target, Tool};
use crate::attack::{Outcome, Seen, Stage, low};
use crate::push::Commands;

/// Words of a falcon's code.
const CODE: u32 = 4096;

/// Row 6.
pub fn falcons(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let mut random = Random::new(6);
    let mut starts = 0u64;
    while time.goes_on() {
        for falcon in [FECS, GPCCS, PPMU] {
            rig.gpu.upload(falcon, (0..CODE / 8).map(|_| random.word()));
            // DMA without translation, from an address beyond the partition; then start.
            for offset in [0x110, 0x114, 0x118, 0x11c, 0x600, 0x604, 0x608, 0x624] {
                rig.gpu.card.set(falcon + offset, random.word());
            }
            rig.gpu.card.set(falcon + FALCON_DMA, 0);
            rig.gpu.card.set(falcon + FALCON_INSTANCE, 0x4000_0000 | random.word() >> 4);
            rig.gpu.card.set(falcon + FALCON_ENTRY, random.word() & 0xffff);
            rig.gpu.card.set(falcon + FALCON_CONTROL, FALCON_START);
            starts += 1;
        }
        for command in 0..16 {
            rig.gpu.card.set(FECS_ARGUMENT, random.word());
            rig.gpu.card.set(FECS_COMMAND, command);
        }
    }
    // Whatever that firmware would be: honest work on the engine is done by the host's.
    let end = rig.copies_honestly(0x600d);
    ensure!(end == End::Done, "an honest copy under foreign firmware ended with {end:?}");
    Ok(Seen::new(Outcome::Values, format!("{starts} falcons started, honest work went on")))
}

/// Copy-engine firmware of the attacker's, then work on that engine.
pub fn copy_engines(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Copy(0))?;
    let mut random = Random::new(66);
    let mut copies = 0u64;
    while time.goes_on() {
        for falcon in [PCE0, PCE1] {
            rig.gpu.upload(falcon, (0..CODE / 8).map(|_| random.word()));
            rig.gpu.card.set(falcon + FALCON_ENTRY, 0);
            rig.gpu.card.set(falcon + FALCON_CONTROL, FALCON_START);
        }
        let end = rig.copies_honestly(random.word());
        ensure!(end == End::Done, "a copy under the attacker's firmware ended with {end:?}");
        copies += 1;
    }
    Ok(Seen::new(Outcome::Values, format!("{copies} copies, all of them by the host's firmware")))
}

/// A graphics context image whose patch list names registers of other units: FECS would write them when it
/// loads the image.
pub fn patch_list(stage: &mut Stage) -> Result<Seen> {
    /// The window, BAR blocks, engine resets, channel table, runlist, MMU: what would change the whole card.
    const NAMED: [(u32, u32); 8] = [
        (PBUS_WINDOW, 0x00ab_cdef),
        (PBUS_BAR1, 0x8000_0001),
        (PBUS_BAR3, 0x8000_0001),
        (PMC_ENABLE, 0),
        (PFIFO_CHAN_INST, 0xc000_0001),
        (PFIFO_RUNLIST_BASE, 0x0000_0001),
        (PFB_INVALIDATE, INVALIDATE_ALL),
        (PFIFO_ENABLE, 0),
    ];
    let time = stage.time;
    let mut rig = Rig::new(stage, Engine::Graphics)?;
    let image = rig.gpu.memory.take(0x1_0000, 0x1000)?;
    let list = rig.gpu.memory.take(0x1000, 0x1000)?;
    let va = 0x5000_0000u64;
    rig.space.map(rig.gpu.memory, va, Target::Memory(image.physical), 0x1_0000)?;
    rig.space.map(rig.gpu.memory, va + 0x1_0000, Target::Memory(list.physical), 0x1000)?;
    rig.gpu.flush(&rig.space);
    for (index, (register, value)) in NAMED.iter().enumerate() {
        rig.gpu.memory.store32(list, index * 8, *register);
        rig.gpu.memory.store32(list, index * 8 + 4, *value);
    }
    let watched = [PBUS_WINDOW, PBUS_BAR1, PBUS_BAR3, PMC_ENABLE, PFIFO_CHAN_INST, PFIFO_ENABLE];
    let look = |rig: &Rig<'_>| watched.map(|register| rig.gpu.card.reg(register));
    let before = look(&rig);
    let mut loads = 0u64;
    let mut lost = false;
    while time.goes_on() && !lost {
        // The list in the same memory as the image: virtual, in guest memory, and at both addresses in VRAM.
        let physical = by_zero(Target::Memory(image.physical));
        for (pointer_word, list_at) in
            [(va | 4, va + 0x1_0000), (physical.1 | physical.0, list.physical), (0x20_0000, 0x20_1000)]
        {
            rig.gpu.memory.store32(image, 0, 8);
            rig.gpu.memory.store32(image, 4, low(list_at >> 8));
            rig.gpu.memory.store64(rig.channel.block, 0x210, pointer_word);
            let block = pointer(Target::Memory(rig.channel.block.physical));
            rig.gpu.card.set(FECS_ARGUMENT, 0x8000_0000 | block);
            rig.gpu.card.set(FECS_COMMAND, 1);
            let end = rig.gpu.run(&mut rig.channel, &Commands::new(), HONEST);
            lost |= end == End::Lost;
            if end != End::Done {
                rig.revive()?;
            }
            loads += 1;
        }
        ensure!(look(&rig) == before, "registers {:x?} instead of {before:x?}", look(&rig));
    }
    let outcome = if lost { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(outcome, format!("{loads} contexts loaded, no named register changed")))
}
