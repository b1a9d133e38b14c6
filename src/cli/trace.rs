//! `gpuvmk trace dump FILE`

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;

use crate::chip::gf100;
use crate::trace::{Reader, decode};

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
        match writeln!(out, "{}", decode::line(&record, &gf100::regs::definition)) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            written => written?,
        }
    }
    match out.flush() {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        flushed => flushed.map(|()| ExitCode::SUCCESS).map_err(Into::into),
    }
}
