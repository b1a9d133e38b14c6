//! `gpuvmk trace report FILE... --output FILE`: one page that needs nothing else.

mod page;
mod pictures;
mod subject;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;

use self::subject::Subject;
use super::input::{Chip, create, each, open};
use gpuvmk_trace::stat::Statistics;
use gpuvmk_trace::timeline::Timeline;
use gpuvmk_trace::turns::Turns;

/// Arguments of `gpuvmk trace report`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuvmk trace report vm1.trace --output vm1.html\n  \
                  gpuvmk trace report vm1.trace vm2.trace --output both.html\n\n\
                  The page has everything in itself: pictures, no scripts, nothing from elsewhere. With several traces it begins\n\
                  with the part that each has in accesses and doorbells.")]
pub struct Args {
    /// Traces; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Where to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// How many registers to show.
    #[arg(long, default_value_t = 30)]
    top: usize,
    /// A pause of so many milliseconds ends a phase, as a reset does.
    #[arg(long, default_value_t = 100)]
    pause_ms: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut subjects = Vec::new();
    for file in &args.files {
        let trace = open(file)?;
        let header = trace.header().clone();
        let mut chip = Chip::of(&header);
        let mut all = Statistics::new(args.pause_ms.saturating_mul(1_000_000));
        let (mut timeline, mut turns) = (Timeline::default(), Turns::default());
        let read = each(trace, file, |entry| {
            let names = chip.see(&entry);
            all.add(&entry, &names);
            timeline.add(entry.nanos, entry.event.kind());
            turns.add(entry.nanos, &entry.event);
            Ok(true)
        });
        let damage = read.err().map(|error| format!("{error:#}"));
        subjects.push(Subject {
            name: file.display().to_string(),
            header,
            set: chip.0,
            all,
            timeline,
            turns,
            damage,
        });
    }
    let page = page::page(&subjects, args.top)?;
    let mut file = create(&args.output, &args.files)?;
    file.write_all(page.as_bytes()).with_context(|| format!("Cannot write {}", args.output.display()))?;
    // Entries that could be read are in the page. Damage is reported there, and here.
    let damaged = subjects.iter().filter_map(|subject| subject.damage.as_deref());
    let mut code = ExitCode::SUCCESS;
    for damage in damaged {
        gpuvmk_output::complain(format_args!("gpuvmk: {damage}"));
        code = ExitCode::FAILURE;
    }
    Ok(code)
}
