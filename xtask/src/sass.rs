//! `cargo xtask sass`: what a GPU computed, against what the software GPU computes.

use std::process::Command;

use anyhow::{Context, Result};

/// What to do.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// `verify`, and its options
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
}

/// Runs the program of `tests/sass`, optimized: it executes hundreds of millions of instances.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["run", "--release", "--quiet", "--package", "gpuvmk-sass", "--bin", "gpuvmk-sass", "--"]);
    command.args(&arguments.words);
    Ok(command.status().context("Cannot run cargo")?.success())
}
