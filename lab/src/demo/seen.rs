//! What a guest's monitor showed in a demonstration.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use crate::screen::Look;

/// All looks at a monitor, and the last picture, which stays.
#[derive(Debug)]
pub(super) struct Seen {
    looks: Vec<Look>,
    path: Option<PathBuf>,
}

impl Seen {
    /// The looks at the monitor of a VM. The last picture becomes a file of its own in the folder for
    /// temporary files.
    pub(super) fn of(name: &str, looks: &[Look]) -> Result<Self> {
        let path = looks.last().map(|last| {
            let path = std::env::temp_dir().join(format!("gpuvmk-demo-{}-{name}.png", std::process::id()));
            let copied = fs::copy(&last.path, &path);
            copied.with_context(|| format!("Cannot keep the picture {}", path.display())).map(|_| path)
        });
        Ok(Self { looks: looks.to_vec(), path: path.transpose()? })
    }

    /// Pictures that are not what the guest said, and that there are none.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems: Vec<_> = self.looks.iter().filter_map(|look| look.problem.clone()).collect();
        if self.looks.is_empty() {
            problems.push("nobody has looked at its monitor".to_owned());
        }
        problems
    }

    /// The last picture, how many of all were right, and the text that was read in the last one.
    pub(super) fn json(&self) -> Value {
        let of_kind = |is_text: bool| self.looks.iter().filter(move |look| look.is_text == is_text);
        let checks = [("text", true), ("pictures", false)].map(|(name, is_text)| {
            let right = of_kind(is_text).all(|look| look.problem.is_none());
            (name.to_owned(), Value::from(right && of_kind(is_text).next().is_some()))
        });
        let (width, height) = self.looks.last().map_or((0, 0), |last| last.size);
        json!({
            "path": self.path.as_ref().map(|path| path.display().to_string()),
            "width": width,
            "height": height,
            "looks": self.looks.len(),
            "checks": Map::from_iter(checks),
            "text": self.looks.last().and_then(|last| last.text.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_fail_where_a_picture_is_wrong_or_none_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("screen.png");
        fs::write(&path, "png").unwrap();
        let look = |is_text, problem: Option<&str>| Look {
            path: path.clone(),
            size: (640, 480),
            is_text,
            text: is_text.then(|| vec!["one".to_owned()]),
            problem: problem.map(str::to_owned),
        };
        let seen = Seen::of("seen-test", &[look(false, Some("pixel 0,0")), look(true, None)]).unwrap();
        let json = seen.json();
        assert_eq!(json["checks"], json!({ "text": true, "pictures": false }));
        assert_eq!(
            (&json["width"], &json["height"], &json["text"]),
            (&640.into(), &480.into(), &json!(["one"]))
        );
        assert_eq!(seen.problems(), ["pixel 0,0"]);
        fs::remove_file(seen.path.as_ref().unwrap()).unwrap();
        let none = Seen::of("seen-test", &[]).unwrap();
        assert_eq!(none.json()["checks"], json!({ "text": false, "pictures": false }));
        assert_eq!(none.problems().len(), 1);
    }
}
