//! Builds the guest programs: one static binary that is also the initramfs's `/init`.
//!
//! The binary links its C library statically (there is nothing else in the initramfs), by the ordinary target
//! and a linker flag. It has a target folder of its own in the cache, so that a `cargo run` that is going on,
//! and holds the build folder's lock, does not wait for itself.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::cache::{Cache, source_tree};

/// The environment variable that names a guest binary built elsewhere.
pub const GUEST_VARIABLE: &str = "GPUVMK_GUEST";
const TARGET: &str = "x86_64-unknown-linux-gnu";
const PACKAGE: &str = "gpuvmk-guest";

/// The guest binary, built if it is not up to date.
pub fn obtain(cache: &Cache) -> Result<PathBuf> {
    if let Some(path) = env::var_os(GUEST_VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "{GUEST_VARIABLE} names '{}', which is no file", path.display());
        return Ok(path);
    }
    let tree = source_tree();
    ensure!(
        tree.join("Cargo.toml").is_file(),
        "The source tree {} is gone, so the guest programs cannot be built: set {GUEST_VARIABLE} to a built one",
        tree.display()
    );
    let target_folder = cache.path("guest-target");
    let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(&tree)
        .args(["build", "--quiet", "--release", "-p", PACKAGE, "--target", TARGET])
        .arg("--target-dir")
        .arg(&target_folder)
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        // Symbols would only make the initramfs slower to load.
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("Cannot start cargo to build the guest programs")?;
    ensure!(status.success(), "The guest programs do not build: cargo ended with {status}");
    Ok(target_folder.join(TARGET).join("release").join(PACKAGE))
}
