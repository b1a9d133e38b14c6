//! What the daemons' program is made of: nothing of the laboratory, and nothing of tests.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Folders of packages that the program must not depend on.
const FORBIDDEN: [&str; 7] = ["fuzz", "gpu_bench", "lab", "runner", "shader", "tests", "xtask"];

fn manifest(folder: &Path) -> toml::Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join("Cargo.toml");
    fs::read_to_string(path).unwrap().parse().unwrap()
}

/// A path in this tree without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// The folders that a table of a manifest names as dependencies, of every target.
fn named(folder: &Path, table: &toml::Table, workspace: &toml::Table) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for key in ["dependencies", "build-dependencies"] {
        for (name, dependency) in table.get(key).and_then(toml::Value::as_table).into_iter().flatten() {
            let inherited = dependency.get("workspace").is_some();
            let dependency = if inherited { workspace.get(name).unwrap_or(dependency) } else { dependency };
            // What the workspace says is said from its own folder.
            let from = if inherited { Path::new("") } else { folder };
            found.extend(
                dependency.get("path").and_then(toml::Value::as_str).map(|path| plain(&from.join(path))),
            );
        }
    }
    for target in
        table.get("target").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::values)
    {
        found.extend(target.as_table().into_iter().flat_map(|target| named(folder, target, workspace)));
    }
    found
}

/// All packages of this tree that one depends on.
fn all(folder: &Path, workspace: &toml::Table, found: &mut BTreeSet<PathBuf>) {
    for dependency in named(folder, &manifest(folder), workspace) {
        if found.insert(dependency.clone()) {
            all(&dependency, workspace, found);
        }
    }
}

fn of(folder: &str) -> BTreeSet<PathBuf> {
    let root = manifest(Path::new(""));
    let workspace = root["workspace"]["dependencies"].as_table().unwrap();
    let mut found = BTreeSet::new();
    all(Path::new(folder), workspace, &mut found);
    found
}

#[test]
fn daemons_are_made_of_nothing_of_the_laboratory_or_of_tests() {
    let found = of("");
    assert!(found.contains(Path::new("src/control_client")), "{found:?}");
    let wrong: Vec<_> =
        found.iter().filter(|path| FORBIDDEN.iter().any(|folder| path.starts_with(folder))).collect();
    assert!(wrong.is_empty(), "the program depends on {wrong:?}");
}

#[test]
fn laboratory_is_judged_by_what_daemons_say_and_has_nothing_of_their_code() {
    for folder in ["lab", "runner", "src/control_client"] {
        let found = of(folder);
        assert!(!found.contains(Path::new("")), "{folder} depends on {found:?}");
    }
    assert!(of("xtask").contains(Path::new("lab")), "paths that go up are followed");
}
