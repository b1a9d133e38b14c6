//! The program's one line.

use serde_json::{Map, Value};

use crate::checks::Outcome;
use crate::options::Options;

/// What stands before the report; `/init` looks for it.
const MARKER: &str = "GPUVMK-JSON ";

/// The line: the device, each check with its figures, and the first failure.
pub fn line(options: &Options, outcome: Outcome) -> String {
    let mut line = Map::new();
    line.insert("prog".into(), options.name.as_str().into());
    line.insert("gpu".into(), options.gpu.into());
    line.insert("ok".into(), outcome.ok().into());
    line.extend(outcome.about);
    let error = outcome.trouble.or_else(|| {
        let failed = outcome.checks.iter().find_map(|(name, result)| Some((name, result.as_ref().err()?)));
        failed.map(|(name, error)| format!("{name}: {error:#}"))
    });
    let mut checks = Map::new();
    for (name, result) in outcome.checks {
        let fields: Map<String, Value> = match result {
            Ok(figures) => [("ok".to_owned(), Value::Bool(true))].into_iter().chain(figures).collect(),
            Err(error) => Map::from_iter([
                ("ok".to_owned(), Value::Bool(false)),
                ("error".to_owned(), format!("{error:#}").into()),
            ]),
        };
        // A check may be asked for twice.
        let again = (2..).map(|number| format!("{name}_{number}"));
        let key = std::iter::once(name.to_owned()).chain(again).find(|key| !checks.contains_key(key));
        checks.insert(key.unwrap_or_default(), Value::Object(fields));
    }
    line.insert("checks".into(), checks.into());
    line.insert("skipped".into(), outcome.skipped.into());
    line.insert("error".into(), error.into());
    format!("{MARKER}{}", Value::Object(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn failed_check_is_named_and_the_others_keep_their_figures() {
        let options = Options::parse(&[]).unwrap();
        let figures = Map::from_iter([("bytes".to_owned(), Value::from(7))]);
        let outcome = Outcome {
            checks: vec![
                ("copy", Ok(figures)),
                ("fill", Err(anyhow!("9 of 9 bytes are wrong"))),
                ("copy", Ok(Map::new())),
            ],
            skipped: vec!["events"],
            ..Outcome::default()
        };

        let line = line(&options, outcome);

        let json: Value = serde_json::from_str(line.strip_prefix(MARKER).unwrap()).unwrap();
        assert_eq!((&json["ok"], &json["prog"]), (&Value::Bool(false), &Value::from("cuda")));
        assert_eq!(json["error"], "fill: 9 of 9 bytes are wrong");
        assert_eq!(json["checks"]["copy"], serde_json::json!({ "ok": true, "bytes": 7 }));
        assert_eq!(json["checks"]["copy_2"]["ok"], true);
        assert_eq!(json["skipped"], serde_json::json!(["events"]));
    }
}
