//! `gpuvmk trace follow FILE`

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;

use super::input::Chip;
use gpuvmk_output::Output;
use gpuvmk_trace::{Filter, Reader, text};

/// How often a file that has ended is looked at for more.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `gpuvmk trace follow`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpuvmk trace follow /var/log/gpuvmk/vm1.trace
  gpuvmk trace follow vm1.trace unit=PFIFO op=write
Conditions are those of `gpuvmk trace filter`. Entries are shown 0.3 s late at the most. Ctrl-C ends it.")]
pub struct Args {
    /// The trace, which is being written.
    file: PathBuf,
    /// What is wanted.
    #[arg(value_name = "CONDITION")]
    conditions: Vec<String>,
}

/// A file that goes on growing.
struct Growing(File);

impl Read for Growing {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.read(bytes) {
                Ok(0) if !bytes.is_empty() => std::thread::sleep(LOOK),
                read => return read,
            }
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let shown = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("Cannot open {shown}"))?;
    let trace = Reader::new(Growing(file)).with_context(|| format!("Cannot read {shown}"))?;
    let mut chip = Chip::of(trace.header());
    let filter = Filter::parse(args.conditions.iter().map(String::as_str), chip.0)?;
    let mut output = Output::new();
    let mut line = Vec::new();
    for entry in trace {
        let entry = entry.with_context(|| format!("In {shown}"))?;
        let names = chip.see(&entry);
        if filter.wants(&entry.event) {
            line.clear();
            text::line(&entry, &names, &mut line);
            // Each at once: who follows wants to see what there is.
            if !(output.write(&line)? && output.flush()?) {
                break;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
