//! What the demonstration shows while it runs: on standard error, so that a JSON result stays alone on
//! standard output.

use std::time::Instant;

use serde_json::Value;

use super::VmResult;
use crate::machine::Said;
use crate::report::{ProgramResult, Report};
use crate::verdict;

/// The display.
#[derive(Debug)]
pub struct Show {
    start: Instant,
}

impl Show {
    /// Begins; times count from now.
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// The first line.
    pub fn title(&self, text: &str) {
        eprintln!("\n{text}\n");
    }

    /// A line of its own.
    pub fn line(&self, text: &str) {
        eprintln!("{text}");
    }

    /// Something that a guest said: its driver's lines and the results of programs.
    pub fn said(&mut self, name: &str, said: &Said<'_>) {
        let text = match said {
            Said::Console(line) if ["nouveau", "NVRM", "nvidia"].iter().any(|word| line.contains(word)) => {
                (*line).to_owned()
            }
            Said::Console(_) => return,
            Said::Report(Report::Event { name: event, fields }) => {
                match (event.as_str(), fields.get("kernel")) {
                    ("boot", Some(Value::String(kernel))) => format!("Linux {kernel} is up"),
                    _ => return,
                }
            }
            Said::Report(Report::Result(result)) => describe(result),
        };
        eprintln!("{:6.1} s  {name:5} {text}", self.start.elapsed().as_secs_f64());
    }

    /// The table at the end.
    pub(super) fn results(&self, programs: &[&str], results: &[VmResult], problems: &[String]) {
        eprintln!(
            "\n{:5} {:9} {:>9} {:>10} {:>9} {:>8}",
            "VM", "checks", "probe", "4 KiB copy", "GPU share", "foreign"
        );
        for result in results {
            let passed = programs
                .iter()
                .filter(|program| {
                    let program = verdict::program_of(program);
                    result.verdict.result(program, 0).is_some_and(|result| result.ok)
                })
                .count();
            let figure = |program: &str, name: &str, unit: &str| {
                let value = result.verdict.result(program, 0).and_then(|result| result.figure(name));
                value.map_or("-".to_owned(), |value| format!("{value:.0} {unit}"))
            };
            let (share, foreign) =
                result.tenant.as_ref().map_or(("-".to_owned(), "-".to_owned()), |tenant| {
                    (
                        format!("{:.0} %", tenant.gpu_share * 100.0),
                        tenant.foreign_accesses.map_or("-".to_owned(), |count| count.to_string()),
                    )
                });
            let (probe, latency) =
                (figure("probe", "probe_ms", "ms"), figure("fence", "submit_us_p50", "us"));
            let checks = format!("{passed} of {}", programs.len());
            eprintln!("{:5} {checks:9} {probe:>9} {latency:>10} {share:>9} {foreign:>8}", result.name);
        }
        if let Some(result) = results.first() {
            result.nvidia_page().iter().for_each(|line| eprintln!("{line}"));
        }
        eprintln!();
        problems.iter().for_each(|problem| eprintln!("problem: {problem}"));
        eprintln!("{}", if problems.is_empty() { "every check passed" } else { "FAILED" });
    }
}

/// One line for a program's result: its name and its figures, or why it failed.
fn describe(result: &ProgramResult) -> String {
    if !result.ok {
        let why = result.error.as_deref().unwrap_or("no reason given");
        return format!("{:9} FAILED: {why}", result.program);
    }
    let figures: Vec<String> = result
        .figures
        .iter()
        .filter(|(name, value)| {
            !matches!(name.as_str(), "line" | "engines" | "kernel" | "skipped")
                && !matches!(value, Value::Array(lines) if lines.len() > 1)
        })
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name} {text}"),
            other => format!("{name} {other}"),
        })
        .collect();
    format!("{:9} ok: {}", result.program, figures.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(line: &str) -> ProgramResult {
        match Report::parse(&format!("GPUVMK-JSON {line}")) {
            Some(Report::Result(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn passed_program_is_described_by_its_figures() {
        let text = describe(&result(r#"{"prog":"copy","ok":true,"bytes":12,"chipset":"0xc0"}"#));
        assert_eq!(text, "copy      ok: bytes 12, chipset 0xc0");
    }

    #[test]
    fn failed_program_is_described_by_its_reason() {
        let text = describe(&result(r#"{"prog":"copy","ok":false,"error":"byte 0x9 differs"}"#));
        assert_eq!(text, "copy      FAILED: byte 0x9 differs");
    }
}
