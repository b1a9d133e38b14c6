//! `gpuvmk trace stat FILE`

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::input::{Chip, each, open};
use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_output::print;
use gpuvmk_trace::event::Kind;
use gpuvmk_trace::stat::{Phase, Statistics};
use gpuvmk_trace::text;
use gpuvmk_trace::{Access, Direction, Place};

/// Arguments of `gpuvmk trace stat`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  gpuvmk trace stat vm1.trace\n  gpuvmk trace stat --top 50 --pause-ms 20 --json vm1.trace"
)]
pub struct Args {
    /// The trace; `-` is standard input.
    file: PathBuf,
    /// How many registers to show.
    #[arg(long, default_value_t = 20)]
    top: usize,
    /// A pause of so many milliseconds ends a phase, as a reset does.
    #[arg(long, default_value_t = 100)]
    pause_ms: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let trace = open(&args.file)?;
    let mut chip = Chip::of(trace.header());
    let mut all = Statistics::new(args.pause_ms.saturating_mul(1_000_000));
    let read = each(trace, &args.file, |entry| {
        let names = chip.see(&entry);
        all.add(&entry, &names);
        Ok(true)
    });
    let text = if args.json {
        format!("{}\n", to_json(&all, chip.0, args.top))
    } else {
        // Writing to memory cannot fail.
        let mut text = String::new();
        let _ = describe(&all, chip.0, args.top, &mut text);
        text
    };
    print(&text)?;
    read.map(|()| ExitCode::SUCCESS)
}

/// The name of a place, for people.
pub(super) fn name(place: Place, offset: u64, set: Option<&'static RegisterSet>) -> String {
    let access = Access { direction: Direction::Read, place, size: 4, offset, value: 0, took: 0 };
    match text::register(&access, &set) {
        Some((definition, Some(index))) => format!("{}[{index}]", definition.name),
        Some((definition, None)) => definition.name.to_owned(),
        None => String::new(),
    }
}

pub(super) const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];

fn describe(
    all: &Statistics,
    set: Option<&'static RegisterSet>,
    top: usize,
    to: &mut String,
) -> std::fmt::Result {
    let seconds = all.span.map_or(0.0, |(first, last)| last.saturating_sub(first) as f64 / 1e9);
    writeln!(
        to,
        "{} entries in {seconds:.3} s; {} lost, {} out of order",
        all.entries, all.lost, all.disordered
    )?;
    let kinds = Kind::ALL.into_iter().filter(|kind| all.kind(*kind) > 0);
    writeln!(
        to,
        "{}",
        kinds.map(|kind| format!("{} {}", all.kind(kind), kind.word())).collect::<Vec<_>>().join(", ")
    )?;
    writeln!(to, "\n{:8} {:>12} {:>12}", "place", "reads", "writes")?;
    for (place, count) in all.places() {
        writeln!(to, "{:8} {:>12} {:>12}", text::place(place), count.reads, count.writes)?;
    }
    writeln!(
        to,
        "\n{:8} {:>12} {:>12} {:>12}  register, or 64 KiB of memory",
        "place", "offset", "reads", "writes"
    )?;
    for (place, offset, count) in all.top(top) {
        writeln!(
            to,
            "{:8} {offset:>#12x} {:>12} {:>12}  {}",
            text::place(place),
            count.reads,
            count.writes,
            name(place, offset, set)
        )?;
    }
    for (direction, word) in [(Direction::Read, "reads"), (Direction::Write, "writes")] {
        let took = all.durations(direction);
        if !took.is_empty() {
            let quantiles =
                QUANTILES.map(|(name, q)| format!("{name} {:.1} us", took.value_at_quantile(q) as f64 / 1e3));
            writeln!(to, "\n{word} took {}", quantiles.join(", "))?;
            bars(took, to)?;
        }
    }
    writeln!(to, "\n{:>12} {:>10} {:>10} {:>10}  units", "phase at s", "ms", "reads", "writes")?;
    for phase in &all.phases {
        let units: Vec<_> =
            phase.top_units(4).into_iter().map(|(unit, count)| format!("{unit} {count}")).collect();
        writeln!(
            to,
            "{:>12.3} {:>10.1} {:>10} {:>10}  {}",
            phase.first as f64 / 1e9,
            phase.last.saturating_sub(phase.first) as f64 / 1e6,
            phase.accesses.reads,
            phase.accesses.writes,
            units.join(", ")
        )?;
    }
    Ok(())
}

/// A histogram in powers of two.
fn bars(took: &Histogram<u64>, to: &mut String) -> std::fmt::Result {
    let steps: Vec<_> =
        took.iter_log(256, 2.0).filter(|step| step.count_since_last_iteration() > 0).collect();
    let most = steps.iter().map(|step| step.count_since_last_iteration()).max().unwrap_or(1);
    for step in steps {
        let count = step.count_since_last_iteration();
        let length = usize::try_from(count.saturating_mul(50).div_ceil(most)).unwrap_or(50);
        writeln!(
            to,
            "  up to {:>10.1} us {count:>10} {}",
            step.value_iterated_to() as f64 / 1e3,
            "#".repeat(length)
        )?;
    }
    Ok(())
}

fn to_json(all: &Statistics, set: Option<&'static RegisterSet>, top: usize) -> Value {
    let took = |direction| -> Value {
        let took = all.durations(direction);
        if took.is_empty() {
            return Value::Null;
        }
        QUANTILES.iter().map(|(name, q)| ((*name).to_owned(), json!(took.value_at_quantile(*q)))).collect()
    };
    let kinds: Value = Kind::ALL
        .into_iter()
        .filter(|kind| all.kind(*kind) > 0)
        .map(|kind| (kind.word().to_owned(), json!(all.kind(kind))))
        .collect();
    let places: Value = all
        .places()
        .into_iter()
        .map(|(place, count)| (text::place(place).to_owned(), json!(count)))
        .collect();
    let spots: Vec<_> = all
        .top(top)
        .into_iter()
        .map(|(place, offset, count)| {
            json!({
                "place": text::place(place), "offset": offset, "name": name(place, offset, set),
                "reads": count.reads, "writes": count.writes,
            })
        })
        .collect();
    let phase = |phase: &Phase| {
        let units: Value =
            phase.top_units(4).into_iter().map(|(unit, count)| (unit.to_owned(), json!(count))).collect();
        json!({
            "first_ns": phase.first, "last_ns": phase.last, "reads": phase.accesses.reads,
            "writes": phase.accesses.writes, "units": units,
        })
    };
    json!({
        "entries": all.entries, "lost": all.lost, "out_of_order": all.disordered,
        "first_ns": all.span.map(|span| span.0), "last_ns": all.span.map(|span| span.1),
        "kinds": kinds, "places": places, "top": spots,
        "read_ns": took(Direction::Read), "write_ns": took(Direction::Write),
        "phases": all.phases.iter().map(phase).collect::<Vec<_>>(),
    })
}
