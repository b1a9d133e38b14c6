//! What is known so far, in the form in which it is printed; kept on disk after each step, so that a run
//! whose time is up still says what it found.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::options::Options;

const FILE: &str = "result.json";
/// The keys that every result has.
const KEYS: [&str; 7] =
    ["gpu", "driver", "guests", "copy_over_native", "doorbell_us", "compute_over_native", "share_error"];

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Record(Map<String, Value>);

impl Record {
    /// Nothing is known yet: all keys are there, and not known to be good.
    pub fn new(options: &Options) -> Self {
        let mut fields = Map::new();
        fields.insert("ok".into(), false.into());
        for key in KEYS {
            fields.insert(key.into(), Value::Null);
        }
        fields.insert("guests".into(), json!([]));
        fields.insert("backend".into(), options.backend.name().into());
        fields.insert("chip".into(), options.chip.name().into());
        fields.insert("problems".into(), json!([]));
        fields.insert("steps".into(), json!([]));
        Self(fields)
    }

    /// The record that a worker kept in `folder`.
    pub fn read(folder: &Path) -> Option<Self> {
        serde_json::from_str(&fs::read_to_string(folder.join(FILE)).ok()?).ok().map(Self)
    }

    /// Keeps it in `folder`, as a whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let (path, partial) = (folder.join(FILE), folder.join("result.partial"));
        fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
        fs::write(&partial, format!("{:#}\n", Value::Object(self.0.clone())))
            .and_then(|()| fs::rename(&partial, &path))
            .with_context(|| format!("Cannot write {}", path.display()))
    }

    /// Sets a field.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.to_owned(), value.into());
    }

    /// All fields.
    pub const fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Adds to one of the lists.
    pub fn add(&mut self, key: &str, value: impl Into<Value>) {
        if let Some(Value::Array(list)) = self.0.get_mut(key) {
            list.push(value.into());
        }
    }

    /// Notes something that was wrong.
    pub fn problem(&mut self, problem: String) {
        self.add("problems", problem);
    }

    /// Everything that was wrong.
    pub fn problems(&self) -> Vec<&str> {
        let list = self.0.get("problems").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).collect()
    }

    /// Whether everything went well.
    pub fn ok(&self) -> bool {
        self.0.get("ok").and_then(Value::as_bool) == Some(true)
    }

    /// Whether any step was run, and all problems are known.
    pub fn finish(&mut self, took: Duration) {
        let steps = self.0.get("steps").and_then(Value::as_array).map_or(0, Vec::len);
        let ok = self.problems().is_empty() && steps > 0;
        self.set("ok", ok);
        self.set("seconds", round(took.as_secs_f64()));
    }

    /// The one line.
    pub fn line(&self) -> String {
        Value::Object(self.0.clone()).to_string()
    }
}

/// Three digits after the point are more than anything here is worth.
pub fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn record() -> Record {
        Record::new(&Options::parse_from(["run.sh"]))
    }

    #[test]
    fn result_has_the_promised_keys_from_the_beginning() {
        let record = record();
        for key in KEYS.into_iter().chain(["ok"]) {
            assert!(record.0.contains_key(key), "{key}");
        }
    }

    #[test]
    fn run_without_a_step_or_with_a_problem_is_not_ok() {
        let mut nothing = record();
        nothing.finish(Duration::from_secs(1));
        assert!(!nothing.ok());

        let mut good = record();
        good.add("steps", json!({ "name": "one" }));
        good.finish(Duration::from_secs(1));
        assert!(good.ok());

        good.problem("vm1: a byte differs".into());
        good.finish(Duration::from_secs(1));
        assert!(!good.ok());
        assert_eq!(good.problems(), ["vm1: a byte differs"]);
    }

    #[test]
    fn record_is_read_as_it_was_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = record();
        kept.set("doorbell_us", 1.5);
        kept.write(folder.path()).unwrap();
        assert_eq!(Record::read(folder.path()), Some(kept));
        assert_eq!(Record::read(&folder.path().join("none")), None);
    }
}
