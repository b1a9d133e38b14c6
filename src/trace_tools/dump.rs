//! `gpuvmk trace dump FILE`

use std::path::PathBuf;
use std::process::ExitCode;

use super::input::{Chip, each, open};
use gpuvmk_output::Output;
use gpuvmk_trace::text;

/// Arguments of `gpuvmk trace dump`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk trace dump /var/log/gpuvmk/vm1.trace | less")]
pub struct Args {
    /// The trace; `-` is standard input.
    file: PathBuf,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let trace = open(&args.file)?;
    let mut chip = Chip::of(trace.header());
    let mut output = Output::new();
    let mut line = Vec::new();
    let read = each(trace, &args.file, |entry| {
        let names = chip.see(&entry);
        line.clear();
        text::line(&entry, &names, &mut line);
        output.write(&line)
    });
    // Entries before damage are printed; the reader gets both.
    output.flush()?;
    read.map(|()| ExitCode::SUCCESS)
}
