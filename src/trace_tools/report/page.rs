//! The page: HTML that is well-formed XML, too, with all of its style and pictures in itself.

use std::fmt::{self, Display, Formatter, Write as _};

use anyhow::Context;

use super::super::stat::{QUANTILES, name};
use super::pictures;
use super::subject::Subject;
use gpuvmk_trace::event::Kind;
use gpuvmk_trace::turns::Turns;
use gpuvmk_trace::{Direction, text};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:1040px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.5em}h2{font-size:1.25em;border-bottom:1px solid #ccc;margin-top:2.2em}h3{font-size:1.05em}\
table{border-collapse:collapse;margin:.8em 0}td,th{padding:.15em .8em;text-align:right;border-bottom:1px solid #eee}\
td.l,th.l{text-align:left}code{font-family:ui-monospace,monospace;font-size:.92em}svg{max-width:100%;height:auto}\
.bad{color:#a00;font-weight:600}.bar{display:inline-block;height:.75em;background:#4878a8}";

/// Text in which nothing is markup. Traces are not trusted.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            // Characters that XML does not allow even so.
            character if character.is_control() => write!(f, "\u{fffd}"),
            character => f.write_char(character),
        })
    }
}

/// All of it.
pub(super) fn page(subjects: &[Subject], top: usize) -> anyhow::Result<String> {
    let mut to = String::new();
    write_page(subjects, top, &mut to).context("Cannot write the page")?;
    Ok(to)
}

