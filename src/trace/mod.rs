//! Traces of register accesses: typed records, a compact binary log, and decoding by the tables of `chip`.
//!
//! A trace never holds an access up: records go through a bounded queue to a writer thread; what does not fit
//! is counted, and the count is in the log.

pub mod decode;
pub mod record;
pub mod recorder;
pub mod traced;

pub use record::{Operation, Reader, Record, TraceError};
pub use recorder::Recorder;
pub use traced::Traced;
