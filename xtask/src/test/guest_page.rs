//! The table of docs/guests.md: what guests of each chip and kernel passed, from what the cases said.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

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
| chip | Linux | nouveau | Mesa | data | faults and hangs | loaded, reset and asleep | run |
| --- | --- | --- | --- | --- | --- | --- | --- |
";

/// Programs by column. What is in none (the probe itself, and what only keeps a guest busy) is not told.
const COLUMNS: [&[&str]; 3] = [
    &["copy", "exec", "fence", "channels", "fill", "i2m", "bar1", "evict", "sleepers", "compute", "nvk"],
    &["badaddr", "badcopy", "badexec", "badlaunch", "hang"],
    &["reload", "suspend", "residue"],
];
/// The program that says which Mesa it was. It has a word of its own only if it ran shaders.
const VULKAN: &str = "nvk";
/// A cell with nothing in it.
const NONE: &str = "-";
/// What a run is called that had some of the cases.
const PART: &str = "part";
/// One of its checks that does.
const SHADER: &str = "constant";

/// A row: a chip with a kernel, and what passed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Row {
    nouveau: String,
    mesa: String,
    columns: [String; 3],
    /// When: a whole run's day, and that of a part that was added to it since.
    run: String,
}

/// Rows by chip (as old as the catalogue says) and the kernel's version.
type Rows = BTreeMap<(Chip, String), Row>;

fn page(tree: &Path) -> PathBuf {
    tree.join("docs/guests.md")
}

/// How much of the cases a run had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All: the table is that run's.
    Whole,
    /// Some: what others passed before stays.
    Part,
}

/// Writes what these cases passed today.
pub fn write(cases: &[Case], results: &[CaseResult], extent: Extent) -> Result<()> {
    ensure!(results.iter().all(CaseResult::ok), "Nothing is written of a run in which a case failed");
    let path = page(&source_tree());
    let text = fs::read_to_string(&path).with_context(|| format!("Cannot read {}", path.display()))?;
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let today = now.split('T').next().unwrap_or(&now);
    let rows = together(read(&text)?, rows_of(cases, results), extent, today);
    fs::write(&path, replaced(&text, &rows)?).with_context(|| format!("Cannot write {}", path.display()))
}

/// The rows of the page with those of a run.
fn together(mut rows: Rows, found: Rows, extent: Extent, today: &str) -> Rows {
    let dated = |row: Row, run: String| Row { run, ..row };
    if extent == Extent::Whole {
        return found.into_iter().map(|(key, row)| (key, dated(row, today.to_owned()))).collect();
    }
    for ((chip, linux), row) in found {
        let part = format!("{PART} {today}");
        let row = match rows.get(&(chip, linux.clone())) {
            Some(before) if before.is_of_the_same(&row) => {
                let whole = before.run.split(';').next().filter(|run| !run.starts_with(PART));
                let run = whole.map_or(part.clone(), |whole| format!("{whole}; {part}"));
                dated(before.with(&row), run)
            }
            _ => dated(row, part),
        };
        // A newer kernel of a series takes the place of an older one.
        rows.retain(|(other, older), _| *other != chip || series(older) != series(&linux));
        rows.insert((chip, linux), row);
    }
    rows
}

/// The first two numbers of a kernel's version.
fn series(linux: &str) -> Vec<&str> {
    linux.split('.').take(2).collect()
}

