//! The page of a run: HTML that is well-formed XML, too, with all of its style and pictures in itself.

use std::fmt::{self, Display, Formatter, Write as _};

use anyhow::Result;

use super::counts::Counts;
use super::limits::Judged;
use super::scaling::Scaling;
use super::table::{MARK, MARKED, Row, Table};
use super::{Found, Run, pictures};

/// As that of `gpuvmk trace report`.
const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:1040px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.5em}h2{font-size:1.25em;border-bottom:1px solid #ccc;margin-top:2.2em}h3{font-size:1.05em}\
table{border-collapse:collapse;margin:.8em 0}td,th{padding:.15em .6em;text-align:right;border-bottom:1px solid #eee}\
td.l,th.l{text-align:left}svg{max-width:100%;height:auto}\
.bad{color:#a00;font-weight:600}.bar{display:inline-block;height:.75em;background:#4878a8}";
/// Pixels of a bar whose figure is as fast mediated as natively.
const BAR: f64 = 60.0;
const LONGEST_BAR: f64 = 180.0;

/// Text in which nothing is markup.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\n' => f.write_char('\n'),
            character if character.is_control() => f.write_char('\u{fffd}'),
            character => f.write_char(character),
        })
    }
}

/// All of it.
pub fn page(run: &Run) -> Result<String> {
    let mut to = String::new();
    write!(
        to,
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\"><head><meta charset=\"utf-8\"/>\
         <title>gpuvmk benchmark</title><style>{STYLE}</style></head>\n<body><h1>Benchmark</h1>\n"
    )?;
    writeln!(to, "<p>Medians of {} boots each. Only ratios of one run mean anything.</p>", run.rounds)?;
    list(&mut to, "bad", &run.problems())?;
    writeln!(to, "<h2>Machine</h2><table>")?;
    for (name, fact) in run.host.facts() {
        writeln!(to, "<tr><td class=\"l\">{name}</td><td class=\"l\">{}</td></tr>", Escaped(&fact))?;
    }
    writeln!(to, "</table>")?;
    for found in &run.chips {
        chip(&mut to, found)?;
    }
    for (title, measured) in [("Page tables", &run.flush), ("Many vGPUs on one aggregator", &run.density)] {
        writeln!(to, "<h2>{title}</h2><pre>{}</pre>", Escaped(&measured.text))?;
    }
    writeln!(to, "<p>Made by gpuvmk {}.</p></body></html>", env!("CARGO_PKG_VERSION"))?;
    Ok(to)
}

fn chip(to: &mut String, found: &Found) -> Result<()> {
    writeln!(to, "<h2>{}, Linux {}</h2>", found.chip, found.kernel)?;
    judged(to, &found.judged())?;
    times(to, &found.table)?;
    put(to, pictures::of_table(&found.table)?)?;
    if !found.scaling.stages.is_empty() {
        scaling(to, &found.scaling)?;
        put(to, pictures::of_scaling(&found.scaling.stages)?)?;
    }
    if !found.left_out.is_empty() {
        writeln!(to, "<h3>Left out</h3>")?;
        list(to, "", &found.left_out)?;
    }
    Ok(())
}

fn put(to: &mut String, pictures: Vec<(String, String)>) -> fmt::Result {
    for (title, picture) in pictures {
        writeln!(to, "<h3>{}</h3>{picture}", Escaped(&title))?;
    }
    Ok(())
}

fn list(to: &mut String, class: &str, lines: &[String]) -> fmt::Result {
    if lines.is_empty() {
        return Ok(());
    }
    writeln!(to, "<ul>")?;
    lines.iter().try_for_each(|line| writeln!(to, "<li class=\"{class}\">{}</li>", Escaped(line)))?;
    writeln!(to, "</ul>")
}

fn judged(to: &mut String, all: &[Judged]) -> fmt::Result {
    if all.is_empty() {
        return writeln!(to, "<p>This chip has no native form: there is nothing to compare with.</p>");
    }
    writeln!(
        to,
        "<h3>Mediated over native</h3><table><tr><th class=\"l\">figure</th><th class=\"l\">what</th><th>found</th><th>limit</th></tr>"
    )?;
    for figure in all {
        let class = if figure.ok() { "" } else { " class=\"bad\"" };
        let word = if figure.at_least { "at least" } else { "at most" };
        writeln!(
            to,
            "<tr><td class=\"l\">{}</td><td class=\"l\">{}</td><td{class}>{:.3}</td><td>{word} {}</td></tr>",
            figure.name, figure.what, figure.found, figure.limit
        )?;
    }
    writeln!(to, "</table>")
}

fn times(to: &mut String, table: &Table) -> fmt::Result {
    writeln!(
        to,
        "<h3>Times, and what one operation does</h3><p>Reads stop the guest's processor; writes are posted; memory is VRAM through a \
         window or a BAR; runs are changes of shadow page tables.</p><table><tr><th class=\"l\">operation</th><th>native</th>\
         <th>mediated</th><th>ratio</th><th class=\"l\"></th><th>native reads/writes/memory</th><th>mediated</th></tr>"
    )?;
    for row in &table.rows {
        one(to, row)?;
    }
    writeln!(to, "</table>")?;
    if table.is_marked() {
        writeln!(to, "<p>{MARK} {MARKED}.</p>")?;
    }
    Ok(())
}

