//! Documentation has a form that can be read in any editor: lines of 120 columns at most outside tables and
//! code blocks, table cells of 80 characters at most, and a status page of one screen.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

/// Most columns of a line outside tables and code blocks.
const LINE: usize = 120;

/// Most characters of a table's cell.
const CELL: usize = 80;

/// Most columns of a comment, but for tables in it.
const COMMENT: usize = 110;

/// Pages of which more lines than this are too many.
const LENGTHS: [(&str, usize); 2] = [("docs/architecture.md", 90), ("docs/status.md", 60)];

/// Pages that are not held to the form, and why.
const EXCEPTIONS: [(&str, &str); 6] = [
    ("docs/attacks.md", "written by `cargo xtask attack --write-docs`"),
    ("docs/controls.md", "written from the tables of calls (`src/gsp/document.rs`)"),
    ("docs/metrics.md", "written from the counters' declarations (`src/observe/metrics/document.rs`)"),
    ("docs/neighbour.md", "written by `cargo xtask attack --neighbour --write-docs`"),
    ("docs/peer-attacks.md", "written by `cargo xtask attack --peers --write-docs`"),
    ("docs/registers.md", "written from the register tables (`src/chip/register_doc.rs`)"),
];

/// The cells of a table's row: what stands between bars that no backslash precedes.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut escaped = false;
    for letter in row.chars() {
        if letter == '|' && !escaped {
            cells.push(String::new());
        } else if let Some(cell) = cells.last_mut() {
            cell.push(letter);
        }
        escaped = letter == '\\' && !escaped;
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

/// What is wrong with a page, a line for each fault.
fn faults(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let mut in_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        let start = line.trim_start();
        if start.starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        if start.starts_with('|') {
            for cell in cells(start) {
                let length = cell.chars().count();
                if length > CELL {
                    faults.push(format!(
                        "{name}:{number}: a cell of {length} characters; {CELL} are allowed, make a list of the table: {cell}"
                    ));
                }
            }
        } else {
            let columns = line.chars().count();
            if columns > LINE {
                faults.push(format!("{name}:{number}: {columns} columns; {LINE} are allowed"));
            }
        }
    }
    if in_code {
        faults.push(format!("{name}: a code block has no end"));
    }
    for (page, most) in LENGTHS {
        let lines = text.lines().count();
        if page == name && lines > most {
            faults.push(format!("{name}:{lines}: {lines} lines; {most} are allowed"));
        }
    }
    faults
}

/// The pages that the form is for, by their names from the source tree's root.
fn pages(tree: &Path) -> Vec<String> {
    let in_folder = |folder: &str| {
        let entries = fs::read_dir(tree.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        let pages = entries.filter(|path| path.extension().is_some_and(|end| end == "md"));
        let name = |path: PathBuf| format!("{folder}/{}", path.file_name().unwrap().to_string_lossy());
        pages.map(name).collect::<Vec<_>>()
    };
    let mut pages = vec!["README.md".to_owned(), "CHANGELOG.md".to_owned()];
    pages.extend(in_folder("docs"));
    pages.extend(in_folder("docs/adr"));
    pages.sort();
    pages
}

#[test]
fn pages_keep_their_form() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = pages(tree);
    assert!(pages.len() > 30, "pages were found: {pages:?}");
    let (mut wrong, mut needless) = (Vec::new(), Vec::new());
    for name in &pages {
        let faults = faults(name, &fs::read_to_string(tree.join(name)).unwrap());
        let exception = EXCEPTIONS.iter().find(|(page, _)| page == name);
        match exception {
            Some((page, why)) if faults.is_empty() => needless.push(format!("{page} ({why})")),
            Some(_) => {}
            None => wrong.extend(faults),
        }
    }
    assert!(wrong.is_empty(), "pages lack their form:\n{}", wrong.join("\n"));
    assert!(needless.is_empty(), "pages that keep their form are among the EXCEPTIONS: {needless:?}");
    for (page, _) in EXCEPTIONS {
        assert!(pages.iter().any(|name| name == page), "{page} is among the EXCEPTIONS, and is not there");
    }
}

