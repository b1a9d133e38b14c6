//! The software GPU: a strict model of what executes behind a GPU's registers or firmware.
//!
//! It is hardware, not a shortcut: units that were not initialised do not work, the runlist and start bits
//! decide what runs, page tables are walked for real with a TLB that is stale until flushed, faults are
//! raised, unknown methods stop their channel, engines run concurrently in time, copies really move bytes,
//! and timeslices and preemption are real. Nothing above can look inside, except that the [`ledger`] counts
//! accesses that leave their owner's memory.
//!
//! From the ground up: memory ([`vram`]), the MMU and accesses through it ([`mmu`]), the channel tables
//! ([`fifo`]), engines ([`engine`]) and the classes that they execute ([`class`]), PBDMAs ([`pbdma`]) that
//! take channels from the tables, parse their command streams and give methods to engines. [`mme`] runs
//! macros. What chips differ in is described in [`chip`]. [`Core`] is all of it; [`SoftGpu`] has a GF100's
//! registers before it, and the [`executor`] is the core as a driver.
//!
//! Not modelled: video engines, 2D and 3D drawing, shaders but for compute, compression, performance
//! counters, and anything that takes time other than moving bytes.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod chip;
mod class;
mod clock;
mod core;
mod engine;
mod events;
pub mod executor;
mod fifo;
mod gpu;
pub mod ledger;
mod mme;
mod mmu;
mod pbdma;
mod preemption;
mod vram;
mod words;
mod workers;

pub use self::core::Core;
pub use gpu::{SoftGpu, SoftGpuConfig, SoftGpuError};
pub use preemption::Preemption;
pub use vram::{MAX_VRAM, VRAM_UNIT, bank_size};
pub use workers::Workers;

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "tests pick words apart")]
mod tests;
