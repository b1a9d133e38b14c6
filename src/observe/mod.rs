//! What operators see of a process: how often something is logged, how long things take, and metrics.

pub mod latency;
pub mod log_limit;
pub mod metrics;
