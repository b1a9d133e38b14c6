//! `gpuvmk trace VERB`: the verbs that need a VM or a device; `gpuvmk_trace_tools` has the others.

mod record;
mod replay;

use std::ffi::OsString;
use std::process::ExitCode;

use gpuvmk_trace_tools::{Verb as Tool, input};

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
    #[command(flatten)]
    Tool(Tool),
    /// Record what a VM does, while it runs.
    Record(record::Args),
    /// Play a trace into a new device, and compare what it reads.
    Replay(replay::Args),
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    input::open_database(args.rnndb.as_ref())?;
    match &args.verb {
        Verb::Tool(verb) => verb.run(),
        Verb::Record(args) => record::run(args),
        Verb::Replay(args) => replay::run(args),
    }
}
