//! Queue meta data (QMD): the block of 256 or 384 bytes that describes a compute grid to the compute work
//! distributor.
//!
//! A driver writes a block to memory and names it by a method (SEND_PCAS_A). [`layout`] has the fields of
//! each version, [`Qmd`] is a block, and [`Grid`] is what a block says, whatever its version.

mod block;
mod grid;
pub mod layout;
mod turn;

pub use block::{ALIGNMENT, MAX_WORDS, Qmd};
pub use grid::{Action, Asked, Bank, Dependent, Grid, Membar, Release, ReleaseSize, Reserved};
pub use turn::{Act, Turn};
