//! What the machine's GPU does without guests: `gpuvmk gpu list` and `gpuvmk gpu bench`, and machine code
//! whose results other GPUs have given before, as the same user.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use gpuvmk_lab::machine::last_lines;
use gpuvmk_lab::pack::Pack;
use gpuvmk_lab::process::Process;
use serde_json::Value;

/// How long a call may take: the measurements themselves take a few seconds.
const LIMIT: Duration = Duration::from_secs(60);
/// No program of machine code begins after so many seconds, and all are compared within the limit.
const RECORDING_SECONDS: u32 = 60;
const RECORDING_LIMIT: Duration = Duration::from_secs(120);

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

    /// Runs what other GPUs have run, and compares with the software GPU.
    pub fn machine_code(&self, pack: &Pack) -> Result<Value> {
        let folder = pack.recordings();
        let mut call = Command::new(pack.sass());
        call.args(["record", "--json", "--seconds", &RECORDING_SECONDS.to_string()]);
        call.arg("--out").arg(self.logs.join("sass"));
        for recording in ["h200.gz", "h100.gz", "generic.gz"] {
            call.arg("--again").arg(folder.join(recording));
        }
        call.arg("--shapes");
        self.answer(call, "gpuvmk-sass record", "sass", RECORDING_LIMIT)
    }

    /// Runs the programs of the papers' table, and measures single operations.
    pub fn papers(&self, pack: &Pack, label: &str) -> Result<Value> {
        let mut call = Command::new(pack.gpu_bench());
        call.args(["papers", "--json"]);
        self.answer(call, "gpuvmk-gpu-bench papers", &format!("papers-{label}"), LIMIT)
    }

    fn call(&self, command: &str, label: &str, words: &[&str]) -> Result<Value> {
        let mut call = Command::new(&self.gpuvmk);
        call.args(["gpu", command, "--json"]).args(words);
        self.answer(call, &format!("gpuvmk gpu {command}"), label, LIMIT)
    }

    /// The last line of what a program prints.
    fn answer(&self, mut call: Command, name: &str, label: &str, limit: Duration) -> Result<Value> {
        fs::create_dir_all(&self.logs).with_context(|| format!("Cannot create {}", self.logs.display()))?;
        let (output, errors) =
            (self.logs.join(format!("{label}.out")), self.logs.join(format!("{label}.err")));
        let create = |path: &Path| {
            File::create(path).with_context(|| format!("Cannot create {}", path.display())).map(Stdio::from)
        };
        call.stdin(Stdio::null()).stdout(create(&output)?).stderr(create(&errors)?);
        let mut process = Process::start(call, name)?;
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let Some(status) = process.wait(limit)? else {
            bail!("{name} was not done after {} s", limit.as_secs());
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

    /// Writes a program, by another process: a descriptor of ours could be in a child that another test
    /// starts at that moment, and what somebody may write cannot be started.
    fn write_program(path: &Path, script: &str) {
        let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\"";
        let status = Command::new("/bin/sh").args(["-c", write]).arg(path).arg(script).status().unwrap();
        assert!(status.success(), "{status}");
    }

    fn native(script: &str) -> (tempfile::TempDir, Native) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("gpuvmk");
        write_program(&program, script);
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
    fn machine_code_is_that_of_the_pack() {
        let folder = tempfile::tempdir().unwrap();
        let pack = Pack::at(folder.path());
        let program = pack.sass();
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        write_program(&program, "printf '{\"words\":\"%s\"}' \"$*\"");
        let native = Native::new("gpuvmk".into(), folder.path());
        let words = native.machine_code(&pack).unwrap()["words"].as_str().unwrap().to_owned();
        for part in ["record --json", "sass/h200.gz", "sass/h100.gz", "sass/generic.gz", "--shapes"] {
            assert!(words.contains(part), "{words}");
        }
    }

    #[test]
    fn papers_table_is_run_by_the_packs_native_client() {
        let folder = tempfile::tempdir().unwrap();
        let pack = Pack::at(folder.path());
        fs::create_dir_all(pack.gpu_bench().parent().unwrap()).unwrap();
        write_program(&pack.gpu_bench(), "printf '{\"words\":\"%s\"}' \"$*\"");
        let native = Native::new("gpuvmk".into(), folder.path());
        assert_eq!(native.papers(&pack, "before").unwrap()["words"], "papers --json");
    }

    #[test]
    fn value_on_several_lines_is_read_as_a_whole() {
        assert_eq!(last_json("{\n \"a\": 1\n}\n").unwrap()["a"], 1);
        assert_eq!(last_json("nothing"), None);
    }
}
