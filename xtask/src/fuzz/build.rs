//! Builds the fuzzers: the library with counters at every branch, on the stable toolchain and without a
//! sanitizer.
//!
//! The flags are those of cargo-fuzz 0.13 with `--sanitizer none`: LLVM's pass for coverage is part of every
//! toolchain, and libFuzzer itself is compiled from the crate that brings it. Naming the target platform
//! keeps the flags away from build scripts and procedural macros.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use gpuvmk_lab::cache::source_tree;

/// Coverage for libFuzzer: counters, a table of places, and the operands of comparisons.
const FLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "--cfg=fuzzing",
];

const PROFILE: &str = "fuzz";

/// The fuzzers, built.
#[derive(Debug)]
pub struct Fuzzers {
    folder: PathBuf,
}

impl Fuzzers {
    /// Builds those of `targets`.
    pub fn build(targets: &[String]) -> Result<Self> {
        let platform = platform()?;
        eprintln!("building the fuzzers");
        let mut command = Command::new(cargo());
        command
            .current_dir(source_tree())
            .args(["build", "--quiet", "--package", "gpuvmk-fuzz", "--features", "libfuzzer"])
            .args(["--profile", PROFILE, "--target", &platform])
            .env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"))
            .stdout(Stdio::from(std::io::stderr()));
        for target in targets {
            command.args(["--bin", target]);
        }
        let status = command.status().context("Cannot start cargo to build the fuzzers")?;
        ensure!(status.success(), "The fuzzers do not build: cargo ended with {status}");
        Ok(Self { folder: target_folder().join(platform).join(PROFILE) })
    }

    /// The program of a target.
    pub fn program(&self, target: &str) -> PathBuf {
        self.folder.join(target)
    }
}

/// The targets that there are.
pub fn targets(fuzz: &Path) -> Result<Vec<String>> {
    let folder = fuzz.join("fuzz_targets");
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("Cannot read the folder {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("Cannot read the folder {}", folder.display()))?.path();
        names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

/// Where cargo puts what it builds.
pub fn target_folder() -> PathBuf {
    let tree = source_tree();
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree.join("target"), |path| tree.join(path))
}

fn cargo() -> OsString {
    env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The platform that this toolchain builds for by itself.
fn platform() -> Result<String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("Cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not say what platform it is for")
}
