//! The examples of `gpuvmk sched-sim`: each is as it says it is to be.

#[cfg(test)]
#[path = "scenarios/simulator.rs"]
mod simulator;

use std::path::{Path, PathBuf};

use gpuvmk::scheduler::sim;

fn scenarios() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|kind| kind == "toml")).collect()
}

#[test]
fn every_scenario_is_as_it_expects_to_be() {
    let files = scenarios();
    assert!(files.len() >= 7, "{files:?}");
    for path in files {
        let scenario = gpuvmk::config::load_scenario(&path).unwrap_or_else(|error| panic!("{error}"));

        let report = sim::run(&scenario).unwrap();

        assert!(report.ok, "{}: {:?}", path.display(), report.problems);
    }
}
