//! What guest programs report: one JSON object a line, behind a marker, on a serial port of its own.
//!
//! Kernel messages and programs on one console can mix within a line, so `/init` writes its reports to the
//! second serial port. A report is either an event of `/init` (`{"event":"boot",...}`) or a program's result
//! (`{"prog":"copy","ok":true,...figures}`).

use serde_json::{Map, Value};

/// What stands before each report.
pub const MARKER: &str = "GPUVMK-JSON ";

/// One report of a guest.
#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    /// `/init` says how far it is.
    Event {
        /// `boot`, `start`, `end` and the like.
        name: String,
        /// Everything else it says.
        fields: Map<String, Value>,
    },
    /// A program's one result.
    Result(ProgramResult),
}

/// A guest program's result.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramResult {
    /// Which program.
    pub program: String,
    /// Which of the guest's GPUs it ran on.
    pub gpu: u64,
    /// Whether it passed.
    pub ok: bool,
    /// Why not.
    pub error: Option<String>,
    /// Its figures, by name.
    pub figures: Map<String, Value>,
}

impl ProgramResult {
    /// A figure as a number.
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.get(name).and_then(Value::as_f64)
    }
}

impl Report {
    /// Reads a line of the report port; `None` if it is no report.
    pub fn parse(line: &str) -> Option<Self> {
        let (_, json) = line.split_once(MARKER)?;
        let mut fields: Map<String, Value> = serde_json::from_str(json.trim()).ok()?;
        if let Some(Value::String(name)) = fields.remove("event") {
            return Some(Self::Event { name, fields });
        }
        let Some(Value::String(program)) = fields.remove("prog") else { return None };
        let ok = fields.remove("ok").and_then(|value| value.as_bool()).unwrap_or(false);
        let gpu = fields.remove("gpu").and_then(|value| value.as_u64()).unwrap_or(0);
        let error = fields.remove("error").and_then(|value| value.as_str().map(str::to_owned));
        Some(Self::Result(ProgramResult { program, gpu, ok, error, figures: fields }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_line_gives_program_outcome_and_figures() {
        let line =
            "GPUVMK-JSON {\"prog\":\"fence\",\"gpu\":1,\"ok\":true,\"error\":null,\"submit_us_p50\":82.5}\r";
        let Some(Report::Result(result)) = Report::parse(line) else { panic!("no result") };
        assert_eq!((result.program.as_str(), result.gpu, result.ok), ("fence", 1, true));
        assert_eq!(result.figure("submit_us_p50"), Some(82.5));
        assert_eq!(result.error, None);
    }

    #[test]
    fn event_line_gives_its_name() {
        let Some(Report::Event { name, fields }) =
            Report::parse("GPUVMK-JSON {\"event\":\"boot\",\"uptime_ms\":7}")
        else {
            panic!("no event")
        };
        assert_eq!(name, "boot");
        assert_eq!(fields.get("uptime_ms"), Some(&Value::from(7)));
    }

    #[test]
    fn other_lines_and_broken_json_are_no_reports() {
        assert_eq!(Report::parse("[    1.0] nouveau: something"), None);
        assert_eq!(Report::parse("GPUVMK-JSON {\"prog\":\"copy\",\"ok\":tr"), None);
        assert_eq!(Report::parse("GPUVMK-JSON {\"ok\":true}"), None);
    }

    #[test]
    fn result_without_an_outcome_has_not_passed() {
        let Some(Report::Result(result)) = Report::parse("GPUVMK-JSON {\"prog\":\"copy\"}") else { panic!() };
        assert!(!result.ok);
    }
}
