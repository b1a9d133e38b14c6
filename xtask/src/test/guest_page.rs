//! The table of docs/guests.md: what guests of each chip and kernel passed, from what the cases said.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::apt::compare_versions;
use gpuvmk_lab::cache::source_tree;
use gpuvmk_lab::chip::Chip;
use gpuvmk_lab::report::ProgramResult;

use crate::cases::Case;
use crate::run_case::CaseResult;

/// Lines of the page between which the table stands.
const BEGIN: &str = "<!-- The table is written by `cargo xtask test --write-docs`. -->";
const END: &str = "<!-- End of the table. -->";

const HEAD: &str = "\
| chip | Linux | nouveau | Mesa | data | faults and hangs | loaded, reset and asleep |
| --- | --- | --- | --- | --- | --- | --- |
";

/// Programs by column. What is in none (the probe itself, and what only keeps a guest busy) is not told.
const COLUMNS: [&[&str]; 3] = [
    &["copy", "exec", "fence", "channels", "fill", "i2m", "bar1", "evict", "sleepers", "compute", "nvk"],
    &["badaddr", "badcopy", "badexec", "badlaunch", "hang"],
    &["reload", "suspend", "residue"],
];
/// The program that says which Mesa it was. It has a word of its own only if it ran shaders.
const VULKAN: &str = "nvk";
/// One of its checks that does.
const SHADER: &str = "constant";

/// A row: a chip with a kernel, and what passed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    nouveau: String,
    mesa: String,
    columns: [String; 3],
}

/// Rows by chip (as old as the catalogue says) and the kernel's version.
type Rows = BTreeMap<(Chip, String), Row>;

fn page(tree: &Path) -> PathBuf {
    tree.join("docs/guests.md")
}

/// Writes what these cases passed; a chip and kernel that none of them had keeps its row.
pub fn write(cases: &[Case], results: &[CaseResult]) -> Result<()> {
    ensure!(results.iter().all(CaseResult::ok), "Nothing is written of a run in which a case failed");
    let path = page(&source_tree());
    let text = fs::read_to_string(&path).with_context(|| format!("Cannot read {}", path.display()))?;
    let mut rows = read(&text)?;
    let found = rows_of(cases, results);
    // A newer kernel of a series takes the place of an older one.
    rows.retain(|(chip, linux), _| {
        !found.keys().any(|(other, newer)| other == chip && series(newer) == series(linux))
    });
    rows.extend(found);
    fs::write(&path, replaced(&text, &rows)?).with_context(|| format!("Cannot write {}", path.display()))
}

/// The first two numbers of a kernel's version.
fn series(linux: &str) -> Vec<&str> {
    linux.split('.').take(2).collect()
}

fn rows_of(cases: &[Case], results: &[CaseResult]) -> Rows {
    let mut passed: BTreeMap<(Chip, String), Vec<&ProgramResult>> = BTreeMap::new();
    for (case, result) in cases.iter().zip(results) {
        for (label, verdict) in &result.guests {
            // What a disturbance left is the first guest's.
            let guest = case.guests.iter().find(|guest| guest.name == label).or(case.guests.first());
            let release = verdict.results.iter().find_map(|result| result.figures.get("kernel")?.as_str());
            let (Some(guest), Some(release)) = (guest, release) else { continue };
            let linux = release.split(['+', '-']).next().unwrap_or(release);
            for result in &verdict.results {
                let gpu = usize::try_from(result.gpu).ok().and_then(|gpu| guest.gpus.get(gpu));
                if let Some(chip) = gpu.filter(|_| result.ok) {
                    passed.entry((*chip, linux.to_owned())).or_default().push(result);
                }
            }
        }
    }
    passed.into_iter().map(|(key, results)| (key, Row::of(&results))).collect()
}

