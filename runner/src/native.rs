//! What the machine's GPU does without guests: `gpuvmk gpu list` and `gpuvmk gpu bench`, as the same user.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gpuvmk_lab::machine::last_lines;
use gpuvmk_lab::process::Process;
use serde_json::Value;

/// How long a call may take: the measurements themselves take a few seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// gpuvmk's commands for the physical GPU.
#[derive(Debug)]
pub struct Native {
    gpuvmk: PathBuf,
    logs: PathBuf,
}

impl Native {
    /// Calls `gpuvmk`; its output is kept in `logs`.
    pub fn new(gpuvmk: PathBuf, logs: &Path) -> Self {
        Self { gpuvmk, logs: logs.join("native") }
    }

    /// The GPUs of this machine.
    pub fn list(&self) -> Result<Value> {
        self.call("list", "list", &[])
    }

    /// Measures; `label` names the output's file.
    pub fn bench(&self, label: &str) -> Result<Value> {
        self.call("bench", label, &[])
    }

    fn call(&self, command: &str, label: &str, words: &[&str]) -> Result<Value> {
        fs::create_dir_all(&self.logs).with_context(|| format!("Cannot create {}", self.logs.display()))?;
        let (output, errors) =
            (self.logs.join(format!("{label}.out")), self.logs.join(format!("{label}.err")));
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("Cannot create {}", path.display())).map(Stdio::from)
        };
        let mut call = Command::new(&self.gpuvmk);
        call.args(["gpu", command, "--json"]).args(words);
        call.stdin(Stdio::null()).stdout(create(&output)?).stderr(create(&errors)?);
        let name = format!("gpuvmk gpu {command}");
        let mut process = Process::start(call, &name)?;
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let Some(status) = process.wait(LIMIT)? else {
            bail!("{name} was not done after {} s", LIMIT.as_secs());
        };
        // A report of what failed is an answer, too.
        match last_json(&read(&output)) {
            Some(answer) => Ok(answer),
            None if status.success() => bail!("{name} printed no JSON: {}", last_lines(&read(&output), 1)),
            None => bail!("{name} ended with {status}: {}", last_lines(&read(&errors), 3)),
        }
    }
}

/// The JSON value of the last line, or of the whole text.
fn last_json(text: &str) -> Option<Value> {
    let last = text.lines().rfind(|line| !line.trim().is_empty())?;
    serde_json::from_str(last).ok().or_else(|| serde_json::from_str(text).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(script: &str) -> (tempfile::TempDir, Native) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("gpuvmk");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let native = Native::new(program, folder.path());
        (folder, native)
    }

    #[test]
    fn last_line_is_the_answer() {
        let (_folder, native) = native("echo measuring; echo '{\"gpu\":\"H200\"}'");
        assert_eq!(native.bench("before").unwrap()["gpu"], "H200");
    }

    #[test]
    fn failure_carries_the_commands_own_words() {
        let (_folder, native) = native("echo 'gpuvmk: no NVIDIA driver is loaded' >&2; exit 1");
        let message = format!("{:#}", native.list().unwrap_err());
        assert!(message.contains("gpu list") && message.contains("no NVIDIA driver"), "{message}");
    }

    #[test]
    fn value_on_several_lines_is_read_as_a_whole() {
        assert_eq!(last_json("{\n \"a\": 1\n}\n").unwrap()["a"], 1);
        assert_eq!(last_json("nothing"), None);
    }
}
