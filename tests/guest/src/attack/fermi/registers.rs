//! Rows 1 to 5 and 26 to 28: what registers let a guest see and change.

use anyhow::{Result, ensure};

use super::regs::*;
use super::{Engine, Rig};
use crate::attack::random::Random;
use crate::attack::{Outcome, Seen, Stage, low};

/// Registers that hold sway over the whole card: unit resets, bus, ring stations, memory controller, clocks, voltage,
/// thermal, fan, power gating, PMU.
const PRIVILEGED: [u32; 32] = [
    PMC_ENABLE,
    PMC_ENABLE_PBDMA,
    0x260,
    0x640,
    0x1140,
    0x154c,
    0x1a00,
    0x2_0000,
    0x2_0060,
    0x2_0100,
    0x2_0200,
    0x2_0340,
    0x2_0400,
    0xe100,
    0xe104,
    0xe720,
    0xe724,
    0x10_0800,
    0x10_0c80,
    0x10_f200,
    0x10_f20c,
    0x11_0200,
    0x12_1c4c,
    0x12_8280,
    0x13_2000,
    0x13_7000,
    0x13_7100,
    0x13_7160,
    0x10_a100,
    0x10_a500,
    0x17_e8d0,
    0x1_0000,
];
/// Display, VGA, I2C and GPIO lines, audio.
const OUTPUTS: [u32; 16] = [
    0x60_13c0, 0x60_13d4, 0x60_13da, 0x61_0010, 0x61_0018, 0x61_0030, 0x61_9f04, 0x61_a004, 0x61_c000,
    0x62_0000, 0xd000, 0xd010, 0xe050, 0xe06c, 0xe104, 0x8a000,
];
/// Peers: mappings of other cards, remaps of BARs, direct memory access between functions.
const PEERS: [u32; 12] = [
    0x1710, 0x1718, 0x171c, 0x1720, 0x8_8024, 0x8_8028, 0x10_0c10, 0x10_0c14, 0x13_e000, 0x13_e004,
    0x13_f000, 0x9_0000,
];

/// Row 1.
pub fn widths(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let card = rig.gpu.card;
    let whole = card.reg(PMC_BOOT_0);
    let mut accesses = 0u64;
    while time.goes_on() {
        let bytes = [0, 1, 2, 3].map(|at| card.bar0.load8(at).unwrap_or(0));
        ensure!(
            u32::from_le_bytes(bytes) == whole,
            "bytes of a register are {bytes:x?}, the word is {whole:x}"
        );
        let halves = [0, 2].map(|at| card.bar0.load16(at).map_or(0, u32::from));
        ensure!(halves[0] | halves[1] << 16 == whole, "halves of a register are {halves:x?}");
        ensure!(low(card.bar0.load64(0)?) == whole, "8 bytes from a register begin otherwise");
        for bar in [&card.bar0, &card.bar1, &card.bar3] {
            let end = bar.size();
            for place in [0x1701, 0x2271, 0x3003, 0x9401, 0x7f_fffd, end - 8, end - 9, end - 15] {
                bar.load64(place)?;
                bar.load32(place)?;
                bar.load16(place)?;
                bar.store8(place, 0xa5)?;
                bar.store16(place, 0xa5a5)?;
                bar.store64(place, 0x5a5a_a5a5_5a5a_a5a5)?;
                accesses += 6;
            }
            bar.load8(end - 1)?;
            bar.store8(end - 1, 0xff)?;
        }
    }
    Ok(Seen::new(Outcome::Values, format!("{accesses} odd accesses, words and their parts agree")))
}

/// Row 2.
pub fn fuzz(stage: &mut Stage) -> Result<Seen> {
    /// Where handlers are: half of the accesses go there.
    const HOT: [(u32, u32); 10] = [
        (0x0, 0x1000),
        (0x1000, 0x1000),
        (0x2000, 0x1400),
        (0x9000, 0x500),
        (0x4_0000, 0x6000),
        (0x8_8000, 0x1000),
        (0x10_0000, 0x1000),
        (0x10_4000, 0x2000),
        (0x40_0000, 0x1_b000),
        (0x70_0000, 0x10_0000),
    ];
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let (card, mut random) = (rig.gpu.card, Random::new(2));
    let (mut reads, mut writes) = (0u64, 0u64);
    while time.goes_on() {
        let (start, size) = if random.below(2) == 0 {
            HOT.get(random.below(10) as usize).copied().unwrap_or((0, 0x1000))
        } else {
            (0, 16 << 20)
        };
        let place = start + random.below(size / 4) * 4;
        if random.below(3) == 0 {
            card.reg(place);
            reads += 1;
        } else {
            card.set(place, random.word() >> random.below(32));
            writes += 1;
        }
    }
    let outcome = if rig.gpu.is_lost() { Outcome::Quarantined } else { Outcome::Values };
    Ok(Seen::new(outcome, format!("{reads} reads and {writes} writes")))
}