impl Row {
    fn of(passed: &[&ProgramResult]) -> Self {
        let counts = |result: &&&ProgramResult| {
            let shader = result.figures.get("checks").and_then(|checks| checks.get(SHADER));
            result.program != VULKAN || shader.is_some()
        };
        let names: BTreeSet<&str> =
            passed.iter().filter(counts).map(|result| result.program.as_str()).collect();
        let figure = |program: &str, name: &str| {
            let of = passed.iter().find(|result| result.program == program);
            of.and_then(|result| result.figures.get(name)?.as_str()).unwrap_or("-").to_owned()
        };
        let column = |programs: &[&str]| {
            let passed: Vec<_> = programs.iter().copied().filter(|program| names.contains(program)).collect();
            if passed.is_empty() { "-".to_owned() } else { passed.join(" ") }
        };
        // "NVK Mesa 25.0.7-2".
        let driver = figure(VULKAN, "version");
        let mesa = driver.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        Self {
            nouveau: figure("probe", "nouveau"),
            mesa: mesa.map_or("-", |mesa| mesa.split(['-', '~']).next().unwrap_or(mesa)).to_owned(),
            columns: COLUMNS.map(column),
        }
    }

    fn cells(&self) -> [&str; 5] {
        let [data, faults, lives] = &self.columns;
        [&self.nouveau, &self.mesa, data, faults, lives]
    }
}

/// The page's text with these rows.
fn replaced(text: &str, rows: &Rows) -> Result<String> {
    let (before, rest) = text.split_once(BEGIN).with_context(|| format!("docs/guests.md lacks '{BEGIN}'"))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("docs/guests.md lacks '{END}'"))?;
    let mut rows: Vec<_> = rows.iter().collect();
    rows.sort_by(|((chip, linux), _), ((other_chip, other), _)| {
        chip.cmp(other_chip).then(compare_versions(linux, other))
    });
    let rows_of_chips: BTreeSet<Chip> = rows.iter().map(|((chip, _), _)| *chip).collect();
    let lines: String = rows
        .into_iter()
        .map(|((chip, linux), row)| format!("| {chip} | {linux} | {} |\n", row.cells().join(" | ")))
        .collect();
    let has_row = |chip: &Chip| rows_of_chips.contains(chip);
    let without: Vec<&str> = Chip::ALL.iter().filter(|chip| !has_row(chip)).map(|chip| chip.name()).collect();
    let rest =
        if without.is_empty() { String::new() } else { format!("\nNot tried: {}.\n", without.join(", ")) };
    Ok(format!("{before}{BEGIN}\n\n{HEAD}{lines}{rest}\n{END}{after}"))
}

