//! Random machine code for shader processors.
//!
//! A [`Program`] is a kernel: a prologue loads operands into registers, some hundred instructions
//! ([`instance`]) work on them, and each one's results are stored. The same program runs on a GPU and in the
//! software GPU ([`soft`]), where every stored word must be equal.

pub mod compiled;
pub mod flow;
pub mod generate;
pub mod instance;
mod program;
pub mod random;
pub mod record;
pub mod recorded;
pub mod shape;
pub mod soft;
pub mod task;
mod template;
pub mod windows;

pub use program::{BLOCK, CONSTANTS, IN_WORDS, PARAMETERS, Program, REGISTERS};
