//! NVK from Debian's source with our patches.

use std::path::PathBuf;

use crate::cache::Cache;

use super::DRIVER;

/// The cache's entry with the driver.
const ENTRY: &str = "nvk-rebuilt";

/// The driver, if it was built before.
pub fn built(cache: &Cache) -> Option<PathBuf> {
    cache.entry(ENTRY, None).map(|folder| folder.join(DRIVER))
}
