//! Rows 1 to 5, 7, 17, 23, 26 to 28 and 39: the few registers that mean something, and all others.

use anyhow::Result;

use super::Rig;
use super::driver::{DOORBELL, WINDOW_VIEW};
use crate::attack::work::{by_two, limited, notifications};
use crate::attack::{Seen, Stage, low, registers, work};

/// Places behind handlers that are no words.
pub const ODD: [usize; 7] = [0x9401, 0x10_fd41, 0x1701, 0x84_0041, 0xb8_1002, 0xbb_0091, 0x7f_fffd];
/// Where handlers are: bus unit, timer, GSP, window, VBIOS, FSP, SEC2, mirrors, interrupts and invalidation,
/// user mode. Some of them are of some generations only.
pub const HOT: [(u32, u32); 12] = [
    (0x1000, 0x1000),
    (0x9000, 0x500),
    (0x11_0000, 0x2000),
    (0x10_f000, 0x1000),
    (0x30_0000, 0x2000),
    (0x8f_2000, 0x1000),
    (0x84_0000, 0x2000),
    (0x8_8000, 0x1000),
    (0x9_2000, 0x1000),
    (0xb8_1000, 0x3000),
    (0xbb_0000, 0x1000),
    (0x70_0000, 0x10_0000),
];
/// What holds sway over the whole card: unit resets, bus, ring, memory controller, clocks, fuses, thermal,
/// GSP's core and its memory, secure boot, links to peers.
pub const PRIVILEGED: [u32; 28] = [
    0x200, 0x204, 0x600, 0x1140, 0x1700, 0x1704, 0x1714, 0x2_0000, 0x2_00bc, 0x2_0400, 0x2_1100, 0x8_8004,
    0x9_1000, 0x10_0a34, 0x10_0a38, 0x10_0ce0, 0x11_0040, 0x11_00f4, 0x11_0100, 0x11_0110, 0x11_0118,
    0x11_1388, 0x11_83a4, 0x12_004c, 0x13_7000, 0x1f_a824, 0x1f_a828, 0xa0_0000,
];
/// Display, its channels, VGA, GPIO, I2C and AUX buses, the audio function: a card for computing has none of
/// them.
pub const OUTPUTS: [u32; 16] = [
    0x60_13c0, 0x60_13d4, 0x60_13da, 0x61_0010, 0x61_0018, 0x61_0030, 0x61_1c30, 0x61_2004, 0x62_0000,
    0x64_0000, 0x68_0000, 0xd000, 0xd010, 0xe050, 0x2_1200, 0x8a000,
];
/// Peers: links to other cards, their crossbars, apertures onto peers, windows of other functions.
pub const PEERS: [u32; 12] = [
    0x1f_a820, 0x1f_a828, 0x10_0c10, 0x10_0c14, 0x13_e000, 0x13_f000, 0xa0_0000, 0xa0_1000, 0xa2_0000,
    0xb8_0000, 0xb9_0000, 0x8f_0000,
];

/// The mirror of configuration space, from Hopper on and up to Ada.
pub const MIRROR: u32 = 0x9_2000;
pub const OLD_MIRROR: u32 = 0x8_8000;
/// What another VM's work would move, if it showed: interrupt leaves, queues, GSP's state.
pub const COUNTERS: [u32; 16] = [
    0xb8_1000, 0xb8_1004, 0xb8_1008, 0xb8_100c, 0xb8_1600, 0x11_0040, 0x11_00f4, 0x11_1388, 0x8f_2c00,
    0x8f_2c80, 0x2640, 0x2644, 0x4_0120, 0x40_0700, 0x10_a508, 0x2_0400,
];

/// Row 7: the window anywhere but in the partition.
pub fn window(stage: &mut Stage) -> Result<Seen> {
    let (rig, time) = Rig::timed(stage)?;
    let end = low(rig.gpu.vram >> 16);
    registers::window(rig.gpu.card, time, (rig.gpu.generation.window, WINDOW_VIEW), |random| {
        let beyond = end + random.below(0x00ff_ffff - end);
        vec![end, end + 0x10, beyond, 0x00ff_ffff, 0x0fff_ffff, u32::MAX, 1 << 24 | end]
    })
}

/// Row 17.
pub fn storm(stage: &mut Stage) -> Result<Seen> {
    let (rig, time) = Rig::timed(stage)?;
    let (card, window) = (rig.gpu.card, rig.gpu.generation.window);
    let accesses = by_two(time, 64, |count| match count % 4 {
        0 => drop(card.reg(0xb8_1600)),
        1 => card.set(window, 0x20),
        2 => drop(card.reg(0x9400)),
        _ => card.set(WINDOW_VIEW + 0xff00, 1),
    });
    Ok(limited(&rig, format!("{accesses} register accesses")))
}

/// Row 23: every leaf enabled, none acknowledged, the top rearmed after each notification.
pub fn interrupts(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    (0..8).for_each(|leaf| rig.gpu.card.set(0xb8_1200 + leaf * 4, u32::MAX));
    notifications(&mut rig, time, |tool| {
        let card = tool.card();
        card.set(0xb8_1610, u32::MAX);
        card.set(0xb8_1608, u32::MAX);
        card.set(0x9420, card.reg(0x9400).wrapping_add(64));
        card.set(DOORBELL, u32::MAX);
    })
}

/// Row 39.
pub fn clock_jumps(stage: &mut Stage) -> Result<Seen> {
    let (mut rig, time) = Rig::timed(stage)?;
    work::clock_jumps(&mut rig, time, |tool, random| {
        tool.card().set(0x9410, random.word());
        tool.card().set(0x9400, random.word());
        tool.card().set(0x9140, random.word());
    })
}
