//! What operators see of a process: how often something is logged, how long things take, and metrics.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod latency;
pub mod log_limit;
pub mod metrics;
