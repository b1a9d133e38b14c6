//! Programs in processes of their own: started by another program, judged by the line that each prints.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Figures;
use crate::report::MARKER;

/// A program that runs in another process.
#[derive(Debug)]
pub struct Other {
    program: String,
    child: Child,
}

impl Other {
    /// Starts `program` with these options.
    pub fn start(program: &str, options: &[String]) -> Result<Self> {
        let child = Command::new("/proc/self/exe")
            .arg(program)
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start another process")?;
        Ok(Self { program: program.to_owned(), child })
    }

    /// Waits for its end. If it failed, the error says what it said.
    pub fn finish(self) -> Result<Figures> {
        let Self { program, child } = self;
        let output = child.wait_with_output().context("cannot wait for another process")?;
        judge(&String::from_utf8_lossy(&output.stdout))
            .with_context(|| format!("{program} in another process failed ({})", output.status))
    }
}

/// The figures in a program's output, or its error.
fn judge(output: &str) -> Result<Figures> {
    let line = output.lines().find_map(|line| line.strip_prefix(MARKER)).context("it printed no result")?;
    let Value::Object(mut result) = serde_json::from_str(line).context("its result is no JSON")? else {
        bail!("its result is no JSON object: {line}");
    };
    let error = result.remove("error");
    if result.remove("ok") == Some(true.into()) {
        return Ok(result);
    }
    bail!("{}", error.as_ref().and_then(Value::as_str).unwrap_or("it gave no reason"))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;
    use crate::report;

    fn printed(outcome: Result<Figures>) -> String {
        format!("something else\n{MARKER}{}\n", report::result("copy", 0, outcome))
    }

    #[test]
    fn figures_of_a_good_end_are_kept() {
        let mut figures = Figures::new();
        figures.insert("copies".into(), 7.into());

        assert_eq!(judge(&printed(Ok(figures))).unwrap()["copies"], 7);
    }

    #[test]
    fn what_a_program_says_of_its_failure_is_not_lost() {
        let error = judge(&printed(Err(anyhow!("waiting for the GPU: EBUSY")))).unwrap_err();
        assert_eq!(error.to_string(), "waiting for the GPU: EBUSY");

        let silent = judge("nothing\n").unwrap_err();
        assert!(silent.to_string().contains("no result"), "{silent}");
    }
}
