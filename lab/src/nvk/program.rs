//! Builds our Vulkan program.
//!
//! It loads drivers at run time, which a statically linked program cannot. It is linked with this machine's C
//! library and run with that of the packages, which must not be older; [`super::mesa`] tries it.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cache::{Cache, source_tree};

const PACKAGE: &str = "gpuvmk-nvk";
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// A target folder of its own, so that a `cargo run` that holds the build folder's lock does not wait for
/// itself.
const TARGET_FOLDER: &str = "nvk-target";

/// The program, built if it is not up to date.
pub fn obtain(cache: &Cache) -> Result<PathBuf> {
    let folder = cache.path(TARGET_FOLDER);
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(source_tree())
        .args(["build", "--quiet", "--release", "-p", PACKAGE, "--target", TARGET, "--target-dir"])
        .arg(&folder)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("Cannot start cargo to build the Vulkan program")?;
    ensure!(status.success(), "Building the Vulkan program failed: cargo ended with {status}");
    Ok(folder.join(TARGET).join("release").join(PACKAGE))
}
