//! The declared metrics as a document (docs/metrics.md), which is held to them, as are the alerts, the
//! dashboard and the pages that name metrics.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use gpuvmk_control_client::Status;
use gpuvmk_counters::{Counted, Counter, Export, Kind, Place};

use super::{PREFIX, name_of};

const HEAD: &str = "# Metrics

Generated from the declarations of the status' counters (`src/control_client/`); regenerate with
`UPDATE_DOCS=1 cargo test -p gpuvmk-observe --lib document`.

What `gpuvmk metrics` shows, and where `gpuvmk status --json` has the same number, there in the unit that its key says.
A counter grows from 0, of a VM since it came; a gauge is what is so now. Beside these there are `gpuvmk_build_info` (the
version), `gpuvmk_up` (whether a GPU's aggregator answers) and `gpuvmk_gpu_info` (chip, backend, policy). The label `gpu`
is the control socket's name without its ending.
";

/// The document.
fn markdown() -> String {
    let mut text = HEAD.to_owned();
    let mut sets: Vec<Vec<&str>> = Vec::new();
    visit(|at, counter| {
        let keys = keys(at, counter);
        if !sets.contains(&keys) {
            sets.push(keys);
        }
    });
    sets.sort_by_key(|keys| (keys.contains(&"vm"), keys.len()));
    for set in sets {
        let labels: Vec<_> = ["gpu"].iter().chain(&set).map(|key| format!("`{key}`")).collect();
        let _ = writeln!(text, "\n## With {}\n", labels.join(", "));
        let _ = writeln!(text, "| Metric | Kind | In the status | What it is |\n| --- | --- | --- | --- |");
        visit(|at, counter| {
            if let (true, Some(name)) = (keys(at, counter) == set, name_of(at, counter)) {
                let (kind, path, help) = (kind(counter), at.path_of(counter), counter.help());
                let about = at.help_of(counter);
                // Where a label tells counters apart, the help is what they are together.
                let is_whole = about == help || !fixed(counter).is_empty();
                let help = if is_whole { help } else { format!("{about}: {}", lower(&help)) };
                let _ = writeln!(text, "| `{name}{}` | {kind} | `{path}` | {help} |", fixed(counter));
            }
        });
    }
    let _ = writeln!(text, "\n## In the status only\n");
    let _ = writeln!(text, "| In the status | Unit | What it is | Why it is no metric |");
    let _ = writeln!(text, "| --- | --- | --- | --- |");
    visit(|at, counter| {
        if let Export::Nobody(why) = counter.export {
            let (path, unit, help) = (at.path_of(counter), counter.unit.name(), counter.help());
            let _ = writeln!(text, "| `{path}` | {unit} | {help} | {why} |");
        }
    });
    text
}

fn visit(mut see: impl FnMut(&Place, &Counter)) {
    Status::walk(None, &Place::default(), &mut |at, counter, _| see(at, counter));
}

/// The labels that tell the members of groups apart.
fn keys(at: &Place, counter: &Counter) -> Vec<&'static str> {
    let own = match counter.export {
        Export::Metric { label, .. } => label.map(|(key, _)| key),
        Export::Nobody(_) => None,
    };
    at.labels_of(counter).into_iter().map(|(key, _)| key).filter(|key| Some(*key) != own).collect()
}

/// The label by which counters of one metric differ.
fn fixed(counter: &Counter) -> String {
    match counter.export {
        Export::Metric { label: Some((key, value)), .. } => format!("{{{key}=\"{value}\"}}"),
        _ => String::new(),
    }
}

const fn kind(counter: &Counter) -> &'static str {
    match counter.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
    }
}

fn lower(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map(|first| first.to_lowercase().collect::<String>() + letters.as_str())
        .unwrap_or_default()
}

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn committed_document_is_current() {
    let path = tree().join("docs/metrics.md");
    let expected = markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap();
    assert!(committed == expected, "docs/metrics.md is stale: set UPDATE_DOCS=1 and run this test");
}

/// An alert or a picture of a metric that does not exist stays empty, and nobody notices.
#[test]
fn alerts_and_dashboards_name_metrics_that_exist() {
    let mut known: BTreeSet<String> =
        ["build_info", "gpu_info", "up"].into_iter().map(|name| format!("{PREFIX}_{name}")).collect();
    visit(|at, counter| known.extend(name_of(at, counter)));
    for file in ["prometheus/gpuvmk.rules.yml", "prometheus/gpuvmk.rules.test.yml", "grafana/gpuvmk.json"] {
        let text = std::fs::read_to_string(tree().join("packaging").join(file)).unwrap();
        let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
        let named: BTreeSet<_> = words.filter(|word| word.starts_with("gpuvmk_")).collect();
        assert!(!named.is_empty(), "{file} names none");
        for name in named {
            assert!(known.contains(name), "{file} names {name}, which is no metric");
        }
    }
}
