//! A streaming multiprocessor in software: machine code of SM75 to SM90, executed warp by warp.
//!
//! A [`Launch`] becomes a [`Grid`], which [`Grid::run`] moves on in slices: it ends, pauses or faults.
//! Guests' memory is behind [`Memory`]. Code is hostile: it can only reach rows of its own registers, shared
//! memory of its CTA and what its view of memory allows; a grid holds 64 CTAs and 64 MiB of decoded code
//! at most.

mod bindless;
mod crew;
mod cta;
mod exec;
mod fault;
mod grid;
mod launch;
mod lower;
mod memory;
pub mod numerics;
mod observe;
mod op;
mod program;
mod quick;
mod row;
mod twin;
mod warp;

pub use crew::{Alone, Crew, Started};
pub use fault::{Access, Cause, Exception, Fault, MemoryFault};
pub use grid::{Grid, Progress};
pub use launch::{Constants, Launch, LaunchError, LocalMemory};
pub use memory::{Memory, View, Width};
pub use observe::{Change, Observer, Register, SharedAccess, Step};
pub use twin::Twin;

#[cfg(test)]
mod tests;