/// The rows of the page.
fn read(text: &str) -> Result<Rows> {
    let table = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END)).map(|(table, _)| table);
    let table = table.context("docs/guests.md has no table")?;
    let mut rows = Rows::new();
    for line in table.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [chip, linux, nouveau, mesa, data, faults, lives] = cells.as_slice() else {
            anyhow::bail!("docs/guests.md: a row of {} cells: {line}", cells.len())
        };
        let chip: Chip = chip.parse().with_context(|| format!("docs/guests.md: {line}"))?;
        let row = Row {
            nouveau: (*nouveau).to_owned(),
            mesa: (*mesa).to_owned(),
            columns: [data, faults, lives].map(|cell| (*cell).to_owned()),
        };
        rows.insert((chip, (*linux).to_owned()), row);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use gpuvmk_lab::kernel::KernelSeries;
    use gpuvmk_lab::report::Report;
    use gpuvmk_lab::rig::Topology;
    use gpuvmk_lab::verdict::Verdict;

    use super::*;
    use crate::cases::{Disturbance, Guest};

    fn program(line: &str) -> ProgramResult {
        match Report::parse(&format!("GPUVMK-JSON {line}")) {
            Some(Report::Result(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    fn run(lines: &[&str]) -> (Vec<Case>, Vec<CaseResult>) {
        let case = Case {
            name: "one".into(),
            nightly: false,
            topology: Topology::Mediated,
            guests: vec![Guest::new("vm1", Chip::GH100, KernelSeries::Newest, &[])],
            disturbance: Disturbance::None,
        };
        let verdict =
            Verdict { problems: Vec::new(), results: lines.iter().map(|line| program(line)).collect() };
        let result = CaseResult {
            name: "one".into(),
            problems: Vec::new(),
            wall: std::time::Duration::ZERO,
            guests: vec![("vm1".into(), verdict)],
            accesses: Vec::new(),
        };
        (vec![case], vec![result])
    }

    #[test]
    fn row_has_what_passed_with_the_versions_that_programs_told() {
        let (cases, results) = run(&[
            r#"{"prog":"probe","gpu":0,"ok":true,"kernel":"7.3.4+deb13-amd64","nouveau":"1.4.2"}"#,
            r#"{"prog":"copy","gpu":0,"ok":true}"#,
            r#"{"prog":"evict","gpu":0,"ok":false}"#,
            r#"{"prog":"badaddr","gpu":0,"ok":true}"#,
            r#"{"prog":"nvk","gpu":0,"ok":true,"version":"NVK Mesa 26.1.6-1~bpo13+1","checks":{"fill":{}}}"#,
        ]);
        let rows = rows_of(&cases, &results);
        let row = &rows[&(Chip::GH100, "7.3.4".to_owned())];
        assert_eq!(row.cells(), ["1.4.2", "26.1.6", "copy", "badaddr", "-"]);
    }

    #[test]
    fn vulkan_is_told_where_shaders_ran() {
        let (cases, results) = run(&[
            r#"{"prog":"probe","gpu":0,"ok":true,"kernel":"7.3.4+deb13-amd64","nouveau":"1.4.2"}"#,
            r#"{"prog":"nvk","gpu":0,"ok":true,"version":"NVK Mesa 26.1.6-1","checks":{"constant":{}}}"#,
        ]);
        let rows = rows_of(&cases, &results);
        assert_eq!(rows[&(Chip::GH100, "7.3.4".to_owned())].cells(), ["1.4.2", "26.1.6", "nvk", "-", "-"]);
    }

    #[test]
    fn page_is_read_as_it_was_written_and_keeps_what_is_around() {
        let text = format!("before\n{BEGIN}\n{END}\nafter\n");
        let row =
            Row { nouveau: "1".into(), mesa: "-".into(), columns: ["copy", "-", "-"].map(str::to_owned) };
        let rows = Rows::from_iter([
            ((Chip::GF100, "7.10.1".to_owned()), row.clone()),
            ((Chip::GF100, "7.9.2".to_owned()), row),
        ]);
        let written = replaced(&text, &rows).unwrap();
        assert_eq!(read(&written).unwrap(), rows);
        assert!(written.starts_with("before\n") && written.ends_with("\nafter\n"));
        assert!(written.find("7.9.2") < written.find("7.10.1"), "{written}");
        assert!(written.contains("Not tried: TU102, "), "{written}");
    }

    #[test]
    fn table_of_the_page_has_its_form_and_rows_of_all_generations() {
        let text = fs::read_to_string(page(&source_tree())).unwrap();
        let rows = read(&text).unwrap();
        assert_eq!(replaced(&text, &rows).unwrap(), text, "the table is not as --write-docs would write it");
        for (key, row) in &rows {
            let known =
                |cell: &String| cell == "-" || cell.split(' ').all(|name| COLUMNS.concat().contains(&name));
            assert!(row.columns.iter().all(known), "{key:?}: {row:?}");
        }
        let chips: BTreeSet<Chip> = rows.keys().map(|(chip, _)| *chip).collect();
        for chip in Chip::ALL {
            let tried = chips.contains(chip);
            assert_eq!(chip.tried, tried, "{chip}: what the catalogue says is not so");
        }
    }
}
