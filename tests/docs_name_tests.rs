//! Documentation that names tests names tests that there are.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Names of functions in all Rust files below `folder`.
fn functions(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            functions(&path, names);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let after = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            names.extend(after.map(str::to_owned));
        }
    }
}

#[test]
fn tests_named_for_the_predecessors_defects_exist() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = BTreeSet::new();
    functions(&tree.join("src"), &mut known);
    functions(&tree.join("tests"), &mut known);
    let text = fs::read_to_string(tree.join("docs/predecessors.md")).unwrap();
    // Test names are the words in code marks with three parts or more; targets of fuzzers have fewer.
    let named: Vec<_> =
        text.split('`').skip(1).step_by(2).filter(|word| word.matches('_').count() >= 2).collect();
    assert!(named.len() >= 10, "{named:?}");
    let missing: Vec<_> = named.iter().filter(|name| !known.contains(**name)).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}

#[test]
fn attacks_named_for_the_predecessors_defects_exist() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR"));
    let lists = ["fermi.rs", "gsp.rs"]
        .map(|file| fs::read_to_string(tree.join("tests/attacks/src").join(file)).unwrap());
    let text = fs::read_to_string(tree.join("docs/predecessors.md")).unwrap();
    let mut named = 0_usize;
    // A defect is an item of the list; what it says of its tests begins with the attacks, and they end at a
    // semicolon.
    for item in text.split("\n* ").skip(1) {
        let Some((_, tests)) = item.split_once("* Tests: ") else { panic!("no tests are named: {item}") };
        let Some((_, rest)) = tests.split_once("attack") else { continue };
        let end = rest.find(';').unwrap_or(rest.len());
        for name in rest[..end].split('`').skip(1).step_by(2) {
            let quoted = format!("\"{name}\"");
            assert!(lists.iter().any(|list| list.contains(&quoted)), "no such attack: {name}");
            named = named.saturating_add(1);
        }
    }
    assert!(named >= 10, "{named} attacks are named");
}