fn rows_of(cases: &[Case], results: &[CaseResult]) -> Rows {
    let mut passed: BTreeMap<(Chip, String), Vec<&ProgramResult>> = BTreeMap::new();
    // The page is about nouveau.
    for (case, result) in cases.iter().zip(results).filter(|(case, _)| !case.needs_nvidia()) {
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

/// The programs of a column that are among these.
fn listed(programs: &[&str], names: &BTreeSet<&str>) -> String {
    let listed: Vec<_> = programs.iter().copied().filter(|program| names.contains(program)).collect();
    if listed.is_empty() { NONE.to_owned() } else { listed.join(" ") }
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
            of.and_then(|result| result.figures.get(name)?.as_str()).unwrap_or(NONE).to_owned()
        };
        // "NVK Mesa 25.0.7-2".
        let driver = figure(VULKAN, "version");
        let mesa = driver.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        Self {
            nouveau: figure("probe", "nouveau"),
            mesa: mesa.map_or(NONE, |mesa| mesa.split(['-', '~']).next().unwrap_or(mesa)).to_owned(),
            columns: COLUMNS.map(|programs| listed(programs, &names)),
            run: String::new(),
        }
    }

    /// Whether both are of one nouveau and one Mesa, as far as they tell.
    fn is_of_the_same(&self, other: &Self) -> bool {
        let alike = |left: &str, right: &str| left == right || left == NONE || right == NONE;
        alike(&self.nouveau, &other.nouveau) && alike(&self.mesa, &other.mesa)
    }

    /// What passed in either.
    fn with(&self, other: &Self) -> Self {
        let known = |left: &String, right: &String| if left == NONE { right.clone() } else { left.clone() };
        let mut columns = self.columns.clone();
        for ((column, more), programs) in columns.iter_mut().zip(&other.columns).zip(COLUMNS) {
            let names: BTreeSet<&str> = column.split(' ').chain(more.split(' ')).collect();
            *column = listed(programs, &names);
        }
        Self {
            nouveau: known(&self.nouveau, &other.nouveau),
            mesa: known(&self.mesa, &other.mesa),
            columns,
            run: self.run.clone(),
        }
    }

    fn cells(&self) -> [&str; 6] {
        let [data, faults, lives] = &self.columns;
        [&self.nouveau, &self.mesa, data, faults, lives, &self.run]
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
        let [chip, linux, nouveau, mesa, data, faults, lives, run] = cells.as_slice() else {
            anyhow::bail!("docs/guests.md: a row of {} cells: {line}", cells.len())
        };
        let chip: Chip = chip.parse().with_context(|| format!("docs/guests.md: {line}"))?;
        let row = Row {
            nouveau: (*nouveau).to_owned(),
            mesa: (*mesa).to_owned(),
            columns: [data, faults, lives].map(|cell| (*cell).to_owned()),
            run: (*run).to_owned(),
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
        assert_eq!(row.cells(), ["1.4.2", "26.1.6", "copy", "badaddr", "-", ""]);
    }

    #[test]
    fn vulkan_is_told_where_shaders_ran() {
        let (cases, results) = run(&[
            r#"{"prog":"probe","gpu":0,"ok":true,"kernel":"7.3.4+deb13-amd64","nouveau":"1.4.2"}"#,
            r#"{"prog":"nvk","gpu":0,"ok":true,"version":"NVK Mesa 26.1.6-1","checks":{"constant":{}}}"#,
        ]);
        let rows = rows_of(&cases, &results);
        assert_eq!(
            rows[&(Chip::GH100, "7.3.4".to_owned())].cells(),
            ["1.4.2", "26.1.6", "nvk", "-", "-", ""]
        );
    }

    fn row(nouveau: &str, mesa: &str, columns: [&str; 3], run: &str) -> Row {
        let [nouveau, mesa, run] = [nouveau, mesa, run].map(str::to_owned);
        Row { nouveau, mesa, columns: columns.map(str::to_owned), run }
    }

    fn rows(rows: &[(Chip, &str, Row)]) -> Rows {
        rows.iter().map(|(chip, linux, row)| ((*chip, (*linux).to_owned()), row.clone())).collect()
    }

    #[test]
    fn part_of_the_cases_takes_nothing_from_what_others_passed() {
        let before = rows(&[
            (Chip::TU116, "7.3.4", row("1", "-", ["copy channels", "-", "reload"], "2026-11-27")),
            (Chip::GF100, "6.1.2", row("1", "-", ["copy", "hang", "-"], "2026-11-27")),
        ]);
        let found = rows(&[(Chip::TU116, "7.3.4", row("1", "26.1", ["copy evict", "badaddr", "-"], ""))]);

        let after = together(before.clone(), found.clone(), Extent::Part, "2026-11-29");

        let run = "2026-11-27; part 2026-11-29";
        let merged = row("1", "26.1", ["copy channels evict", "badaddr", "reload"], run);
        assert_eq!(after[&(Chip::TU116, "7.3.4".to_owned())], merged);
        assert_eq!(after.len(), 2);
        assert_eq!(after[&(Chip::GF100, "6.1.2".to_owned())].run, "2026-11-27");
        // Once more: the part's day alone changes.
        let again = together(after, found, Extent::Part, "2026-11-30");
        assert_eq!(again[&(Chip::TU116, "7.3.4".to_owned())].run, "2026-11-27; part 2026-11-30");
    }

    #[test]
    fn newer_kernel_or_driver_passed_only_what_it_was_seen_to_pass() {
        let before =
            rows(&[(Chip::TU116, "7.3.4", row("1", "26.1", ["copy channels", "-", "-"], "2026-11-27"))]);
        for (linux, nouveau, mesa) in [("7.3.5", "1", "26.1"), ("7.3.4", "2", "26.1"), ("7.3.4", "1", "26.2")]
        {
            let found = rows(&[(Chip::TU116, linux, row(nouveau, mesa, ["copy", "-", "-"], ""))]);
            let after = together(before.clone(), found, Extent::Part, "2026-11-29");
            let only = row(nouveau, mesa, ["copy", "-", "-"], "part 2026-11-29");
            assert_eq!(after, rows(&[(Chip::TU116, linux, only)]));
        }
    }

    #[test]
    fn table_of_a_whole_run_is_that_runs() {
        let before = rows(&[(Chip::GF100, "6.1.2", row("1", "-", ["copy", "hang", "-"], "2026-11-27"))]);
        let found = rows(&[(Chip::TU116, "7.3.4", row("1", "-", ["copy", "-", "-"], ""))]);
        let after = together(before, found, Extent::Whole, "2026-11-29");
        let whole = row("1", "-", ["copy", "-", "-"], "2026-11-29");
        assert_eq!(after, rows(&[(Chip::TU116, "7.3.4", whole)]));
    }

    #[test]
    fn page_is_read_as_it_was_written_and_keeps_what_is_around() {
        let text = format!("before\n{BEGIN}\n{END}\nafter\n");
        let row = row("1", "-", ["copy", "-", "-"], "2026-11-28");
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
