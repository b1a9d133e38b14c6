//! The controls that are known: what nouveau of Linux 7.2 and 7.3 sends to a GPU without display.
//!
//! One that is not in a table is answered NV_ERR_NOT_SUPPORTED, as real firmware answers one that its GPU
//! does not have.

mod channels;
mod engines;
mod memory;
mod memory_system;

use crate::abi::table::Control;

/// Every table.
pub const TABLES: &[&[Control]] =
    &[channels::CONTROLS, engines::CONTROLS, memory::CONTROLS, memory_system::CONTROLS];
