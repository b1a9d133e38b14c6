//! Reports to the host: JSON lines behind a marker.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::sys;

/// What stands before each report; the host looks for it.
pub const MARKER: &str = "GPUVMK-JSON ";

/// Where reports go.
#[derive(Debug)]
pub struct Reports {
    port: Option<File>,
}

impl Reports {
    /// Reports to the serial port `port`, else to the console.
    pub fn to(port: Option<&str>) -> Self {
        let port = port.and_then(|name| OpenOptions::new().write(true).open(format!("/dev/{name}")).ok());
        Self { port }
    }

    /// One report. There is nobody to tell if it cannot be written.
    pub fn send(&mut self, report: &Value) {
        let line = format!("{MARKER}{report}\n");
        let _ = match &mut self.port {
            Some(port) => port.write_all(line.as_bytes()),
            None => io::stdout().write_all(line.as_bytes()),
        };
    }

    /// Waits until everything has left the machine.
    pub fn drain(&self) {
        if let Some(port) = &self.port {
            sys::drain(port);
        }
    }

    /// An event of `/init`, with the time since boot.
    pub fn event(&mut self, name: &str, fields: Value) {
        let mut report = Map::new();
        report.insert("event".into(), name.into());
        report.insert("uptime_ms".into(), uptime_ms().into());
        if let Value::Object(fields) = fields {
            report.extend(fields);
        }
        self.send(&Value::Object(report));
    }
}

/// A program's result line.
pub fn result(program: &str, gpu: usize, outcome: anyhow::Result<Map<String, Value>>) -> Value {
    let (ok, figures, error) = match outcome {
        Ok(figures) => (true, figures, Value::Null),
        Err(error) => (false, Map::new(), format!("{error:#}").into()),
    };
    let mut line = Map::new();
    line.insert("prog".into(), program.into());
    line.insert("gpu".into(), gpu.into());
    line.insert("ok".into(), ok.into());
    line.extend(figures);
    line.insert("error".into(), error);
    Value::Object(line)
}

/// A result of `/init` for a program that gave none.
pub fn missing(program: &str, gpu: usize, why: &str) -> Value {
    json!({ "prog": program, "gpu": gpu, "ok": false, "error": why })
}

/// Milliseconds since boot.
pub fn uptime_ms() -> u64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds: f64 = text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0);
    std::time::Duration::try_from_secs_f64(seconds)
        .ok()
        .and_then(|time| u64::try_from(time.as_millis()).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_has_the_figures_of_a_program_that_passed() {
        let mut figures = Map::new();
        figures.insert("copies".into(), 3.into());
        let line = result("copy", 0, Ok(figures));
        assert_eq!(line, json!({ "prog": "copy", "gpu": 0, "ok": true, "copies": 3, "error": null }));
    }

    #[test]
    fn result_of_a_failure_carries_the_whole_chain() {
        let error = anyhow::anyhow!("inner").context("outer");
        assert_eq!(result("copy", 1, Err(error))["error"], "outer: inner");
    }
}
