//! The text of Linux's mmiotrace (Documentation/trace/mmiotrace.rst; the records are printed by
//! kernel/trace/trace_mmiotrace.c), which envytools' demmio reads.
//!
//! An imported trace keeps every line that is no access word by word. Behind a line that reports a loss there
//! is an entry for the loss as well, which is not exported again. Of accesses it keeps the mapping,
//! instruction and process, so that it is exported as it was. A trace of ours is exported with the accesses
//! of the BARs as records, and everything else as marks; its times lose their nanoseconds.

mod device;
mod export;
mod import;
mod line;
mod loss;

pub use export::{Bases, Exporter};
pub use import::{ImportError, import};

/// Format name in heads of imported traces.
pub const FORMAT: &str = "mmiotrace";

#[cfg(test)]
mod tests;
