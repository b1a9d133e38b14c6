//! The controls of this version: those of all, those of NVIDIA's own modules, and its own.

mod engines;
mod gpu;
mod monitoring;

use crate::abi::common::controls::{channels, display, engines as common_engines, memory};
use crate::abi::nvidia::controls as nvidia;
use crate::abi::table::Control;

/// Every table but those of a display engine.
pub const TABLES: &[&[Control]] = &[
    channels::CONTROLS,
    common_engines::CONTROLS,
    memory::CONTROLS,
    nvidia::channels::CONTROLS,
    nvidia::copies::CONTROLS,
    nvidia::graphics::CONTROLS,
    nvidia::identity::CONTROLS,
    nvidia::links::CONTROLS,
    nvidia::memory::CONTROLS,
    nvidia::monitoring::CONTROLS,
    nvidia::unnamed::CONTROLS,
    engines::CONTROLS,
    gpu::CONTROLS,
    monitoring::CONTROLS,
];

/// Those of a display engine.
pub const DISPLAY: &[&[Control]] = &[display::CONTROLS];
