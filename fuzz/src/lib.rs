//! Harnesses of the fuzzers: each takes any bytes, makes input for one door of gpuvmk of them, and checks what must
//! hold whatever comes in.
//!
//! A harness ends a run by panicking; what it looks at is said at its head. `fuzz_targets/` hands them to libFuzzer
//! (`cargo xtask fuzz`); `tests/corpus.rs` runs them over the inputs that were found worth keeping, as an ordinary
//! test. docs/fuzzing.md tells how to work with them.

#![allow(clippy::expect_used, clippy::panic, reason = "a harness reports by panicking")]

pub mod aggregator_wire;
pub mod config;
mod log_sink;
pub mod trace;

/// A harness.
pub type Harness = fn(&[u8]);

/// Every harness by the name of its target, which is also that of its corpus.
pub const HARNESSES: &[(&str, Harness)] =
    &[("aggregator_wire", aggregator_wire::run), ("config", config::run), ("trace", trace::run)];
