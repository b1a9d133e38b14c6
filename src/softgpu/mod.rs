//! The software GPU: a strict model of what executes behind a GF100's registers.
//!
//! It is hardware, not a shortcut: units that were not initialised do not work, the runlist and start bits
//! decide what runs, page tables are walked for real with a TLB that is stale until flushed, faults are
//! raised, unknown methods stop their channel, engines run concurrently in time, copies really move bytes,
//! and timeslices and preemption are real. Nothing above can look inside, except that the [`ledger`] counts
//! accesses that leave their owner's memory.
//!
//! Three PBDMA threads ([`pbdma`]) take channels from the FIFO tables ([`fifo`]), parse their command streams
//! ([`execution`]) and give methods to engines ([`engine`]), which reach memory through the MMU ([`mmu`]).
//!
//! Not modelled: video engines, 2D and 3D drawing, shaders, compression, performance counters, and anything
//! that takes time other than moving bytes.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod access;
mod core;
mod description;
mod engine;
mod execution;
pub mod executor;
mod fifo;
mod gpu;
mod hardware;
mod host;
pub mod ledger;
mod memory;
mod mmu;
mod pbdma;
mod preemption;
mod pushbuffer;
mod ramfc;
mod reduction;
mod renewals;
mod sleepers;
mod tlb;
mod vram;
mod walker;

pub use self::core::Core;
pub use gpu::{SoftGpu, SoftGpuConfig, SoftGpuError};
pub use preemption::Preemption;
pub use vram::{MAX_VRAM, VRAM_UNIT, bank_size};

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "tests pick words apart")]
mod tests;
