//! The verbs of `gpuvmk trace` that read files and write text, pictures or other files: one file a verb. None
//! needs a room that serves guests, so that a change of those does not build the tools again.

// They panic where the output takes no more: `gpuvmk_output` does not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod convert;
mod diff;
mod dump;
mod filter;
mod follow;
pub mod input;
mod lookup;
mod packed;
mod report;
mod stat;
mod verify;

use std::process::ExitCode;

/// A verb.
#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// Write a trace, or several as one, in another format.
    Convert(convert::Args),
    /// Show where two traces begin to differ.
    Diff(diff::Args),
    /// Print a trace as text, with register and field names.
    Dump(dump::Args),
    /// Write part of a trace to another file.
    Filter(filter::Args),
    /// Print a trace as text while it is being written.
    Follow(follow::Args),
    /// Tell which register has an address, and what a value of it means.
    Lookup(lookup::Args),
    /// Write a page about traces, with pictures.
    Report(report::Args),
    /// Count what a trace consists of.
    Stat(stat::Args),
    /// Check that a trace is whole and in order, and that nothing was lost.
    Verify(verify::Args),
}

impl Verb {
    /// Does what it says.
    ///
    /// # Errors
    /// A file cannot be read or written, is damaged, or the output takes no more.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Convert(args) => convert::run(args),
            Self::Diff(args) => diff::run(args),
            Self::Dump(args) => dump::run(args),
            Self::Filter(args) => filter::run(args),
            Self::Follow(args) => follow::run(args),
            Self::Lookup(args) => lookup::run(args),
            Self::Report(args) => report::run(args),
            Self::Stat(args) => stat::run(args),
            Self::Verify(args) => verify::run(args),
        }
    }
}
