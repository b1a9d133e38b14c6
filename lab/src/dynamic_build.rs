//! Builds programs of this source tree that load a driver's libraries at run time, which a statically linked
//! program cannot.
//!
//! They are linked with this machine's C library and run with that of the packages that the driver comes
//! from, which must not be older.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cache::{Cache, source_tree};

const TARGET: &str = "x86_64-unknown-linux-gnu";
/// A target folder of its own, so that a `cargo run` that holds the build folder's lock does not wait for
/// itself.
const TARGET_FOLDER: &str = "nvk-target";

/// The program of the package of this name, built if it is not up to date; messages call it `what`.
pub fn obtain(cache: &Cache, package: &str, what: &str) -> Result<PathBuf> {
    let folder = cache.path(TARGET_FOLDER);
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(source_tree())
        .args(["build", "--quiet", "--release", "-p", package, "--target", TARGET, "--target-dir"])
        .arg(&folder)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .with_context(|| format!("Cannot start cargo to build {what}"))?;
    ensure!(status.success(), "Building {what} failed: cargo ended with {status}");
    Ok(folder.join(TARGET).join("release").join(package))
}
