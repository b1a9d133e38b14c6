//! vfio-user as its clients speak it: one message's rules a file, and one program, since each that is linked
//! with everything takes as long to build as its tests take to run, many times over.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

#[path = "../common/mod.rs"]
mod common;

mod dma;
mod errors;
mod irq;
mod lifecycle;
mod region;
mod reset;
mod version;
mod write_multi;
