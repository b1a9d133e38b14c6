//! `gpuvmk trace convert FILE... --output FILE`

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::ValueEnum;

use super::input::{Chip, open};
use super::packed::Packed;
use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_trace::formats::chrome::Events;
use gpuvmk_trace::formats::csv::Rows;
use gpuvmk_trace::formats::json_lines;
use gpuvmk_trace::formats::mmiotrace::{Bases, Exporter};
use gpuvmk_trace::writer::Writer;
use gpuvmk_trace::{Entry, Header, Source};

/// Arguments of `gpuvmk trace convert`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpuvmk trace convert vm1.trace --output vm1.mmiotrace.xz
  gpuvmk trace convert capture.txt.gz --output capture.trace
  gpuvmk trace convert vm1.trace vm2.trace gpu0.trace --output day.json
The format follows from the name: .trace, .mmiotrace or .txt, .jsonl, .csv, .json (Chrome's, for Perfetto), each with .gz or
.xz behind it if it is to be compressed. Several traces of one host are put in order by their clocks; only .jsonl, .csv
and .json can say whose an entry is.")]
pub struct Args {
    /// The traces, or captures of Linux's mmiotrace, compressed or not; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The file to write.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// The format, if it does not follow from the name.
    #[arg(long, value_enum)]
    to: Option<Format>,
}

/// What can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// gpuvmk's own.
    Trace,
    /// The text of Linux's mmiotrace.
    Mmiotrace,
    /// JSON, an object in each line.
    JsonLines,
    /// Comma-separated values.
    Csv,
    /// Chrome's JSON of events, which Perfetto opens.
    Chrome,
}

