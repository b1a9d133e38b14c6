//! The gpuvmk that lies in `/host` of a guest that is a host itself, with the C library that it was linked
//! with.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

/// What starts it: the dynamic loader, and words that come first.
const LOADER: &str = "/host/lib/ld-linux-x86-64.so.2";
const WORDS: [&str; 2] = ["--library-path", "/host/lib"];

/// A command of it.
pub fn command(arguments: &[&str]) -> Command {
    program("/host/gpuvmk", arguments)
}

/// A command of another program that lies there and was linked with the same libraries.
pub fn program(path: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(LOADER);
    command.args(WORDS).arg(path).args(arguments);
    command
}

/// Runs a command to its end.
pub fn output(arguments: &[&str]) -> Result<Output> {
    command(arguments).stdin(Stdio::null()).output().context("cannot start gpuvmk")
}

/// What it prints as JSON.
pub fn says(arguments: &[&str]) -> Result<Value> {
    let output = output(arguments)?;
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!("gpuvmk {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr))
    })
}
