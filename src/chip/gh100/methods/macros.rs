//! Methods of the macro method expander (MME): loads of macros, their calls, their memory. The classes that
//! reach it have the same numbers, but for the firmware's methods. Source: `clc597.h`, `clc7c0.h`, `cl902d.h`
//! and those that follow them.

use super::{MethodDef, masked, method, run};
use crate::compute;
use crate::nv::classes::Role;

/// Where the next word of instructions goes, in words.
pub const LOAD_MME_INSTRUCTION_RAM_POINTER: u16 = 0x114;
/// A word of instructions.
pub const LOAD_MME_INSTRUCTION_RAM: u16 = 0x118;
/// Which macro the next start address is of.
pub const LOAD_MME_START_ADDRESS_RAM_POINTER: u16 = 0x11c;
/// Where a macro begins, in words.
pub const LOAD_MME_START_ADDRESS_RAM: u16 = 0x120;
/// What becomes of methods and of what they were sent last.
pub const SET_MME_SHADOW_RAM_CONTROL: u16 = 0x124;
/// Memory address bits 39:32.
pub const SET_MME_MEM_ADDRESS_A: u16 = 0x550;
/// Memory address bits 31:0.
pub const SET_MME_MEM_ADDRESS_B: u16 = 0x554;
/// A word of data RAM.
pub const SET_MME_DATA_RAM_ADDRESS: u16 = 0x558;
/// Reads words of memory into data RAM.
pub const MME_DMA_READ: u16 = 0x55c;
/// Reads words of memory into the FIFO.
pub const MME_DMA_READ_FIFOED: u16 = 0x560;
/// Writes words of data RAM to memory.
pub const MME_DMA_WRITE: u16 = 0x564;
/// Combines data RAM with memory.
pub const MME_DMA_REDUCTION: u16 = 0x568;
/// Has what was written seen by others.
pub const MME_DMA_SYSMEMBAR: u16 = 0x56c;
/// Waits for memory.
pub const MME_DMA_SYNC: u16 = 0x570;
/// Size of the FIFO. Blackwell's classes do not have it.
pub const SET_MME_DATA_FIFO_CONFIG: u16 = 0x574;
/// The first of the scratch words: they keep what they are sent, and the classes share them.
pub const SET_MME_SHADOW_SCRATCH: u16 = 0x3400;
/// How many there are.
pub const SCRATCHES: u16 = 0x100;
/// The first macro's call. Each has two methods: the call, and more data for it.
pub const CALL_MME: u16 = 0x3800;
/// How many macros there are.
pub const MACROS: u16 = 0x100;

crate::fields! {
    /// Fields of [`SET_MME_SHADOW_RAM_CONTROL`](const@SET_MME_SHADOW_RAM_CONTROL).
    SET_MME_SHADOW_RAM_CONTROL {
        1:0 MODE = {
            /// Methods are kept, and executed.
            METHOD_TRACK: 0,
            /// The same; what does not change state need not be executed.
            METHOD_TRACK_WITH_FILTER: 1,
            /// Methods are executed, and not kept.
            METHOD_PASSTHROUGH: 2,
            /// Methods are executed with what was kept.
            METHOD_REPLAY: 3,
        }
    }
    /// Fields of [`SET_MME_MEM_ADDRESS_A`](const@SET_MME_MEM_ADDRESS_A).
    SET_MME_MEM_ADDRESS_A { 24:0 UPPER }
    /// Fields of [`SET_MME_DATA_FIFO_CONFIG`](const@SET_MME_DATA_FIFO_CONFIG).
    SET_MME_DATA_FIFO_CONFIG {
        /// In units of 4 KiB.
        2:0 FIFO_SIZE = { LARGEST: 4 }
    }
}

/// Where a class keeps what its methods were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shadow {
    /// The 3D class.
    ThreeD,
    /// The compute class.
    Compute,
    /// The 2D class.
    TwoD,
}

/// A class whose methods go through the MME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacroClass {
    /// Its shadow RAM.
    pub shadow: Shadow,
    /// SET_FALCON04, by which firmware writes a register that drivers may not, and says so in scratch word 0.
    pub falcon04: Option<u16>,
}

/// What the MME is to a class; none if its methods do not go through it.
pub fn of_class(class: u16, role: Role) -> Option<MacroClass> {
    match role {
        Role::ThreeD => Some(MacroClass { shadow: Shadow::ThreeD, falcon04: Some(0x2310) }),
        Role::TwoD => Some(MacroClass { shadow: Shadow::TwoD, falcon04: None }),
        Role::Compute if compute::of_class(class.into()).is_some_and(|row| row.macros) => {
            Some(MacroClass { shadow: Shadow::Compute, falcon04: Some(0x510) })
        }
        _ => None,
    }
}

pub(super) const METHODS: &[MethodDef] = &[
    method(LOAD_MME_INSTRUCTION_RAM_POINTER, "LOAD_MME_INSTRUCTION_RAM_POINTER"),
    method(LOAD_MME_INSTRUCTION_RAM, "LOAD_MME_INSTRUCTION_RAM"),
    method(LOAD_MME_START_ADDRESS_RAM_POINTER, "LOAD_MME_START_ADDRESS_RAM_POINTER"),
    method(LOAD_MME_START_ADDRESS_RAM, "LOAD_MME_START_ADDRESS_RAM"),
    masked(SET_MME_SHADOW_RAM_CONTROL, 3, "SET_MME_SHADOW_RAM_CONTROL"),
    masked(SET_MME_MEM_ADDRESS_A, 0x01ff_ffff, "SET_MME_MEM_ADDRESS_A"),
    method(SET_MME_MEM_ADDRESS_B, "SET_MME_MEM_ADDRESS_B"),
    method(SET_MME_DATA_RAM_ADDRESS, "SET_MME_DATA_RAM_ADDRESS"),
    method(MME_DMA_READ, "MME_DMA_READ"),
    method(MME_DMA_READ_FIFOED, "MME_DMA_READ_FIFOED"),
    method(MME_DMA_WRITE, "MME_DMA_WRITE"),
    method(MME_DMA_REDUCTION, "MME_DMA_REDUCTION"),
    method(MME_DMA_SYSMEMBAR, "MME_DMA_SYSMEMBAR"),
    method(MME_DMA_SYNC, "MME_DMA_SYNC"),
    method(SET_MME_DATA_FIFO_CONFIG, "SET_MME_DATA_FIFO_CONFIG"),
    run(SET_MME_SHADOW_SCRATCH, SCRATCHES, "SET_MME_SHADOW_SCRATCH"),
    run(CALL_MME, 2 * MACROS, "CALL_MME"),
];
