//! The program that attacks a socket (`tests/peers`), for one attack.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use gpuvmk_lab::cache::source_tree;
use gpuvmk_lab::process::Priority;
use serde_json::Value;

use crate::attack::judge::Told;
use crate::workshop;

/// What an attack may take longer than it was told to: one that hangs is told from one that is slow. An
/// attacker has a thirtieth of a processor where others want it.
const MORE: Duration = Duration::from_secs(240);

/// Builds the program, next to gpuvmk.
pub fn build() -> Result<PathBuf> {
    if let Some(path) = workshop::built("gpuvmk-peers")? {
        return Ok(path);
    }
    let tree = source_tree();
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(&tree)
        .args(["build", "--quiet", "--release", "--package", "gpuvmk-peers"])
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("Cannot start cargo to build the hostile peers")?;
    ensure!(status.success(), "The hostile peers do not build: cargo ended with {status}");
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree.join("target"), |path| tree.join(path));
    Ok(target.join("release/gpuvmk-peers"))
}

/// A running attack.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    /// Its end ends the program.
    _stdin: Option<ChildStdin>,
    said: PathBuf,
    until: Instant,
}

impl Peer {
    /// Starts an attack on these sockets, at a low priority: what a process costs the host is for the host to
    /// share out.
    pub fn start(
        program: &Path,
        name: &str,
        (device, aggregator): (&Path, &Path),
        time: Duration,
        folder: &Path,
    ) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("Cannot create {}", folder.display()))?;
        let said = folder.join(format!("{name}.json"));
        let output = File::create(&said).with_context(|| format!("Cannot create {}", said.display()))?;
        let log = folder.join(format!("{name}.log"));
        let errors = File::create(&log).with_context(|| format!("Cannot create {}", log.display()))?;
        let mut child = Command::new("nice")
            .args(["-n", &(Priority::Lower as i32).to_string()])
            .arg(program)
            .arg(name)
            .arg("--device")
            .arg(device)
            .arg("--aggregator")
            .arg(aggregator)
            .args(["--seconds", &time.as_secs_f64().to_string()])
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("Cannot start {}", program.display()))?;
        let stdin = child.stdin.take();
        Ok(Self { child, _stdin: stdin, said, until: Instant::now() + time + MORE })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it said, once it has; the program then waits for its end.
    pub fn told(&mut self) -> Result<Option<Told>> {
        let text = fs::read_to_string(&self.said).unwrap_or_default();
        if let Some((line, _)) = text.split_once('\n') {
            return Ok(Some(told(line)?));
        }
        if let Some(status) = self.child.try_wait().context("Cannot look at the attacker")? {
            let log = fs::read_to_string(self.said.with_extension("log")).unwrap_or_default();
            bail!("the attacker ended with {status}: {}", gpuvmk_lab::machine::last_lines(&log, 3));
        }
        ensure!(Instant::now() < self.until, "the attacker did not come to an end");
        Ok(None)
    }

    /// Ends it, and waits for its end.
    pub fn end(mut self) -> Result<()> {
        if let Some(mut stdin) = self._stdin.take() {
            // It may be gone already.
            let _ = stdin.flush();
        }
        let until = Instant::now() + Duration::from_secs(60);
        while self.child.try_wait()?.is_none() {
            ensure!(Instant::now() < until, "the attacker does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn told(line: &str) -> Result<Told> {
    let value: Value = serde_json::from_str(line).with_context(|| format!("The attacker said: {line}"))?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let problems = value.get("problems").and_then(Value::as_array).into_iter().flatten();
    let problems = problems.filter_map(Value::as_str).map(str::to_owned).collect();
    let residue_bytes = value.get("residue_bytes").and_then(Value::as_u64).unwrap_or(0);
    Ok(Told { outcome: text("outcome"), seen: text("seen").unwrap_or_default(), residue_bytes, problems })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_the_attacker_is_read() {
        let told = told(r#"{"outcome":"R","seen":"EINVAL: 3","problems":["x"]}"#).unwrap();
        assert_eq!((told.outcome.as_deref(), told.seen.as_str()), (Some("R"), "EINVAL: 3"));
        assert_eq!(told.problems, ["x"]);
    }
}
