//! Harnesses of the fuzzers: each takes any bytes, makes input for one door of gpuvmk of them, and checks
//! what must hold whatever comes in.
//!
//! A harness ends a run by panicking; what it looks at is said at its head. `fuzz_targets/` hands them to
//! libFuzzer (`cargo xtask fuzz`); `tests/corpus.rs` runs them over the inputs that were found worth keeping,
//! as an ordinary test. docs/fuzzing.md tells how to work with them.

#![allow(clippy::expect_used, clippy::panic, reason = "a harness reports by panicking")]

pub mod aggregator;
pub mod aggregator_rings;
pub mod aggregator_wire;
pub mod back_end;
mod bench;
pub mod config;
pub mod fifo;
pub mod gsp;
#[path = "../../tests/common/gsp_queues.rs"]
mod gsp_queues;
mod host;
mod input;
pub mod kernel_channel;
pub mod launches;
mod log_sink;
pub mod mmio;
pub mod page_tables;
pub mod pushbuffer;
pub mod shaders;
pub mod trace;
pub mod vfio_user;
pub mod viewer;

/// A harness.
pub type Harness = fn(&[u8]);

/// Every harness by the name of its target, which is also that of its corpus.
pub const HARNESSES: &[(&str, Harness)] = &[
    ("aggregator", aggregator::run),
    ("aggregator_rings", aggregator_rings::run),
    ("aggregator_wire", aggregator_wire::run),
    ("back_end", back_end::run),
    ("config", config::run),
    ("fifo", fifo::run),
    ("gsp", gsp::run),
    ("kernel_channel", kernel_channel::run),
    ("launches", launches::run),
    ("mmio_blackwell", mmio::fsp::blackwell),
    ("mmio_falcons", mmio::falcons::run),
    ("mmio_gf100", mmio::gf100::run),
    ("mmio_gh100", mmio::fsp::gh100),
    ("page_tables", page_tables::run),
    ("pushbuffer", pushbuffer::run),
    ("shader_words", shaders::words),
    ("shaders", shaders::run),
    ("trace", trace::run),
    ("vfio_user", vfio_user::run),
    ("viewer", viewer::run),
];
