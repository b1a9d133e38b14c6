//! `gpuvmk controls`

use std::process::ExitCode;

use super::output::print;
use crate::gsp::document;

/// Arguments of `gpuvmk controls`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  gpuvmk controls | grep NV2080")]
pub(super) struct Args {}

pub(super) fn run(_: &Args) -> anyhow::Result<ExitCode> {
    print(&document::markdown())?;
    Ok(ExitCode::SUCCESS)
}
