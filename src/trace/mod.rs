//! Traces of what a guest does with its function: typed entries, a compact binary file, and tools that read
//! it.
//!
//! A trace never holds an access up: entries go through a bounded ring to a writer thread; what does not fit
//! is counted, and the count is in the trace.

// They panic where the output takes no more.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod block;
pub mod codec;
pub mod diff;
pub mod event;
pub mod filter;
pub mod formats;
pub mod header;
pub mod reader;
pub mod recorder;
pub mod recording_server;
pub mod replay;
pub mod rnndb;
pub mod source;
pub mod stat;
pub mod text;
pub mod timeline;
pub mod traced;
pub mod tracer;
pub mod turns;
pub mod writer;

pub use event::{Access, Direction, Entry, Event, Place};
pub use filter::Filter;
pub use header::Header;
pub use reader::{Reader, TraceError};
pub use recorder::Recorder;
pub use source::{Source, SourceError};
pub use traced::Traced;
pub use tracer::Tracer;
