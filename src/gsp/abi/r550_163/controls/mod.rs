//! The controls of this version: those of all, and its own.

mod channels;
mod copies;
mod graphics;
mod identity;
mod interrupts;
mod links;
mod memory;
mod monitoring;
mod numbers;

use crate::abi::common::controls::{channels as common_channels, display, engines, memory as common_memory};
use crate::abi::table::Control;

/// Every table but those of a display engine.
pub const TABLES: &[&[Control]] = &[
    common_channels::CONTROLS,
    engines::CONTROLS,
    common_memory::CONTROLS,
    channels::CONTROLS,
    copies::CONTROLS,
    graphics::CONTROLS,
    identity::CONTROLS,
    interrupts::CONTROLS,
    links::CONTROLS,
    memory::CONTROLS,
    monitoring::CONTROLS,
    monitoring::unnamed::CONTROLS,
];

/// Those of a display engine.
pub const DISPLAY: &[&[Control]] = &[display::CONTROLS];
