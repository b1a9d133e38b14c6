//! `gpuvmk version`: of this program, and of a running aggregator.

use std::process::ExitCode;

use serde_json::json;

use super::control::Target;
use crate::aggregator::control::methods::API_VERSION;
use crate::aggregator::protocol::PROTOCOL_VERSION;

/// Arguments of `gpuvmk version`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  gpuvmk version\n  gpuvmk version --running --json")]
pub(super) struct Args {
    /// Ask the running aggregator, too.
    #[arg(long)]
    running: bool,
    #[command(flatten)]
    target: Target,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut versions = json!({
        "program": env!("CARGO_PKG_VERSION"), "control_api": API_VERSION, "backend_protocol": PROTOCOL_VERSION,
    });
    if args.running {
        versions["running"] = args.target.call("version", &json!({}))?;
    }
    if args.json {
        say!("{versions}")?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("gpuvmk {}", env!("CARGO_PKG_VERSION"))?;
    say!("control API {API_VERSION}, protocol of device back ends {PROTOCOL_VERSION}")?;
    if let Some(program) = versions["running"]["program"].as_str() {
        let api = versions["running"]["api"].as_str().unwrap_or("?");
        say!("running: gpuvmk {program}, control API {api}")?;
    }
    Ok(ExitCode::SUCCESS)
}