fn write_page(subjects: &[Subject], top: usize, to: &mut String) -> anyhow::Result<()> {
    write!(
        to,
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head><meta charset=\"utf-8\"/>\
         <title>gpuvmk trace report</title><style>{STYLE}</style></head>\n<body><h1>Trace report</h1>\n"
    )?;
    if subjects.len() > 1 {
        shares(subjects, to)?;
    }
    for subject in subjects {
        one(subject, top, to)?;
    }
    writeln!(to, "<p>Made by gpuvmk {}.</p></body></html>", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}

/// How the traces compare.
fn shares(subjects: &[Subject], to: &mut String) -> fmt::Result {
    let columns: [(&str, &[Kind]); 2] =
        [("accesses", &[Kind::Read, Kind::Write]), ("doorbells", &[Kind::Doorbell])];
    let count =
        |subject: &Subject, kinds: &[Kind]| -> u64 { kinds.iter().map(|kind| subject.all.kind(*kind)).sum() };
    writeln!(to, "<h2>Shares</h2>")?;
    writeln!(to, "<table><tr><th class=\"l\">trace</th><th class=\"l\">VM</th>")?;
    columns.iter().try_for_each(|(word, _)| write!(to, "<th>{word}</th><th class=\"l\"></th>"))?;
    writeln!(to, "</tr>")?;
    for subject in subjects {
        let (file, vm) = (Escaped(&subject.name), Escaped(&subject.header.source));
        write!(to, "<tr><td class=\"l\">{file}</td><td class=\"l\">{vm}</td>")?;
        for (_, kinds) in columns {
            let all: u64 = subjects.iter().map(|subject| count(subject, kinds)).sum();
            let percent = count(subject, kinds) as f64 * 100.0 / (all.max(1) as f64);
            write!(
                to,
                "<td>{}</td><td class=\"l\"><span class=\"bar\" style=\"width:{percent:.1}px\"></span> {percent:.1} %</td>",
                count(subject, kinds)
            )?;
        }
        writeln!(to, "</tr>")?;
    }
    writeln!(to, "</table>")
}

/// How long each VM had each engine.
fn engines(turns: &Turns, to: &mut String) -> fmt::Result {
    let sums = turns.sums();
    if sums.is_empty() {
        return Ok(());
    }
    writeln!(
        to,
        "<h3>Engines</h3><table><tr><th class=\"l\">engine</th><th class=\"l\">VM</th><th>ms</th><th class=\"l\">part</th></tr>"
    )?;
    for ((engine, vm), nanos) in &sums {
        let all: u64 = sums.iter().filter(|((other, _), _)| other == engine).map(|(_, nanos)| nanos).sum();
        let percent = *nanos as f64 * 100.0 / (all.max(1) as f64);
        writeln!(
            to,
            "<tr><td class=\"l\">{}</td><td class=\"l\">{}</td><td>{:.1}</td>\
             <td class=\"l\"><span class=\"bar\" style=\"width:{percent:.1}px\"></span> {percent:.1} %</td></tr>",
            Escaped(engine),
            Escaped(vm),
            *nanos as f64 / 1e6
        )?;
    }
    writeln!(to, "</table>")
}

fn one(subject: &Subject, top: usize, to: &mut String) -> anyhow::Result<()> {
    let Subject { name: file, header, set, all, timeline, turns, damage } = subject;
    writeln!(to, "<h2>{}</h2>", Escaped(file))?;
    if let Some(damage) = damage {
        writeln!(to, "<p class=\"bad\">Read up to here only: {}</p>", Escaped(damage))?;
    }
    let seconds = all.span.map_or(0.0, |(first, last)| last.saturating_sub(first) as f64 / 1e9);
    let chip = set.map_or("unknown", |set| set.chip);
    writeln!(
        to,
        "<p><b>{}</b>, chip {}, recorded by {}. {} entries in {seconds:.3} s; <span{}>{} lost</span>, {} out of order.</p>",
        Escaped(&header.source),
        Escaped(chip),
        Escaped(&header.program),
        all.entries,
        if all.lost > 0 { " class=\"bad\"" } else { "" },
        all.lost,
        all.disordered
    )?;
    writeln!(to, "<h3>Over time</h3>")?;
    to.push_str(&pictures::timeline(timeline)?);
    writeln!(to, "<h3>Kinds</h3><table><tr><th class=\"l\">kind</th><th>entries</th></tr>")?;
    for kind in Kind::ALL.into_iter().filter(|kind| all.kind(*kind) > 0) {
        writeln!(to, "<tr><td class=\"l\">{}</td><td>{}</td></tr>", kind.word(), all.kind(kind))?;
    }
    writeln!(to, "</table>")?;
    engines(turns, to)?;
    for (direction, word) in [(Direction::Read, "Reads"), (Direction::Write, "Writes")] {
        let took = all.durations(direction);
        if took.is_empty() {
            continue;
        }
        let quantiles =
            QUANTILES.map(|(name, q)| format!("{name} {:.1} us", took.value_at_quantile(q) as f64 / 1e3));
        writeln!(to, "<h3>{word}: how long they took</h3><p>{}</p>", quantiles.join(", "))?;
        to.push_str(&pictures::histogram(took)?);
    }
    if all.kind(Kind::Read).saturating_add(all.kind(Kind::Write)) == 0 {
        return Ok(());
    }
    writeln!(
        to,
        "<h3>Where</h3><table><tr><th class=\"l\">place</th><th>offset</th><th class=\"l\">register, or 64 KiB of memory</th>\
         <th>reads</th><th>writes</th></tr>"
    )?;
    for (place, offset, count) in all.top(top) {
        writeln!(
            to,
            "<tr><td class=\"l\">{}</td><td><code>{offset:#x}</code></td><td class=\"l\"><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            text::place(place),
            Escaped(&name(place, offset, *set)),
            count.reads,
            count.writes
        )?;
    }
    writeln!(
        to,
        "</table><h3>Phases</h3><table><tr><th>at s</th><th>ms</th><th>reads</th><th>writes</th><th class=\"l\">units</th></tr>"
    )?;
    for phase in &all.phases {
        let units: Vec<_> =
            phase.top_units(4).into_iter().map(|(unit, count)| format!("{unit} {count}")).collect();
        writeln!(
            to,
            "<tr><td>{:.3}</td><td>{:.1}</td><td>{}</td><td>{}</td><td class=\"l\">{}</td></tr>",
            phase.first as f64 / 1e9,
            phase.last.saturating_sub(phase.first) as f64 / 1e6,
            phase.accesses.reads,
            phase.accesses.writes,
            Escaped(&units.join(", "))
        )?;
    }
    writeln!(to, "</table>")?;
    Ok(())
}
