//! The table of rooms in docs/architecture.md is what is there, and goes from the ground up. Files are short.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

/// Rooms that are the program, and not crates of their own. Whoever is in this list imports what it likes of
/// the crates.
const PROGRAM: [&str; 2] = ["config", "cli"];

/// Rooms that everybody may import, so that the table says nothing of it.
const COMMON: [&str; 4] = ["chip", "jail", "host", "counters"];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Rooms and what they import, in the table's order.
fn table() -> Vec<(String, BTreeSet<String>)> {
    let text = fs::read_to_string(source().join("../docs/architecture.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("/` | "));
    let words = |cell: &str| {
        let names = cell.split(", ").filter(|name| *name != "nothing");
        names.map(str::to_owned).collect()
    };
    rows.map(|(room, rest)| (room.to_owned(), words(rest.split(" | ").next().unwrap()))).collect()
}

/// The crates of ours that a room's crate is built from.
fn imports(room: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(source().join(room).join("Cargo.toml")).unwrap();
    let manifest = DeTable::parse(&text).unwrap();
    let dependencies = manifest.get_ref().get("dependencies").unwrap().get_ref().as_table().unwrap();
    let ours = dependencies.keys().filter_map(|name| name.get_ref().strip_prefix("gpuvmk-"));
    // What lies elsewhere is a matter of tests/dependencies.rs.
    let rooms = ours.map(|name| name.replace('-', "_")).filter(|name| source().join(name).exists());
    rooms.filter(|name| !COMMON.contains(&name.as_str())).collect()
}

/// Folders of `src`, with whether each is a crate.
fn folders() -> BTreeMap<String, bool> {
    let entries = fs::read_dir(source()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    entries.map(|entry| (name(&entry.path()), entry.path().join("Cargo.toml").exists())).collect()
}

#[test]
fn every_room_is_in_the_table_and_imports_what_it_says() {
    let table = table();
    for (room, said) in table.iter().filter(|(room, _)| !PROGRAM.contains(&room.as_str())) {
        assert_eq!(imports(room), *said, "src/{room}/Cargo.toml and docs/architecture.md");
    }
    let listed: BTreeSet<_> = table.iter().map(|(room, _)| room.clone()).collect();
    for (folder, is_crate) in folders() {
        let told = listed.contains(&folder);
        assert_eq!(
            told,
            is_crate || PROGRAM.contains(&folder.as_str()),
            "src/{folder} and docs/architecture.md"
        );
    }
}

#[test]
fn rooms_that_everybody_imports_are_the_first() {
    let first: Vec<_> = table().into_iter().take(COMMON.len()).map(|(room, _)| room).collect();
    assert_eq!(first, COMMON);
}

#[test]
fn rooms_import_from_above_in_the_table() {
    let mut above = BTreeSet::new();
    for (room, said) in table() {
        if !PROGRAM.contains(&room.as_str()) {
            let missing: Vec<_> = said.difference(&above).collect();
            assert!(missing.is_empty(), "{room} imports {missing:?}, which are not above it");
        }
        above.insert(room);
    }
}

#[test]
fn configuration_knows_nothing_of_the_command_line() {
    let mut found = Vec::new();
    all_sources(&source().join("config"), &mut found);
    assert!(!found.is_empty());
    for file in found {
        let text = fs::read_to_string(&file).unwrap();
        assert!(!text.contains("crate::cli"), "{}", file.display());
    }
}

/// Most lines of a source file, which is about one thing.
const LINES: usize = 450;

/// Folders with sources.
const CODE: [&str; 9] = ["benches", "fuzz", "gpu_bench", "lab", "runner", "shader", "src", "tests", "xtask"];

/// Files that may be longer, and why.
const LONG: [(&str, &str); 0] = [];

/// All source files below a folder, but for what a build leaves there.
fn all_sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            all_sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_source_file_is_too_long_for_one_thing() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for folder in CODE {
        all_sources(&tree.join(folder), &mut found);
    }
    assert!(found.len() > 1000, "{} sources were found", found.len());
    let lines = |file: &PathBuf| fs::read_to_string(file).unwrap().lines().count();
    let name = |file: &PathBuf| file.strip_prefix(tree).unwrap().to_str().unwrap().to_owned();
    let long: BTreeMap<_, _> =
        found.iter().map(|file| (name(file), lines(file))).filter(|(_, lines)| *lines > LINES).collect();
    let allowed = |name: &String| LONG.iter().any(|(file, _)| file == name);
    let wrong: Vec<_> = long.iter().filter(|(name, _)| !allowed(name)).collect();
    assert!(
        wrong.is_empty(),
        "files of more than {LINES} lines, to be split by what they are about: {wrong:?}"
    );
    let needless: Vec<_> = LONG.iter().filter(|(file, _)| !long.contains_key(*file)).collect();
    assert!(needless.is_empty(), "not longer than others: {needless:?}");
}

/// Traits of which some implementations hand on to another one, and their files.
const FORWARDED: [(&str, &str); 11] = [
    ("backend/completions.rs", "Completions"),
    ("backend/engine.rs", "EngineBackend"),
    ("backend/gsp.rs", "GspBackend"),
    ("backend/mod.rs", "Backend"),
    ("backend/mod.rs", "EngineEvents"),
    ("backend/windows.rs", "Windows"),
    ("gpu/driver.rs", "GpuDriver"),
    ("gpu/scrubber.rs", "Scrubber"),
    ("pci/mod.rs", "DirectMap"),
    ("pci/mod.rs", "MessageOwner"),
    ("pci/mod.rs", "PciFunction"),
];

/// What is forgotten by one that hands on does not compile.
#[test]
fn traits_that_are_handed_on_have_no_defaults() {
    for (file, name) in FORWARDED {
        let text = fs::read_to_string(source().join(file)).unwrap();
        let after = text.split(&format!("\npub trait {name}")).nth(1).unwrap();
        let body = after.split("\n}\n").next().unwrap();
        let mut methods = 0;
        for method in body.split("\n    fn ").skip(1) {
            let end = method.find([';', '{']).unwrap();
            assert!(method[end..].starts_with(';'), "{file}: {name} has a default: {}", &method[..end]);
            methods += 1;
        }
        assert!(methods > 0, "{file}: {name} has no methods");
    }
}

/// Source files below a folder, without those of tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

#[test]
fn a_firmware_version_is_named_by_its_layouts_only() {
    let mut found = Vec::new();
    sources(&source(), &mut found);
    let inside = source().join("gsp/abi");
    assert!(found.iter().any(|file| file.starts_with(inside.join("r570_144"))));
    for file in found.iter().filter(|file| !file.starts_with(&inside)) {
        let text = fs::read_to_string(file).unwrap();
        let mut modules = text.match_indices("abi::r").map(|(at, found)| text.as_bytes()[at + found.len()]);
        let names = modules.any(|next| next.is_ascii_digit());
        assert!(!names, "{} names a version of the firmware", file.display());
    }
}
