//! One command to QEMU's monitor (QMP): lines of JSON, a greeting first.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Has QEMU carry out `command` and waits until it has; returns what it says then.
pub fn execute(socket: &Path, command: &str, arguments: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("Cannot reach QEMU's monitor {}", socket.display()))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut answers = BufReader::new(stream.try_clone()?);
    // Until capabilities were agreed upon, nothing else is taken.
    let mut answer = Value::Null;
    for (command, arguments) in [("qmp_capabilities", &json!({})), (command, arguments)] {
        let order = json!({ "execute": command, "arguments": arguments });
        writeln!(stream, "{order}").context("Cannot tell QEMU's monitor")?;
        answer = wait(&mut answers, command)?;
    }
    Ok(answer)
}

/// Waits for the answer, past the greeting and events.
fn wait(answers: &mut impl BufRead, command: &str) -> Result<Value> {
    loop {
        let mut line = String::new();
        if answers.read_line(&mut line).context("QEMU's monitor does not answer")? == 0 {
            bail!("QEMU's monitor is gone");
        }
        let mut answer: Value = serde_json::from_str(&line).context("QEMU's monitor speaks no JSON")?;
        if let Some(returned) = answer.get_mut("return") {
            return Ok(returned.take());
        }
        if let Some(error) = answer.get("error") {
            bail!("QEMU refuses '{command}': {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_found_behind_greeting_and_events() {
        let mut lines = "{\"QMP\":{}}\n{\"event\":\"STOP\"}\n{\"return\":{}}\n".as_bytes();
        assert!(wait(&mut lines, "stop").is_ok());
    }

    #[test]
    fn refusal_and_end_are_errors() {
        let mut lines = "{\"error\":{\"desc\":\"no such command\"}}\n".as_bytes();
        assert!(wait(&mut lines, "stop").unwrap_err().to_string().contains("no such command"));
        assert!(wait(&mut "".as_bytes(), "stop").is_err());
    }
}