/// Row 3.
pub fn privileged(stage: &mut Stage) -> Result<Seen> {
    overwrite(stage, &PRIVILEGED)
}

/// Row 27.
pub fn display(stage: &mut Stage) -> Result<Seen> {
    overwrite(stage, &OUTPUTS)
}

/// Row 28.
pub fn peer(stage: &mut Stage) -> Result<Seen> {
    overwrite(stage, &PEERS)
}

/// Writes ones, zeros and random words; the identification must read on.
fn overwrite(stage: &mut Stage, registers: &[u32]) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let (card, mut random) = (rig.gpu.card, Random::new(3));
    let whole = card.reg(PMC_BOOT_0);
    let (mut writes, mut kept) = (0u64, 0u64);
    while time.goes_on() {
        for register in registers {
            for value in [u32::MAX, 0, random.word()] {
                card.set(*register, value);
                writes += 1;
                kept += u64::from(card.reg(*register) == value);
            }
        }
        ensure!(card.reg(PMC_BOOT_0) == whole, "the GPU does not answer any more");
    }
    Ok(Seen::new(Outcome::Values, format!("{writes} writes, {kept} of them read back")))
}

/// Row 4.
pub fn rom(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let card = rig.gpu.card;
    let places: Vec<u32> =
        (0..64).map(|word| PROM + word * 4).chain((0..64).map(|word| 0x2_1100 + word * 4)).collect();
    let look = || places.iter().map(|place| card.reg(*place)).collect::<Vec<u32>>();
    let before = look();
    ensure!(before.first().is_some_and(|word| word & 0xffff == 0xaa55), "the VBIOS window shows no VBIOS");
    let mut writes = 0u64;
    while time.goes_on() {
        for place in &places {
            card.set(*place, !before.first().copied().unwrap_or(0));
            writes += 1;
        }
        ensure!(look() == before, "the VBIOS or a fuse changed");
    }
    Ok(Seen::new(Outcome::Values, format!("{writes} writes, nothing changed")))
}

/// Row 5.
pub fn mirror(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let card = rig.gpu.card;
    let mut rounds = 0u64;
    let before: Vec<u32> = (0..16).map(|word| card.reg(XVE + word * 4)).collect();
    while time.goes_on() {
        for word in 0..0x200 {
            card.set(XVE + word * 4, 0xffff_ffff);
        }
        let identity = [0, 2, 11].map(|word: u32| card.reg(XVE + word * 4));
        for (word, value) in (0..).zip(&before) {
            card.set(XVE + word * 4, *value);
        }
        let kept = [0usize, 2, 11].map(|word| before.get(word).copied().unwrap_or(0));
        ensure!(identity == kept, "identity {identity:x?} instead of {kept:x?}");
        rounds += 1;
    }
    Ok(Seen::new(Outcome::Values, format!("{rounds} times all of it overwritten, identity unchanged")))
}

/// Row 26: with no work of its own, the attacker must see nothing move.
pub fn counters(stage: &mut Stage) -> Result<Seen> {
    let time = stage.time;
    let rig = Rig::new(stage, Engine::Graphics)?;
    let card = rig.gpu.card;
    let engines = (0..8).map(|engine| PFIFO_ENGINE_STATUS + engine * 4);
    let units = (0..PPBDMAS).map(|unit| PPBDMA_CHANNEL + unit * PPBDMA_STRIDE);
    let more = [
        PGRAPH_STATUS,
        PFIFO_INTR,
        PMC_INTR,
        0x40_0380,
        0x10_a500,
        0x10_a508,
        0x10_a510,
        0x2_0400,
        0x10_0c80,
    ];
    let places: Vec<u32> = engines.chain(units).chain(more).collect();
    let first: Vec<u32> = places.iter().map(|place| card.reg(*place)).collect();
    let mut looks = 0u64;
    while time.goes_on() {
        for (place, first) in places.iter().zip(&first) {
            let now = card.reg(*place);
            ensure!(
                now == *first,
                "register {place:#x} went from {first:#x} to {now:#x} while nothing was done here"
            );
        }
        looks += 1;
    }
    Ok(Seen::new(Outcome::Values, format!("{} registers looked at {looks} times, none moved", places.len())))
}
