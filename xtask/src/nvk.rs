//! `cargo xtask nvk`: Mesa's Vulkan driver for guests.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use gpuvmk_lab::cache::Cache;
use gpuvmk_lab::nvk;
use gpuvmk_lab::nvk::mesa::Mesa;

/// What to prepare.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A `libvulkan_nouveau.so` built with the patches in tests/nvk/patches; guests have it as
    /// `driver=rebuilt`
    #[arg(long, value_name = "FILE")]
    rebuilt: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let cache = Cache::open()?;
    if let Some(driver) = &arguments.rebuilt {
        nvk::rebuild::keep(&cache, driver)?;
    }
    for mesa in Mesa::ALL {
        let part = nvk::obtain(&cache, mesa)?;
        let size = fs::metadata(&part).with_context(|| format!("Cannot look at {}", part.display()))?.len();
        println!("{} ({:.1} MiB)", part.display(), size as f64 / f64::from(1 << 20));
    }
    Ok(())
}
