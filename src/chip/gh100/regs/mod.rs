//! The registers of a GH100 that a driver touches, unit by unit. Most are those of all chips with GSP.

use crate::register_index::RegisterIndex;
use crate::registers::{Reg, RegisterDef};

pub use crate::gsp::regs::{
    board, fsp, gsp, gsp_core, gsp_queues, hopper, host, timer, vfn, vram_size, windows, xal,
};

/// All tables, by unit.
pub static TABLES: &[&[RegisterDef]] = crate::gsp::GH100.tables;

/// The tables by offset.
pub fn index() -> &'static RegisterIndex {
    (crate::gsp::GH100.index)()
}

/// The declaration that covers a register.
pub fn definition(reg: Reg) -> Option<&'static RegisterDef> {
    index().definition(reg)
}
