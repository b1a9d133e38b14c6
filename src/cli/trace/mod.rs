//! `gpuvmk trace VERB`: one file a verb.

mod convert;
mod diff;
mod dump;
mod filter;
mod follow;
mod input;
mod lookup;
mod packed;
mod record;
mod replay;
mod report;
mod stat;
mod verify;

use std::ffi::OsString;
use std::process::ExitCode;

/// Arguments of `gpuvmk trace`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// A register database in envytools' XML (root.xml and what it imports), for names of chips that gpuvmk
    /// has none of: folders, divided by colons [default: the environment's RNN_PATH]
    #[arg(long, value_name = "DIR[:DIR]", global = true)]
    rnndb: Option<OsString>,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
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
    /// Record what a VM does, while it runs.
    Record(record::Args),
    /// Play a trace into a new device, and compare what it reads.
    Replay(replay::Args),
    /// Write a page about traces, with pictures.
    Report(report::Args),
    /// Count what a trace consists of.
    Stat(stat::Args),
    /// Check that a trace is whole and in order, and that nothing was lost.
    Verify(verify::Args),
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    input::open_database(args.rnndb.as_ref())?;
    match &args.verb {
        Verb::Convert(args) => convert::run(args),
        Verb::Diff(args) => diff::run(args),
        Verb::Dump(args) => dump::run(args),
        Verb::Filter(args) => filter::run(args),
        Verb::Follow(args) => follow::run(args),
        Verb::Lookup(args) => lookup::run(args),
        Verb::Record(args) => record::run(args),
        Verb::Replay(args) => replay::run(args),
        Verb::Report(args) => report::run(args),
        Verb::Stat(args) => stat::run(args),
        Verb::Verify(args) => verify::run(args),
    }
}