fn one(to: &mut String, row: &Row) -> fmt::Result {
    let counts = |counts: Option<Counts>| counts.map_or(String::new(), |counts| counts.to_string());
    write!(to, "<tr><td class=\"l\">{}</td>", Escaped(row.title()))?;
    match (row.native, row.ratio()) {
        (Some(native), Some(ratio)) => write!(
            to,
            "<td>{native:.1} {unit}</td><td>{:.1} {unit}</td><td>{ratio:.3}{}</td>\
             <td class=\"l\"><span class=\"bar\" style=\"width:{:.0}px\"></span></td>",
            row.mediated,
            row.mark(),
            (ratio * BAR).clamp(1.0, LONGEST_BAR),
            unit = row.unit()
        )?,
        _ => write!(to, "<td>-</td><td>{:.1} {}</td><td>-</td><td></td>", row.mediated, row.unit())?,
    }
    writeln!(to, "<td>{}</td><td>{}</td></tr>", counts(row.native_counts), counts(row.mediated_counts))
}

fn scaling(to: &mut String, found: &Scaling) -> fmt::Result {
    writeln!(
        to,
        "<h3>Many VMs</h3><table><tr><th>VMs</th><th>MB/s together</th><th>over one</th><th>GPU busy</th><th>Jain</th><th>MiB each</th>\
         <th>started</th><th>first ready s</th><th>last ready s</th></tr>"
    )?;
    let over = found.over_one();
    for stage in &found.stages {
        let over = over.get(&stage.vms).map_or("-".to_owned(), |over| format!("{over:.3}"));
        writeln!(
            to,
            "<tr><td>{}</td><td>{:.0}</td><td>{over}</td><td>{:.2}</td><td>{:.3}</td><td>{:.2}</td><td>{}</td><td>{:.1}</td><td>{:.1}</td></tr>",
            stage.vms,
            stage.mb_s,
            stage.busy,
            stage.fairness,
            stage.most_memory_mib,
            stage.started,
            stage.first_ready_s,
            stage.last_ready_s
        )?;
    }
    writeln!(to, "</table>")
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use gpuvmk_lab::chip::Chip;
    use gpuvmk_lab::kernel::KernelSeries;

    use super::super::super::own::Measured;
    use super::super::host::Host;
    use super::super::scaling::Stage;
    use super::super::table::Samples;
    use super::*;

    fn run() -> Run {
        let samples = |factor: f64| -> Samples {
            ["latency_4k_us_p50", "copy_1m_us_p50", "map_gart_4k_us_p50", "map_gart_1m_us_p50", "probe_ms"]
                .iter()
                .map(|name| ((*name).to_owned(), vec![100.0 * factor]))
                .collect()
        };
        let counts = BTreeMap::from([("latency_4k".to_owned(), Counts { reads: 4.0, ..Counts::default() })]);
        let paired = BTreeSet::from(["latency_4k_us_p50".to_owned()]);
        let stage = |vms: usize| Stage {
            vms,
            mb_s: 5000.0,
            busy: 0.9,
            fairness: 1.0,
            memory_mib: 2.0,
            most_memory_mib: 2.5,
            started: vms,
            first_ready_s: 8.0,
            last_ready_s: 9.0,
        };
        let found = Found {
            chip: Chip::GF100,
            kernel: KernelSeries::V6_12,
            table: Table::new(&samples(1.0), &samples(1.1), &counts, &counts, &paired),
            totals: BTreeMap::new(),
            driver: None,
            scaling: Scaling { stages: vec![stage(1), stage(2)], ..Scaling::default() },
            failed: Vec::new(),
            left_out: vec!["gart_1g: <no room>".to_owned()],
        };
        let host = Host {
            date: "today".to_owned(),
            processor: "A & B".to_owned(),
            processors: 2,
            memory_mib: 1.0,
            kernel: "6".to_owned(),
            qemu: "11.1".to_owned(),
            accelerator: "tcg",
            load: "0.1".to_owned(),
        };
        let own = |text: &str| Measured {
            text: text.to_owned(),
            figures: serde_json::json!({ "flush": {} }),
            ok: true,
        };
        let (flush, density) = (own("a walk"), own("64 < 65"));
        Run { host, rounds: 1, bar3: "default", chips: vec![found], flush, density }
    }

    #[test]
    fn page_has_tables_and_pictures_and_takes_nothing_from_elsewhere() {
        let page = page(&run()).unwrap();
        assert_eq!(page.matches("<svg").count(), 5, "copies, one place, and three of many VMs");
        assert!(page.contains("A &amp; B") && page.contains("gart_1g: &lt;no room&gt;"));
        assert!(page.contains("<pre>a walk</pre>") && page.contains("<pre>64 &lt; 65</pre>"));
        assert!(page.contains("<td>1.100</td>") && page.contains("4.0/0.0/0"), "{page}");
        assert_eq!(page.matches("<td>1.100*</td>").count(), 1, "one row is marked");
        assert!(page.contains("<p>* both GPUs in one guest"));
        assert!(!page.contains("src=") && !page.contains("<script") && !page.contains("<?xml"));
        assert_eq!(page.matches("<tr>").count(), page.matches("</tr>").count());
    }
}
