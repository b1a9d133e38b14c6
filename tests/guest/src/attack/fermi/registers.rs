//! Registers of a GF100 that attacks on registers go for.

use super::regs::*;

/// Places behind handlers that are no words.
pub const ODD: [usize; 5] = [0x1701, 0x2271, 0x3003, 0x9401, 0x7f_fffd];
/// Where handlers are.
pub const HOT: [(u32, u32); 10] = [
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
/// Registers that hold sway over the whole card: unit resets, bus, ring stations, memory controller, clocks,
/// voltage, thermal, fan, power gating, PMU.
pub const PRIVILEGED: [u32; 32] = [
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
pub const OUTPUTS: [u32; 16] = [
    0x60_13c0, 0x60_13d4, 0x60_13da, 0x61_0010, 0x61_0018, 0x61_0030, 0x61_9f04, 0x61_a004, 0x61_c000,
    0x62_0000, 0xd000, 0xd010, 0xe050, 0xe06c, 0xe104, 0x8a000,
];
/// Peers: mappings of other cards, remaps of BARs, direct memory access between functions.
pub const PEERS: [u32; 12] = [
    0x1710, 0x1718, 0x171c, 0x1720, 0x8_8024, 0x8_8028, 0x10_0c10, 0x10_0c14, 0x13_e000, 0x13_e004,
    0x13_f000, 0x9_0000,
];

/// The VBIOS's beginning, and fuses.
pub fn constants() -> Vec<u32> {
    (0..64).map(|word| PROM + word * 4).chain((0..64).map(|word| 0x2_1100 + word * 4)).collect()
}

/// What another VM's work would move, if it showed: engines, PBDMAs, status, idle counters of PMU. Not the
/// interrupt status: a notification of finished work names an engine and not whose work it was
/// (docs/threat-model.md).
pub fn counters() -> Vec<u32> {
    let engines = (0..8).map(|engine| PFIFO_ENGINE_STATUS + engine * 4);
    let units = (0..PPBDMAS).map(|unit| PPBDMA_CHANNEL + unit * PPBDMA_STRIDE);
    let more = [PGRAPH_STATUS, 0x40_0380, 0x10_a500, 0x10_a508, 0x10_a510, 0x2_0400, 0x10_0c80];
    engines.chain(units).chain(more).collect()
}
