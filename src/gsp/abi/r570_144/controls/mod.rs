//! The controls of this version: those of all, and its own.

mod display;
mod engines;
mod memory_system;
mod suspend;

use crate::abi::common::controls::{
    channels, display as common_display, engines as common_engines, heads, memory,
};
use crate::abi::table::Control;

/// Every table but those of a display engine.
pub const TABLES: &[&[Control]] = &[
    channels::CONTROLS,
    common_engines::CONTROLS,
    engines::CONTROLS,
    memory::CONTROLS,
    suspend::CONTROLS,
    memory_system::CONTROLS,
];

/// Those of a display engine.
pub const DISPLAY: &[&[Control]] = &[common_display::CONTROLS, display::CONTROLS, heads::CONTROLS];
