//! Input and output of verbs: traces, the files of their output, and the register names of a chip.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, ensure};

use gpuvmk_chip::register_sets::{ALL, RegisterSet};
use gpuvmk_pci::Region;
use gpuvmk_trace::rnndb::Rnndb;
use gpuvmk_trace::{Direction, Entry, Event, Header, Place, Source};

/// The database, if there is one: one for the process, as its tables stay as long.
static DATABASE: OnceLock<Rnndb> = OnceLock::new();

/// Reads the database in the folders that `--rnndb` or the environment names.
///
/// # Errors
/// The one that `--rnndb` names cannot be read.
pub fn open_database(named: Option<&OsString>) -> anyhow::Result<()> {
    let read = |folders: &OsString| Rnndb::read(&std::env::split_paths(folders).collect::<Vec<_>>());
    let database = match (named, std::env::var_os("RNN_PATH")) {
        (Some(folders), _) => Some(read(folders)?),
        // It is there for other tools, which may need less of it.
        (None, Some(folders)) => read(&folders)
            .inspect_err(|error| log::warn!("RNN_PATH is of no use, and not used: {error}"))
            .ok(),
        (None, None) => None,
    };
    if let Some(database) = database {
        // It was not set before: this is the command's first step.
        let _ = DATABASE.set(database);
    }
    Ok(())
}

/// The registers of a chip by its name: gpuvmk's own first.
pub(super) fn set_by_name(name: &str) -> Option<&'static RegisterSet> {
    RegisterSet::by_name(name).or_else(|| DATABASE.get()?.by_name(name))
}

/// The same for a name that an operator gave.
pub(super) fn named_set(name: &str) -> anyhow::Result<&'static RegisterSet> {
    let known = || ALL.map(|set| set.chip).join(", ");
    set_by_name(name).with_context(|| {
        format!(
            "no chip is called `{name}`; there are {}, and those of a database that --rnndb names",
            known()
        )
    })
}

/// Opens a trace or an mmiotrace, compressed or not; `-` is standard input.
///
/// # Errors
/// It cannot be opened, or is neither.
pub fn open(file: &Path) -> anyhow::Result<Source> {
    let source = if file == Path::new("-") {
        Source::open(std::io::stdin().lock())
    } else {
        Source::open(File::open(file).with_context(|| format!("Cannot open {}", file.display()))?)
    };
    source.with_context(|| format!("Cannot read {}", file.display()))
}

/// Creates the file of an output, which must be none of the inputs: creating it would empty it.
pub(super) fn create(output: &Path, inputs: &[PathBuf]) -> anyhow::Result<File> {
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    let there = identity(output);
    ensure!(
        there.is_none() || inputs.iter().all(|input| identity(input) != there),
        "{} is read and cannot be written as well: give another name with --output",
        output.display()
    );
    File::create(output).with_context(|| format!("Cannot create {}", output.display()))
}

/// Hands every entry to `take` until it returns false. Entries before damage are handed over before the error
/// comes back.
///
/// # Errors
/// The trace is damaged, or `take` fails.
pub fn each(
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
#[derive(Clone, Copy, Debug)]
pub struct Chip(pub Option<&'static RegisterSet>);

impl Chip {
    /// The chip that a trace's head names.
    pub fn of(header: &Header) -> Self {
        Self(header.chip.as_deref().and_then(set_by_name))
    }

    /// Learns from an entry.
    pub fn see(&mut self, entry: &Entry) -> Option<&'static RegisterSet> {
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
