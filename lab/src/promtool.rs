//! Debian's promtool, which checks alert rules.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cache::Cache;
use crate::debian_program::{DebianProgram, Recipe};

static RECIPE: Recipe = Recipe {
    name: "promtool",
    about: "promtool, of Debian's package prometheus (20 MB)",
    packages: &["prometheus", "libc6"],
    dependencies: false,
    program: "usr/bin/promtool",
    libraries: &[],
    // The server itself is three times as large.
    unwanted: &["usr/bin/prometheus"],
};

/// The program.
#[derive(Debug)]
pub struct Promtool(DebianProgram);

impl Promtool {
    /// From the cache, fetched first if need be.
    pub fn obtain(cache: &Cache) -> Result<Self> {
        DebianProgram::obtain(cache, &RECIPE).map(Self)
    }

    /// The program with these arguments, in `folder`.
    pub fn command(&self, arguments: &[&str], folder: &Path) -> Result<Command> {
        self.0.command(arguments, folder)
    }
}
