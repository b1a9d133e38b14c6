//! Row 7: windows onto memory.

use anyhow::{Result, ensure};
use gpuvmk_attacks::VICTIM_MARK;

use super::driver::pointer;
use super::regs::*;
use super::space::Space;
use super::{Engine, Rig};
use crate::attack::random::Random;
use crate::attack::tool::Target;
use crate::attack::{Outcome, Seen, Stage, low, registers};

/// The window anywhere but in the partition.
pub fn pramin(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let end = low(rig.gpu.vram >> 16);
    registers::window(rig.gpu.card, time, (PBUS_WINDOW, PRAMIN), |random| {
        let beyond = end + random.below(0x00ff_ffff - end);
        // VRAM just behind the partition and anywhere beyond, a peer, memory above all RAM.
        vec![end, end + 0x10, beyond, 0x00ff_ffff, 1 << 24 | end, 2 << 24 | 0x00f0_0000, 3 << 24 | beyond]
    })
}

/// Tables of BAR1 and BAR3 that name what is not the guest's.
pub fn tables(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let mut random = Random::new(77);
    let block = rig.gpu.memory.take(0x1000, 0x1000)?;
    let mut space = Space::new(rig.gpu.memory)?;
    let (vram, card) = (rig.gpu.vram, rig.gpu.card);
    let mut looks = 0u32;
    let mut own: [registers::OwnMemory; 2] = Default::default();
    while time.goes_on() {
        let beyond = vram + u64::from(random.word()) * 4096 % ((1 << 40) - vram);
        for target in
            [Target::Vram(vram), Target::Vram(beyond), Target::Peer(0), Target::Memory(beyond | 1 << 36)]
        {
            space.map(rig.gpu.memory, 0, target, 0x1000)?;
            space.write_into(rig.gpu.memory, block);
            let value = 1 << 31 | pointer(Target::Memory(block.physical));
            for ((register, bar), own) in
                [(PBUS_BAR1, &card.bar1), (PBUS_BAR3, &card.bar3)].iter().zip(&mut own)
            {
                card.set(*register, value);
                rig.gpu.flush(&space);
                for place in [0, 0x7f8, 0xff8] {
                    let found = bar.load64(place)?;
                    let mark = u64::from(VICTIM_MARK[0]) | u64::from(VICTIM_MARK[1]) << 32;
                    ensure!(found != mark, "the victim's mark through a BAR at {target:x?}");
                    own.expect(place as u64, found, &format_args!("at {target:x?}"))?;
                    looks += 1;
                    let stored = 0xbad << 32 | u64::from(looks);
                    bar.store64(place, stored)?;
                    own.stored(place as u64, stored, bar.load64(place)?);
                }
            }
        }
        rig.gpu.acknowledge();
    }
    let outcome = if rig.gpu.is_lost() { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(outcome, format!("{looks} looks through foreign entries, none showed or kept anything")))
}
