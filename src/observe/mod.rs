//! Observation of a process by operators: limits of log lines, latencies, and metrics.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod latency;
pub mod log_limit;
pub mod metrics;
