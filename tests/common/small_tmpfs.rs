//! A file system in memory that is small enough to fill.

use std::process::Command;

/// A tmpfs of some pages, for a test that is to fill it. `None` where nothing can be mounted.
pub fn small_tmpfs(pages: u64) -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={}", pages * 0x1000), "none"])
        .arg(folder.path())
        .status();
    if mounted.is_ok_and(|status| status.success()) {
        return Some(folder);
    }
    println!("skipped: only root may mount a tmpfs that is small enough to fill");
    None
}

/// Takes it away again.
pub fn give_back(folder: &tempfile::TempDir) {
    assert!(Command::new("umount").arg("-l").arg(folder.path()).status().unwrap().success());
}
