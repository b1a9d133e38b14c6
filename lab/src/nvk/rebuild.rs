//! NVK from Debian's source with the patches in `tests/nvk/patches`, built elsewhere (docs/nvk.md says how).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::cache::Cache;

use super::{DRIVER, hash};

/// The cache's entry with the driver.
const ENTRY: &str = "nvk-rebuilt";
/// What a shared library begins with.
const ELF: &[u8] = b"\x7fELF";

/// The driver, if it was kept before.
pub fn built(cache: &Cache) -> Option<PathBuf> {
    cache.entry(ENTRY, None).map(|folder| folder.join(DRIVER))
}

/// Keeps the driver `file` for guests.
pub fn keep(cache: &Cache, file: &Path) -> Result<()> {
    let driver = fs::read(file).with_context(|| format!("Cannot read {}", file.display()))?;
    ensure!(driver.starts_with(ELF), "{} is no shared library: give {DRIVER}", file.display());
    let key = hash(std::iter::once((DRIVER, driver.as_slice())));
    let lock = cache.lock()?;
    cache.entry_or_build(&lock, ENTRY, &key, |folder| {
        fs::write(folder.join(DRIVER), &driver).context("Cannot keep the driver")
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_is_kept_and_replaced_by_another() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache")).unwrap();
        let file = folder.path().join("driver.so");
        assert_eq!(built(&cache), None);
        for contents in [&b"\x7fELF one"[..], b"\x7fELF two"] {
            fs::write(&file, contents).unwrap();
            keep(&cache, &file).unwrap();
            assert_eq!(fs::read(built(&cache).unwrap()).unwrap(), contents);
        }
    }

    #[test]
    fn file_that_is_no_library_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache")).unwrap();
        let file = folder.path().join("source.c");
        fs::write(&file, "int main;").unwrap();
        assert!(keep(&cache, &file).unwrap_err().to_string().contains("no shared library"));
        assert_eq!(built(&cache), None);
    }
}
