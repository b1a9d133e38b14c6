//! The PMU's idle counters: which engine is which bit, and when a counter counts. Source: envytools,
//! docs/hw/pm/pdaemon/counter.rst.

use crate::Engine;

/// Engines that have a bit in NV_PPMU_IDLE_STATUS and in the masks, and the bit.
pub const ENGINES: [(Engine, u32); 3] =
    [(Engine::Graphics, 1), (Engine::Copy(0), 1 << 19), (Engine::Copy(1), 1 << 20)];

/// NV_PPMU_IDLE_COUNT: the value.
pub const VALUE: u32 = 0x7fff_ffff;
/// NV_PPMU_IDLE_COUNT: written, it sets the counter to zero.
pub const RESET: u32 = 1 << 31;

/// NV_PPMU_IDLE_CTRL: counts while what it watches rests.
pub const WHILE_IDLE: u32 = 1;
/// NV_PPMU_IDLE_CTRL: counts while what it watches works.
pub const WHILE_BUSY: u32 = 2;
/// NV_PPMU_IDLE_CTRL: counts always.
pub const ALWAYS: u32 = WHILE_IDLE | WHILE_BUSY;
