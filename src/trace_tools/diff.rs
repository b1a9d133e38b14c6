//! `gpuvmk trace diff FILE FILE`

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::input::{Chip, open};
use gpuvmk_chip::register_sets::RegisterSet;
use gpuvmk_output::print;
use gpuvmk_trace::diff::{Comparison, Difference, Step, compare};
use gpuvmk_trace::formats::json_lines;
use gpuvmk_trace::{Access, Entry, Event, Filter, text};

/// How many accesses of a difference are shown.
const SHOWN: usize = 8;

/// Arguments of `gpuvmk trace diff`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  gpuvmk trace diff good.trace bad.trace
  gpuvmk trace diff --leave-out unit=PTIMER capture.txt.xz vm1.trace
Only accesses are compared, without their times; reads of one register directly after each other count as one. Entries that
a trace has lost are said, and are no difference. The exit status is 0 if there is no difference and 1 if there is one.")]
pub struct Args {
    /// The first trace, or a capture of Linux's mmiotrace; `-` is standard input.
    first: PathBuf,
    /// The second.
    second: PathBuf,
    /// How many differences to show.
    #[arg(long, default_value_t = 1)]
    most: usize,
    /// Leave these accesses out, as `gpuvmk trace filter` would choose them; may be repeated: all conditions
    /// must hold.
    #[arg(long, value_name = "CONDITION")]
    leave_out: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (mut first, mut second) = (Accesses::open(&args.first, args)?, Accesses::open(&args.second, args)?);
    let found = compare(first.by_ref(), second.by_ref(), args.most.max(1));
    // A difference may be nothing but the damage.
    for accesses in [&mut first, &mut second] {
        if let Some(damage) = accesses.damage.take() {
            return Err(damage);
        }
    }
    let set = first.chip.0;
    let lost = [first.lost, second.lost];
    let text = if args.json {
        format!("{}\n", to_json(&found, set, lost))
    } else {
        let mut lines = describe(&found, set, args);
        lines.extend([&args.first, &args.second].into_iter().zip(lost).filter(|(_, lost)| *lost > 0).map(
            |(file, lost)| {
                format!("{} has lost {lost} entries, which may be a difference or hide one", file.display())
            },
        ));
        lines.join("\n") + "\n"
    };
    print(&text)?;
    Ok(if found.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The accesses of a trace that count.
struct Accesses {
    source: gpuvmk_trace::Source,
    chip: Chip,
    leave_out: Option<Filter>,
    file: PathBuf,
    /// Lost entries that the trace reports, up to the place where reading ended.
    lost: u64,
    damage: Option<anyhow::Error>,
}

impl Accesses {
    fn open(file: &Path, args: &Args) -> anyhow::Result<Self> {
        let source = open(file)?;
        let chip = Chip::of(source.header());
        let leave_out = (!args.leave_out.is_empty())
            .then(|| Filter::parse(args.leave_out.iter().map(String::as_str), chip.0))
            .transpose()?;
        Ok(Self { source, chip, leave_out, file: file.to_owned(), lost: 0, damage: None })
    }
}

impl Iterator for Accesses {
    type Item = (u64, Access);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.source.next()? {
                Ok(entry) => entry,
                Err(error) => {
                    let place = format!("In {}", self.file.display());
                    self.damage = Some(anyhow::Error::from(error).context(place));
                    return None;
                }
            };
            self.chip.see(&entry);
            if let Event::Lost { count } = entry.event {
                self.lost = self.lost.saturating_add(count);
            }
            if let Event::Access(access) = entry.event
                && !self.leave_out.as_ref().is_some_and(|filter| filter.wants_access(&access))
            {
                return Some((entry.nanos, access));
            }
        }
    }
}

/// The differences, line by line.
fn describe(found: &Comparison, set: Option<&'static RegisterSet>, args: &Args) -> Vec<String> {
    let (first, second) = (args.first.display(), args.second.display());
    if found.differences.is_empty() {
        return vec![format!("No difference in {} accesses (repeated reads count once)", found.same)];
    }
    let mut lines = vec![format!("< {first}"), format!("> {second}")];
    for difference in &found.differences {
        match difference {
            Difference::Value { first, second } => {
                lines.push(format!(
                    "access {} of the first and {} of the second read the same and got different values:",
                    first.number, second.number
                ));
                lines.extend(show('<', &[*first], set));
                lines.extend(show('>', &[*second], set));
            }
            Difference::Accesses { first, second } => {
                lines.push(explain(first, second));
                lines.extend(show('<', first, set));
                lines.extend(show('>', second, set));
            }
        }
    }
    let more = if found.more { "; there are more differences (--most)" } else { "" };
    lines.push(format!("{} accesses are the same{more}", found.same));
    lines
}

/// A difference, in words.
fn explain(first: &[Step], second: &[Step]) -> String {
    let at = |steps: &[Step]| steps.first().map_or(0, |step| step.number);
    match (first, second) {
        (some, []) => format!("only the first has {} accesses, from its access {}:", some.len(), at(some)),
        ([], some) => format!("only the second has {} accesses, from its access {}:", some.len(), at(some)),
        ([one], [other])
            if one.access.offset == other.access.offset && one.access.place == other.access.place =>
        {
            format!(
                "access {} of the first and {} of the second do different things to one register:",
                one.number, other.number
            )
        }
        _ => format!(
            "from access {} of the first and {} of the second on they go different ways, for {} and {} accesses:",
            at(first),
            at(second),
            first.len(),
            second.len()
        ),
    }
}

fn show(mark: char, steps: &[Step], set: Option<&'static RegisterSet>) -> Vec<String> {
    let shown = steps.iter().take(SHOWN).map(|step| {
        let mut line = Vec::new();
        text::line(&Entry { nanos: step.nanos, event: Event::Access(step.access) }, &set, &mut line);
        let times = if step.times > 1 { format!(" ({} reads)", step.times) } else { String::new() };
        format!("{mark} {}{times}", String::from_utf8_lossy(&line).trim_end())
    });
    let more = steps.len().checked_sub(SHOWN).filter(|more| *more > 0);
    shown.chain(more.map(|more| format!("{mark} and {more} more"))).collect()
}

fn to_json(found: &Comparison, set: Option<&'static RegisterSet>, lost: [u64; 2]) -> Value {
    let step = |step: &Step| {
        let mut value = json_lines::details(&Event::Access(step.access), &set);
        value["kind"] = step.access.kind().word().into();
        value["number"] = step.number.into();
        value["ns"] = step.nanos.into();
        value["reads"] = step.times.into();
        value
    };
    let steps = |steps: &[Step]| steps.iter().take(SHOWN).map(step).collect::<Vec<_>>();
    let differences: Vec<_> = found
        .differences
        .iter()
        .map(|difference| match difference {
            Difference::Value { first, second } => {
                json!({ "kind": "value", "first": step(first), "second": step(second) })
            }
            Difference::Accesses { first, second } => json!({
                "kind": "accesses", "first": steps(first), "second": steps(second),
                "first_count": first.len(), "second_count": second.len(),
            }),
        })
        .collect();
    json!({ "same": found.same, "differences": differences, "more": found.more, "lost": lost })
}
