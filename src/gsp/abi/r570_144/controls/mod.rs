//! The controls of this version: those of all, and its own.

mod engines;
mod memory_system;
mod suspend;

use crate::abi::common::controls::{channels, engines as common_engines, memory};
use crate::abi::table::Control;

/// Every table.
pub const TABLES: &[&[Control]] = &[
    channels::CONTROLS,
    common_engines::CONTROLS,
    engines::CONTROLS,
    memory::CONTROLS,
    suspend::CONTROLS,
    memory_system::CONTROLS,
];
