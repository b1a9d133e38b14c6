//! Lavapipe, Mesa's Vulkan driver for processors, on this machine: that of Debian 13, with the libraries
//! that it needs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use super::mesa::{self, LIBRARIES, Mesa, SOFTWARE};
use super::program;
use crate::cache::Cache;

const ENTRY: &str = "lavapipe-trixie";
/// The driver's folder in the entry.
const PLACE: &str = "driver";

/// The driver, and our Vulkan program.
#[derive(Debug)]
pub struct Lavapipe {
    folder: PathBuf,
    program: PathBuf,
}

impl Lavapipe {
    /// Fetched and built first if need be.
    pub fn obtain(cache: &Cache) -> Result<Self> {
        let program = program(cache)?;
        let lock = cache.lock()?;
        let folder = cache.entry_or_build(&lock, ENTRY, "1", |folder| {
            let root = mesa::fetch(cache, folder, Mesa::Release)?;
            mesa::keep(&root, folder, SOFTWARE, PLACE)?;
            fs::remove_dir_all(&root).context("Cannot remove what is not needed of the packages")
        })?;
        Ok(Self { folder, program })
    }

    /// The version of Debian's package.
    pub fn version(&self) -> Result<String> {
        mesa::version(&self.folder)
    }

    /// The program on the driver; its options are still to be given.
    pub fn command(&self) -> Result<Command> {
        let driver = self.folder.join(PLACE).join(SOFTWARE);
        mesa::on_processors(&self.folder.join(LIBRARIES), &driver, &self.folder, &self.program)
    }
}