/// All Rust sources below a folder, but for what a build leaves there.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn comments_are_not_too_wide() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in ["benches", "fuzz", "lab", "runner", "src", "tests", "xtask"] {
        sources(&tree.join(folder), &mut found);
    }
    assert!(found.len() > 500, "{} sources were found", found.len());
    let mut wrong = Vec::new();
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        for (number, line) in (1..).zip(text.lines()) {
            let words = line.trim_start();
            let is_table = words.trim_start_matches(['/', '!', ' ']).starts_with('|');
            if words.starts_with("//") && !is_table && line.chars().count() > COMMENT {
                wrong.push(format!("{}:{number}: a comment of more than {COMMENT} columns", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn faults_are_named_with_file_line_and_limit() {
    let long = "x".repeat(121);
    assert_eq!(faults("a.md", &format!("short\n{long}\n")), ["a.md:2: 121 columns; 120 are allowed"]);
    let cell = "x".repeat(81);
    let found = faults("a.md", &format!("| a | {cell} |\n"));
    assert_eq!(found.len(), 1, "{found:?}");
    let starts = "a.md:1: a cell of 81 characters; 80 are allowed";
    assert!(found.iter().all(|fault| fault.starts_with(starts)), "{found:?}");
    let status = "line\n".repeat(61);
    assert_eq!(faults("docs/status.md", &status), ["docs/status.md:61: 61 lines; 60 are allowed"]);
    assert_eq!(faults("a.md", "```\n"), ["a.md: a code block has no end"]);
}

#[test]
fn code_and_rows_may_be_long() {
    let long = "x".repeat(200);
    let cell = "y".repeat(80);
    let text = format!("```toml\n{long}\n```\n| {cell} | {cell} | a \\| b |\n{}\n", "ü".repeat(120));
    assert_eq!(faults("a.md", &text), Vec::<String>::new());
}

/// Opening fences of code blocks in comments for documentation that rustdoc would take for tests.
fn doc_tests(text: &str) -> usize {
    let comments = text.lines().filter_map(|line| {
        let line = line.trim_start();
        line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))
    });
    let fences = comments.filter_map(|line| line.trim_start().strip_prefix("```"));
    fences.step_by(2).filter(|kind| kind.trim() != "text").count()
}

/// How many are in the Rust files of a package, without those of packages in its folders.
fn doc_tests_of(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| {
        if path.is_dir() {
            if path.join("Cargo.toml").exists() || path.ends_with("target") { 0 } else { doc_tests_of(&path) }
        } else if path.extension().is_some_and(|end| end == "rs") {
            doc_tests(&fs::read_to_string(&path).unwrap())
        } else {
            0
        }
    };
    entries.map(of).sum()
}

#[test]
fn packages_without_doc_tests_say_so_and_others_do_not() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root: toml::Table = fs::read_to_string(tree.join("Cargo.toml")).unwrap().parse().unwrap();
    let mut with = Vec::new();
    for member in root["workspace"]["members"].as_array().unwrap() {
        let folder = tree.join(member.as_str().unwrap());
        let manifest: toml::Table = fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
        let lib = manifest.get("lib").and_then(toml::Value::as_table);
        if lib.is_none() && !folder.join("src/lib.rs").exists() {
            continue;
        }
        let asked = lib.and_then(|lib| lib.get("doctest")).and_then(toml::Value::as_bool).unwrap_or(true);
        // The root's folder holds everything; its library is what is in `src` beside the rooms.
        let has = doc_tests_of(&if folder == *tree { tree.join("src") } else { folder.clone() }) > 0;
        assert_eq!(
            asked,
            has,
            "`doctest` of {}: rustdoc reads a package for a second for nothing",
            folder.display()
        );
        with.extend(has.then_some(folder));
    }
    assert!(!with.is_empty(), "none is found, where registers are declared by an example");
}
