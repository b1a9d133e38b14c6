//! The text of Linux's mmiotrace (Documentation/trace/mmiotrace.rst; the records are printed by
//! kernel/trace/trace_mmiotrace.c), which envytools' demmio reads.
//!
//! A trace that was imported keeps every line that is no access word by word (behind one that tells of a loss
//! there is an entry that says so as well, which is not exported again), and of accesses the mapping,
//! instruction and process, so that it is exported as it was. A trace of ours is exported with the accesses
//! of the BARs as records, and everything else as marks; its times lose their nanoseconds.

mod device;
mod export;
mod import;
mod line;
mod loss;

pub use export::{Bases, Exporter};
pub use import::{ImportError, import};

/// What heads say of imported traces.
pub const FORMAT: &str = "mmiotrace";

#[cfg(test)]
mod tests;
