//! `gpuvmk trace filter FILE --output FILE CONDITION...`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use super::input::{Chip, each, named_set, open};
use super::packed::Packed;
use gpuvmk_trace::writer::Writer;
use gpuvmk_trace::{Entry, Event, Filter};

/// Arguments of `gpuvmk trace filter`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpuvmk trace filter vm1.trace --output fifo.trace unit=PFIFO op=write
  gpuvmk trace filter vm1.trace --output boot.trace bar=0 range=0x0-0x1ff
  gpuvmk trace filter vm1.trace --no-times --output golden.trace.xz
Conditions:
  bar=0 to 5, rom, config or physical; range=FIRST-LAST or one offset, hexadecimal; unit=NAME (gpuvmk registers);
  op=KIND. Several values, divided by commas, are alternatives; all conditions must hold. bar, range and unit are about
  accesses and leave other events alone. Losses and notes are never left out.")]
pub struct Args {
    /// The trace; `-` is standard input.
    file: PathBuf,
    /// The file to write, compressed if its name ends in .gz or .xz.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// Leave out when each entry was and how long it took: the same driver then leaves the same file, and a
    /// small one.
    #[arg(long)]
    no_times: bool,
    /// Whose units are meant: a chip of gpuvmk's, or with --rnndb one of the database [default: the trace's
    /// chip]
    #[arg(long)]
    chip: Option<String>,
    /// What is wanted.
    #[arg(value_name = "CONDITION")]
    conditions: Vec<String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let trace = open(&args.file)?;
    let mut header = trace.header().clone();
    let set = args.chip.as_deref().map(named_set).transpose()?.or(Chip::of(&header).0);
    let filter = Filter::parse(args.conditions.iter().map(String::as_str), set)?;
    let said: Vec<_> = header.filter.take().into_iter().chain(args.conditions.iter().cloned()).collect();
    header.filter = (!said.is_empty()).then(|| said.join(" "));
    if args.no_times {
        (header.unix_nanos, header.monotonic_nanos) = (0, 0);
    }
    let mut file = Packed::create(&args.output, std::slice::from_ref(&args.file))?;
    let cannot = || format!("Cannot write {}", args.output.display());
    let mut writer = Writer::new(&mut file, &header).with_context(cannot)?;
    let read = each(trace, &args.file, |entry| {
        if filter.wants(&entry.event) {
            let entry = if args.no_times { without_times(entry) } else { entry };
            writer.push(&entry).with_context(cannot)?;
        }
        Ok(true)
    });
    // Entries before damage are kept.
    writer.finish().with_context(cannot)?;
    file.finish().with_context(cannot)?;
    read.map(|()| ExitCode::SUCCESS)
}

fn without_times(mut entry: Entry) -> Entry {
    entry.nanos = 0;
    if let Event::Access(access) = &mut entry.event {
        access.took = 0;
    }
    entry
}
