//! Where the sockets of a set-up lie.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// A folder for sockets with a short path, gone with its value.
#[derive(Debug)]
pub struct SocketFolder(PathBuf);

impl SocketFolder {
    pub fn create() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("gpuvmk-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("Cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        // What is left of it does no harm in the temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_folder_is_short_and_goes_with_its_value() {
        let folder = SocketFolder::create().unwrap();
        let path = folder.path().to_owned();
        assert!(path.is_dir() && path.as_os_str().len() < 60);
        drop(folder);
        assert!(!path.exists());
    }
}
