//! The host's tests: cargo builds them, and one more of their programs runs at a time than there are
//! processors, since most wait for much of their time. What a program says comes in one piece when it has
//! ended. Tests in documentation follow.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use gpuvmk_lab::cache::source_tree;
use gpuvmk_lab::interrupt;
use serde_json::Value;

/// A test program.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    name: String,
    path: PathBuf,
    /// Where cargo would run it.
    folder: PathBuf,
}

/// Builds and runs all; what failed.
pub fn run() -> Result<Vec<String>> {
    eprintln!("host tests");
    let programs = build()?;
    let together = thread::available_parallelism().map_or(1, NonZero::get).saturating_add(1);
    let mut failed = run_all(programs, together)?;
    let documentation = Command::new(cargo())
        .current_dir(source_tree())
        .args(["test", "--workspace", "--doc", "--quiet", "--no-fail-fast"])
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("Cannot start cargo test")?;
    if !documentation.success() {
        failed.push("tests in documentation".to_owned());
    }
    Ok(failed)
}

fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Has cargo build all test programs. What takes longest comes first: unit tests, then programs in the order
/// of their size.
fn build() -> Result<Vec<Program>> {
    let output = Command::new(cargo())
        .current_dir(source_tree())
        .args(["test", "--workspace", "--lib", "--bins", "--tests", "--no-run", "--quiet"])
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .context("Cannot start cargo test")?;
    if !output.status.success() {
        bail!("The tests cannot be built");
    }
    let mut programs = programs(&String::from_utf8_lossy(&output.stdout));
    if programs.is_empty() {
        bail!("cargo built no test programs");
    }
    let size = |program: &Program| std::fs::metadata(&program.path).map_or(0, |facts| facts.len());
    programs.sort_by_key(|program| std::cmp::Reverse(size(program)));
    Ok(programs)
}

/// The test programs that cargo's messages tell of.
fn programs(messages: &str) -> Vec<Program> {
    let program = |message: Value| {
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let path = PathBuf::from(message["executable"].as_str().filter(|_| is_test)?);
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        let package = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let name = format!("{} ({package})", message["target"]["name"].as_str()?);
        Some(Program { name, path, folder })
    };
    messages.lines().filter_map(|line| serde_json::from_str(line).ok()).filter_map(program).collect()
}

/// Runs them, so many at a time; the names of those that failed, and of their tests.
fn run_all(programs: Vec<Program>, together: usize) -> Result<Vec<String>> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let failed = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        while interrupt::check().is_ok() {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            let Some(program) = next else { break };
            let problems = run_one(&program)?;
            failed.lock().unwrap_or_else(PoisonError::into_inner).extend(problems);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..together).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            match worker.join() {
                Ok(outcome) => outcome?,
                Err(_) => bail!("a thread that runs tests broke down"),
            }
        }
        Ok(())
    })?;
    interrupt::check()?;
    Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Runs one; what failed of it.
fn run_one(program: &Program) -> Result<Vec<String>> {
    let start = Instant::now();
    let output = Command::new(&program.path)
        .arg("--quiet")
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("Cannot start {}", program.path.display()))?;
    let ok = output.status.success();
    let outcome = if ok { "ok" } else { "FAILED" };
    let mut said =
        format!("{:40} {outcome} {:6.1} s\n", program.name, start.elapsed().as_secs_f64()).into_bytes();
    if !ok {
        said.extend_from_slice(&output.stdout);
        said.extend_from_slice(&output.stderr);
        said.extend_from_slice(format!("{}: {}\n", program.name, output.status).as_bytes());
    }
    // Where nobody reads it, the outcome counts all the same.
    let _ = std::io::stderr().lock().write_all(&said);
    if ok {
        return Ok(Vec::new());
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let tests = failed_tests(&said);
    let which = if tests.is_empty() { "all of it".to_owned() } else { tests.join(", ") };
    Ok(vec![format!("{}: {which} ({})", program.name, output.status)])
}

/// The tests that a test program names as failed, in the list at its output's end.
fn failed_tests(output: &str) -> Vec<&str> {
    let Some((_, list)) = output.rsplit_once("\nfailures:\n") else { return Vec::new() };
    list.lines().map_while(|line| line.strip_prefix("    ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_those_of_the_list_at_the_end() {
        let output = "\nfailures:\n\n---- a::b stdout ----\nassertion failed\n\nfailures:\n    a::b\n    c\n\ntest \
                      result: FAILED. 3 passed; 2 failed\n";
        assert_eq!(failed_tests(output), ["a::b", "c"]);
        assert!(failed_tests("running 3 tests\n...\ntest result: ok.").is_empty());
    }

    #[test]
    fn test_programs_are_found_among_cargos_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","manifest_path":"/s/Cargo.toml","target":{"name":"jail"},"profile":{"test":true},"executable":"/t/jail-1"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/s/Cargo.toml","target":{"name":"gpuvmk"},"profile":{"test":false},"executable":"/t/gpuvmk"}"#,
            "\n",
            r#"{"reason":"compiler-artifact","manifest_path":"/s/lab/Cargo.toml","target":{"name":"lab"},"profile":{"test":true},"executable":null}"#,
            "\nnoise\n",
        );

        let found = programs(messages);

        let jail = Program { name: "jail (s)".into(), path: "/t/jail-1".into(), folder: "/s".into() };
        assert_eq!(found, [jail]);
    }

    #[test]
    fn those_that_fail_are_named_and_the_others_run_all_the_same() {
        let program = |name: &str| Program {
            name: name.to_owned(),
            path: format!("/bin/{name}").into(),
            folder: "/".into(),
        };

        let failed = run_all(vec![program("true"), program("false"), program("true")], 2).unwrap();

        assert_eq!(failed, ["false: all of it (exit status: 1)"]);
        assert!(run_all(vec![program("no-such-program")], 1).is_err());
    }
}
