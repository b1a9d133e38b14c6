//! Builds the guest programs: one static binary that is also the initramfs's `/init`.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;
use crate::static_build::StaticBuild;

/// The environment variable that names a guest binary built elsewhere.
pub const GUEST_VARIABLE: &str = "GPUVMK_GUEST";

const BUILD: StaticBuild = StaticBuild {
    what: "the guest programs",
    package: "gpuvmk-guest",
    target_folder: "guest-target",
    panic_aborts: true,
};

/// The guest binary, built if it is not up to date.
pub fn obtain(cache: &Cache) -> Result<PathBuf> {
    if let Some(path) = env::var_os(GUEST_VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        ensure!(path.is_file(), "{GUEST_VARIABLE} names '{}', which is no file", path.display());
        return Ok(path);
    }
    BUILD.obtain(cache).with_context(|| format!("{GUEST_VARIABLE} can name a guest binary built elsewhere"))
}
