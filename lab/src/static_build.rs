//! Builds programs of this source tree that need no shared library: for an initramfs with nothing else in it,
//! and for machines whose C library nobody knows.
//!
//! By the ordinary target and a linker flag. Such builds have target folders of their own in the cache, so
//! that a `cargo run` that is going on, and holds the build folder's lock, does not wait for itself.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use crate::cache::{Cache, CacheLock, source_tree};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// What to build, and how.
#[derive(Debug, Clone, Copy)]
pub struct StaticBuild {
    /// What messages call it.
    pub what: &'static str,
    /// The package, which is also the program's name.
    pub package: &'static str,
    /// The target folder's name in the cache.
    pub target_folder: &'static str,
    /// Whether a panic ends the process at once.
    pub panic_aborts: bool,
}

/// A copy of a program below the hash of its contents, which nobody changes.
fn keep(cache: &Cache, lock: &CacheLock, program: &str, built: &Path) -> Result<PathBuf> {
    let contents = fs::read(built)?;
    let key: String = Sha256::digest(&contents).iter().map(|byte| format!("{byte:02x}")).collect();
    let prefix = format!("{program}-");
    let name = format!("{prefix}{}", key.get(..16).unwrap_or(&key));
    if cache.entry(&name, Some(&key)).is_none() {
        cache.drop_unused(lock, &prefix)?;
    }
    let folder = cache.entry_or_build(lock, &name, &key, |folder| {
        fs::copy(built, folder.join(program))?;
        Ok(())
    })?;
    cache.touch(&name);
    Ok(folder.join(program))
}

impl StaticBuild {
    /// The program, built if it is not up to date; without symbols, which would only make it larger.
    pub fn obtain(&self, cache: &Cache) -> Result<PathBuf> {
        let tree = source_tree();
        ensure!(
            tree.join("Cargo.toml").is_file(),
            "The source tree {} is gone, so {} cannot be built",
            tree.display(),
            self.what
        );
        // Source trees that share a cache share what they depend on, and the place of the program: none may
        // build while another takes its program away.
        let lock = cache.lock()?;
        let target_folder = cache.path(self.target_folder);
        let status = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .current_dir(&tree)
            .args(["build", "--quiet", "--release", "-p", self.package, "--bin", self.package])
            .args(["--target", TARGET])
            .arg("--target-dir")
            .arg(&target_folder)
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "none")
            .env("CARGO_PROFILE_RELEASE_PANIC", if self.panic_aborts { "abort" } else { "unwind" })
            .stdout(Stdio::from(std::io::stderr()))
            .status()
            .with_context(|| format!("Cannot start cargo to build {}", self.what))?;
        ensure!(status.success(), "Building {} failed: cargo ended with {status}", self.what);
        let built = target_folder.join(TARGET).join("release").join(self.package);
        keep(cache, &lock, self.package, &built).with_context(|| format!("Cannot keep {}", built.display()))
    }
}
