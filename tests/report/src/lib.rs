//! The one line in which a guest's program says what its checks found. The guest's `/init` looks for it.

use anyhow::Result;
use serde_json::{Map, Value};

/// What stands before the line.
const MARKER: &str = "GPUVMK-JSON ";

/// What a check, or a driver of its device, found out, by name.
pub type Figures = Map<String, Value>;

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The device and its driver.
    pub about: Figures,
    /// What kept the checks from being run.
    pub trouble: Option<String>,
    /// Each check that ran, with what it found out.
    pub checks: Vec<(&'static str, Result<Figures>)>,
    /// Checks that were not run, as one before them failed.
    pub skipped: Vec<&'static str>,
}

impl Outcome {
    /// Whether everything passed.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.trouble.is_none() && self.checks.iter().all(|(_, result)| result.is_ok())
    }

    /// The line of a program that was called by this name, for that GPU of the guest: the device, each check
    /// with its figures, and the first failure.
    #[must_use]
    pub fn line(self, program: &str, gpu: usize) -> String {
        let mut line = Map::new();
        line.insert("prog".into(), program.into());
        line.insert("gpu".into(), gpu.into());
        line.insert("ok".into(), self.ok().into());
        line.extend(self.about);
        let error = self.trouble.or_else(|| {
            let failed = self.checks.iter().find_map(|(name, result)| Some((name, result.as_ref().err()?)));
            failed.map(|(name, error)| format!("{name}: {error:#}"))
        });
        let mut checks = Map::new();
        for (name, result) in self.checks {
            let fields: Figures = match result {
                Ok(figures) => [("ok".to_owned(), Value::Bool(true))].into_iter().chain(figures).collect(),
                Err(error) => Map::from_iter([
                    ("ok".to_owned(), Value::Bool(false)),
                    ("error".to_owned(), format!("{error:#}").into()),
                ]),
            };
            // A check may be asked for twice, such as before and after one that loses the device.
            let again = (2..).map(|number| format!("{name}_{number}"));
            let key = std::iter::once(name.to_owned()).chain(again).find(|key| !checks.contains_key(key));
            checks.insert(key.unwrap_or_default(), Value::Object(fields));
        }
        line.insert("checks".into(), checks.into());
        line.insert("skipped".into(), self.skipped.into());
        line.insert("error".into(), error.into());
        format!("{MARKER}{}", Value::Object(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn failed_check_is_named_and_the_others_keep_their_figures() {
        let figures = Map::from_iter([("bytes".to_owned(), Value::from(7))]);
        let outcome = Outcome {
            about: Map::from_iter([("driver".to_owned(), "stock".into())]),
            checks: vec![
                ("fill", Ok(figures)),
                ("saxpy", Err(anyhow!("9 of 9 words are wrong"))),
                ("fill", Ok(Map::new())),
            ],
            skipped: vec!["reduction"],
            ..Outcome::default()
        };

        let line = outcome.line("nvk", 1);

        let json: Value = serde_json::from_str(line.strip_prefix(MARKER).unwrap()).unwrap();
        assert_eq!((&json["ok"], &json["prog"]), (&Value::Bool(false), &Value::from("nvk")));
        assert_eq!((&json["gpu"], &json["driver"]), (&Value::from(1), &Value::from("stock")));
        assert_eq!(json["error"], "saxpy: 9 of 9 words are wrong");
        assert_eq!(json["checks"]["fill"], serde_json::json!({ "ok": true, "bytes": 7 }));
        assert_eq!(json["checks"]["saxpy"]["ok"], false);
        assert_eq!(json["checks"]["fill_2"]["ok"], true);
        assert_eq!(json["skipped"], serde_json::json!(["reduction"]));
    }
}