impl Format {
    fn of(name: &Path) -> anyhow::Result<Self> {
        let plain = name.with_extension("");
        let packed = name.extension().is_some_and(|ending| ending == "gz" || ending == "xz");
        let ending = if packed { plain.extension() } else { name.extension() };
        Ok(match ending.and_then(|ending| ending.to_str()) {
            Some("trace") => Self::Trace,
            Some("mmiotrace" | "txt") => Self::Mmiotrace,
            Some("jsonl") => Self::JsonLines,
            Some("csv") => Self::Csv,
            Some("json") => Self::Chrome,
            _ => anyhow::bail!(
                "The format does not follow from the name {}: it may end in .trace, .mmiotrace, .txt, .jsonl, .csv or .json, \
                 with .gz or .xz behind it, or be told with --to",
                name.display()
            ),
        })
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let format = args.to.map_or_else(|| Format::of(&args.output), Ok)?;
    let one = args.files.len() == 1;
    ensure!(
        one || !matches!(format, Format::Trace | Format::Mmiotrace),
        "Several traces can only be written as .jsonl, .csv or .json"
    );
    let bases = match (format, args.files.first()) {
        (Format::Mmiotrace, Some(file)) if file != Path::new("-") => bases(file)?,
        _ => Bases::default(),
    };
    let mut all = Merged::open(&args.files)?;
    let cannot = || format!("Cannot write {}", args.output.display());
    let mut sink = Packed::create(&args.output, &args.files)?;
    // Entries before damage are written; then comes the error.
    let damage = write(format, &mut all, &bases, &mut sink).with_context(cannot)?;
    sink.finish().with_context(cannot)?;
    damage.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Where the guest put its BARs.
fn bases(file: &Path) -> anyhow::Result<Bases> {
    let source = open(file)?;
    let (header, mut bases) = (source.header().clone(), Bases::default());
    // Damage is reported when the trace is written.
    source.map_while(Result::ok).for_each(|entry| bases.see(&entry, &header));
    Ok(bases)
}

/// Writes everything in a format; returns the damage that ended it.
fn write(
    format: Format,
    all: &mut Merged,
    bases: &Bases,
    sink: &mut Packed,
) -> std::io::Result<Option<anyhow::Error>> {
    let header = all.sources.first().map(|part| part.header.clone()).unwrap_or_default();
    match format {
        Format::Trace => {
            let mut writer = Writer::new(sink, &header)?;
            let damage = all.each(|entry, _, _| writer.push(&entry))?;
            writer.finish()?;
            Ok(damage)
        }
        Format::Mmiotrace => {
            let mut exporter = Exporter::new(sink, &header, bases)?;
            let damage = all.each(|entry, _, _| exporter.push(&entry))?;
            exporter.finish()?;
            Ok(damage)
        }
        Format::JsonLines => all.each(|entry, part, names| json_lines::write(&entry, part.1, &names, sink)),
        Format::Csv => {
            let mut rows = Rows::new(sink)?;
            let damage = all.each(|entry, part, names| rows.push(&entry, part.1, &names))?;
            rows.finish()?;
            Ok(damage)
        }
        Format::Chrome => {
            let names: Vec<_> = all.sources.iter().map(|part| part.header.source.clone()).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let mut events = Events::new(sink, &names)?;
            let damage = all.each(|entry, part, names| events.push(&entry, part.0, &names))?;
            events.finish()?;
            Ok(damage)
        }
    }
}

/// A trace among several.
struct Part {
    header: Header,
    source: Source,
    chip: Chip,
    file: PathBuf,
    /// Difference of its times to those of the earliest trace, in nanoseconds.
    shift: u64,
    next: Option<Entry>,
}

/// Several traces in order of their hosts' clock.
struct Merged {
    sources: Vec<Part>,
    damage: Option<anyhow::Error>,
}

impl Merged {
    fn open(files: &[PathBuf]) -> anyhow::Result<Self> {
        let mut sources = Vec::new();
        for file in files {
            let source = open(file)?;
            let header = source.header().clone();
            let chip = Chip::of(&header);
            sources.push(Part { header, source, chip, file: file.clone(), shift: 0, next: None });
        }
        let first = sources.iter().map(|part| part.header.monotonic_nanos).min().unwrap_or(0);
        let mut merged = Self { sources, damage: None };
        for index in 0..merged.sources.len() {
            if let Some(part) = merged.sources.get_mut(index) {
                part.shift = part.header.monotonic_nanos.saturating_sub(first);
            }
            merged.advance(index);
        }
        Ok(merged)
    }

    /// Reads a trace's next entry; returns the one before.
    fn advance(&mut self, index: usize) -> Option<Entry> {
        let part = self.sources.get_mut(index)?;
        let next = match part.source.next() {
            Some(Ok(entry)) => Some(Entry { nanos: entry.nanos.saturating_add(part.shift), ..entry }),
            Some(Err(error)) => {
                let error = anyhow::Error::from(error).context(format!("In {}", part.file.display()));
                self.damage.get_or_insert(error);
                None
            }
            None => None,
        };
        std::mem::replace(&mut part.next, next)
    }

    /// Hands over every entry with the number and name of its trace and the chip's names.
    fn each(
        &mut self,
        mut take: impl FnMut(Entry, (usize, &str), Option<&'static RegisterSet>) -> std::io::Result<()>,
    ) -> std::io::Result<Option<anyhow::Error>> {
        let time = |part: &Part| part.next.as_ref().map(|entry| entry.nanos);
        let due =
            self.sources.iter().enumerate().filter_map(|(index, part)| Some(Reverse((time(part)?, index))));
        let mut due: BinaryHeap<_> = due.collect();
        while let Some(Reverse((_, index))) = due.pop() {
            let Some(entry) = self.advance(index) else { continue };
            let Some(part) = self.sources.get_mut(index) else { continue };
            let names = part.chip.see(&entry);
            if let Some(nanos) = time(part) {
                due.push(Reverse((nanos, index)));
            }
            take(entry, (index, &part.header.source), names)?;
        }
        Ok(self.damage.take())
    }
}
