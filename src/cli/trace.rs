//! `gpuvmk trace dump FILE`

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use crate::chip::register_sets::{ALL, RegisterSet};
use crate::chip::registers::Reg;
use crate::pci::Region;
use crate::trace::{Operation, Reader, Record, decode};

/// Arguments of `gpuvmk trace`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print a trace as text, with register and field names.
    #[command(after_help = "Example:\n  gpuvmk trace dump /var/log/gpuvmk/vm1.trace | less")]
    Dump {
        /// The trace.
        file: PathBuf,
    },
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Dump { file } => dump(file),
    }
}

fn dump(file: &Path) -> anyhow::Result<ExitCode> {
    let source = File::open(file).with_context(|| format!("Cannot open {}", file.display()))?;
    let records =
        Reader::new(BufReader::new(source)).with_context(|| format!("Cannot read {}", file.display()))?;
    // Which chip it was shows when the driver asks; hardly anything comes before.
    let mut set = ALL.first();
    let mut out = BufWriter::new(std::io::stdout().lock());
    for record in records {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                // What precedes the damage is printed; the reader gets both.
                out.flush()?;
                return Err(anyhow::Error::from(error).context(format!("In {}", file.display())));
            }
        };
        set = identified(&record).or(set);
        let names = |reg: Reg| set.and_then(|set| set.definition(reg));
        match writeln!(out, "{}", decode::line(&record, &names)) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            written => written?,
        }
    }
    match out.flush() {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        flushed => flushed.map(|()| ExitCode::SUCCESS).map_err(Into::into),
    }
}

/// The chip, when the record is a driver's question for it.
fn identified(record: &Record) -> Option<&'static RegisterSet> {
    let asked = record.operation == Operation::Read
        && record.region == Some(Region::Bar(0))
        && record.offset == 0
        && record.size == 4;
    u32::try_from(record.value).ok().filter(|_| asked).and_then(RegisterSet::by_boot_0)
}
