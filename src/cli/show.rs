//! `gpuvmk show VM`: everything that is known of one VM.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::control::Target;

/// Arguments of `gpuvmk show`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuvmk show vm1\n  gpuvmk show vm1 --json | jq .engines")]
pub(super) struct Args {
    /// Name of the VM.
    #[arg(value_name = "VM")]
    name: String,
    #[command(flatten)]
    target: Target,
    /// Print everything as one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let vm = args.target.call("vm.show", &json!({ "vm": args.name }))?;
    if args.json {
        say!("{vm}")?;
    } else {
        let mut lines = Vec::new();
        describe(&vm, "", &mut lines);
        say!("{}", lines.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line for each value, objects indented, lists by their elements' first value. Null values are left out.
fn describe(value: &Value, indent: &str, lines: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::Object(_) => {
                lines.push(format!("{indent}{key}:"));
                describe(value, &format!("{indent}  "), lines);
            }
            Value::Array(elements) => {
                for element in elements {
                    lines.push(format!("{indent}{key}:"));
                    describe(element, &format!("{indent}  "), lines);
                }
            }
            Value::String(text) => lines.push(format!("{indent}{key}: {text}")),
            plain => lines.push(format!("{indent}{key}: {plain}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_are_indented_and_absent_ones_left_out() {
        let mut lines = Vec::new();
        let vm = json!({ "name": "vm1", "engines": [{ "engine": "copy0", "used_us": 5 }], "fail_safe": null,
            "share": { "weight": 100 } });
        describe(&vm, "", &mut lines);
        lines.sort();

        assert_eq!(
            lines,
            ["  engine: copy0", "  used_us: 5", "  weight: 100", "engines:", "name: vm1", "share:"]
        );
    }
}
