//! Debian's promtool, which checks alert rules: unpacked beside the C library that it was built for, not installed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Result;

use crate::apt::{self, Apt};
use crate::cache::Cache;

const NAME: &str = "promtool";
const SUITE: &str = "bookworm";

/// The program.
#[derive(Debug)]
pub struct Promtool {
    root: PathBuf,
}

impl Promtool {
    /// From the cache, fetched first if need be.
    pub fn obtain(cache: &Cache) -> Result<Self> {
        if let Some(root) = cache.entry(NAME, Some(SUITE)) {
            return Ok(Self { root });
        }
        let lock = cache.lock()?;
        let root = cache.entry_or_build(&lock, NAME, SUITE, |folder| {
            eprintln!("gpuvmk: fetching promtool, of Debian's package prometheus (20 MB)");
            let downloads = folder.join("download");
            let packages = ["prometheus", "libc6"].map(|package| format!("{package}/{SUITE}"));
            let packages = packages.each_ref().map(String::as_str);
            let files = Apt::set_up(cache)?.download(&packages, &downloads)?;
            apt::unpack(&files, folder, "promtool")?;
            std::fs::remove_dir_all(&downloads)?;
            // The server itself is three times as large and not needed.
            let _ = std::fs::remove_file(folder.join("usr/bin/prometheus"));
            Ok(())
        })?;
        Ok(Self { root })
    }

    /// The program with these arguments, in `folder`.
    pub fn command(&self, arguments: &[&str], folder: &Path) -> Command {
        let libraries = self.root.join("lib/x86_64-linux-gnu");
        let mut command = Command::new(libraries.join("ld-linux-x86-64.so.2"));
        command.arg("--library-path").arg(&libraries).arg(self.root.join("usr/bin").join(NAME));
        command.args(arguments).current_dir(folder).stdin(Stdio::null());
        command
    }
}
