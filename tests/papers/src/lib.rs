//! The programs of the papers' table (GPUvm's, after Gdev's and Rodinia's names), written from the
//! algorithms.
//!
//! Their machine code ([`CUBIN`]) is launched by whoever implements [`Gpu`]: a guest through CUDA, a client
//! of the host's driver, a test on a software GPU. All have the same grids, arguments and sizes, and compare
//! what comes of it with what a processor computes ([`Job::check`]).

#![allow(clippy::cast_possible_truncation, reason = "sizes are those of the table, far below 2^32")]

mod gpu;
mod job;
mod measure;
mod programs;
pub mod reference;
#[cfg(feature = "soft")]
mod soft;
mod yard;

pub use gpu::{Area, Direction, Gpu, Launch, Took};
pub use job::{Check, Job, Part, Room, Step, Value};
pub use measure::{Measured, Prepared, measure, median};
pub use programs::{PROGRAMS, Program, Size, find};
#[cfg(feature = "soft")]
pub use soft::SoftGpu;
pub use yard::{Clocks, YARD_BYTES, yard};

/// Machine code for SM 9.0, of `kernels/papers.cu`.
pub const CUBIN: &[u8] = include_bytes!("../kernels/papers.cubin");
