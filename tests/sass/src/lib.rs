//! Random machine code for shader processors.
//!
//! A [`Program`] is a kernel: a prologue loads operands into registers, some hundred random instructions
//! ([`instance`]) work on them, and an epilogue stores all registers. The same program runs on a GPU and in
//! the software GPU ([`soft`]), where every stored word must be equal.

pub mod instance;
mod program;
pub mod random;
pub mod soft;
mod template;

pub use program::{CONSTANTS, IN_WORDS, OUT_WORDS, Program, REGISTERS, constants, inputs};
