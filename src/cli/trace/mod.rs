//! `gpuvmk trace VERB`: one file a verb.

mod convert;
mod diff;
mod dump;
mod filter;
mod follow;
mod lookup;
mod packed;
mod record;
mod replay;
mod report;
mod stat;
mod verify;

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::{Context, ensure};

use super::output::{Output, print};
use crate::chip::register_sets::{ALL, RegisterSet};
use crate::pci::Region;
use crate::trace::rnndb::Rnndb;
use crate::trace::{Direction, Entry, Event, Header, Place, Source};

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

/// The database, if there is one: one for the process, as its tables stay as long.
static DATABASE: OnceLock<Rnndb> = OnceLock::new();

fn open_database(args: &Args) -> anyhow::Result<()> {
    let read = |folders: &OsString| Rnndb::read(&std::env::split_paths(folders).collect::<Vec<_>>());
    let database = match (&args.rnndb, std::env::var_os("RNN_PATH")) {
        (Some(folders), _) => Some(read(folders)?),
        // It is there for other tools, which may need less of it.
        (None, Some(folders)) => read(&folders)
            .inspect_err(|error| log::warn!("RNN_PATH is of no use, and not used: {error}"))
            .ok(),
        (None, None) => None,
    };
    if let Some(database) = database {
        // Nobody has set it: this is the first thing that the command does.
        let _ = DATABASE.set(database);
    }
    Ok(())
}

/// The registers of a chip by its name: gpuvmk's own first.
fn set_by_name(name: &str) -> Option<&'static RegisterSet> {
    RegisterSet::by_name(name).or_else(|| DATABASE.get()?.by_name(name))
}

/// The same for a name that an operator gave.
fn named_set(name: &str) -> anyhow::Result<&'static RegisterSet> {
    let known = || ALL.map(|set| set.chip).join(", ");
    set_by_name(name).with_context(|| {
        format!(
            "no chip is called `{name}`; there are {}, and those of a database that --rnndb names",
            known()
        )
    })
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
    open_database(args)?;
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

/// Opens a trace or an mmiotrace, compressed or not; `-` is standard input.
fn open(file: &Path) -> anyhow::Result<Source> {
    let source = if file == Path::new("-") {
        Source::open(std::io::stdin().lock())
    } else {
        Source::open(File::open(file).with_context(|| format!("Cannot open {}", file.display()))?)
    };
    source.with_context(|| format!("Cannot read {}", file.display()))
}

/// Creates the file of an output, which must be none of the inputs: creating it would empty it.
fn create(output: &Path, inputs: &[PathBuf]) -> anyhow::Result<File> {
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    let there = identity(output);
    ensure!(
        there.is_none() || inputs.iter().all(|input| identity(input) != there),
        "{} is read and cannot be written as well: give another name with --output",
        output.display()
    );
    File::create(output).with_context(|| format!("Cannot create {}", output.display()))
}

/// Hands every entry to `take` until it returns false. What precedes damage is handed over before the error
/// comes back.
fn each(
    trace: Source,
    file: &Path,
    mut take: impl FnMut(Entry) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    for entry in trace {
        if !take(entry.with_context(|| format!("In {}", file.display()))?)? {
            break;
        }
    }
    Ok(())
}

/// The chip of a trace: what its head says, else what the driver reads where every chip says what it is.
/// Registers of a chip that is not known have no names: another chip's would be wrong.
struct Chip(Option<&'static RegisterSet>);

impl Chip {
    fn of(header: &Header) -> Self {
        Self(header.chip.as_deref().and_then(set_by_name))
    }

    /// Learns from an entry.
    fn see(&mut self, entry: &Entry) -> Option<&'static RegisterSet> {
        if let Event::Access(access) = &entry.event
            && access.offset == 0
            && access.size == 4
            && access.direction == Direction::Read
            && access.place == Place::Region(Region::Bar(0))
        {
            let of = |boot_0| RegisterSet::by_boot_0(boot_0).or_else(|| DATABASE.get()?.by_boot_0(boot_0));
            self.0 = u32::try_from(access.value).ok().and_then(of).or(self.0);
        }
        self.0
    }
}
