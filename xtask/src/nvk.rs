//! `cargo xtask nvk`: Mesa's Vulkan driver for guests.

use std::fs;

use anyhow::{Context, Result};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::nvk;

/// What to prepare.
#[derive(Debug, clap::Args)]
pub struct Arguments {}

pub fn run(_arguments: &Arguments) -> Result<()> {
    let cache = Cache::open()?;
    let part = nvk::obtain(&cache)?;
    let size = fs::metadata(&part).with_context(|| format!("Cannot look at {}", part.display()))?.len();
    println!("{} ({:.1} MiB)", part.display(), size as f64 / f64::from(1 << 20));
    Ok(())
}
